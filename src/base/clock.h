/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_SEC UINT64_C(1000000000)
#define NS_PER_MS  UINT64_C(1000000)
#define NS_PER_US  UINT64_C(1000)
#define US_PER_SEC INT64_C(1000000)

/* clock_now_ns() - nanoseconds of CLOCK_MONOTONIC, the only clock that results are made from */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

/* clock_wall_us() - microseconds since 1970: for who reads when something was, never for how long it took */
static inline int64_t clock_wall_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * US_PER_SEC + t.tv_nsec / 1000;
}
