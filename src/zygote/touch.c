/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done ahead, so that a script's run writes to few pages: each is one that the kernel must copy for it.
 *
 * Zygote and children run the same small script.  The zygote, again and again, until what an interpreter learns as it
 * goes (specialised code, its cache of attributes) is learnt once for all children.  A child,
 * once, while it waits for its job: what it writes is its own afterwards.
 */
#include "zygote/zygote.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/inside.h"

#define PRACTICE 20 /* more than the eight calls after which an interpreter adapts a function */

void touch(const struct server *s)
{
	static char text[] = "def f_(n):\n    return n\nprint(end='')\n";
	PyObject *globals;
	PyObject *v = NULL;
	FILE *file;

	dress(s, s->sample.data, s->sample.len, false, ZYGOTE_SCRIPT);
	globals = PyDict_New();
	file = fmemopen(text, sizeof(text) - 1, "rb");
	if (file && globals)
		v = run_stream(file, ZYGOTE_SCRIPT, globals);
	else if (file)
		(void)fclose(file);
	if (v)
		end_touch(s, globals, v);
	Py_XDECREF(globals);
	PyErr_Clear();
}

static int take_sample(struct server *s)
{
	int r = pack_add(&s->sample, SANDBOX_ARG, NULL, "", 0);

	if (r == 0)
		r = pack_add(&s->sample, SANDBOX_ARG, NULL, ZYGOTE_SCRIPT, strlen(ZYGOTE_SCRIPT));
	for (char **e = environ; r == 0 && *e; e++)
		r = pack_add(&s->sample, SANDBOX_ENV, NULL, *e, strlen(*e));
	return r;
}

int settle(struct server *s)
{
	int r = take_sample(s);

	for (int i = 0; r == 0 && i < PRACTICE; i++) {
		PyObject *v = PyObject_CallFunctionObjArgs(s->reseed, NULL);

		if (!v) {
			PyErr_Print();
			return -EPROTO;
		}
		Py_DECREF(v);
		touch(s);
	}
	if (r == 0)
		r = end_learn(s);
	(void)PyGC_Collect(); /* the interpreter's lists of free objects, too */
	memory_settle(s);
	return r;
}
