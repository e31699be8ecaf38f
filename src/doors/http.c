/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "doors/doors.h"

int door_http(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	(void)fputs("cloche-door http: not built\n", stderr);
	return DOOR_COULD_NOT;
}
