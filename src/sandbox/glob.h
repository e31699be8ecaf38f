/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

/*
 * Patterns for paths, matched component by component while a tree is walked, so that no folder is entered in vain.
 *
 *   *      any characters of one component, also none      ?       one character (UTF-8; else one byte)
 *   [a-z]  one of them ([!a-z], [^a-z]: none of them)      **      as a whole component: any number of folders
 *
 * There is no escape character: "[*]" is a star.  A component that begins with "." is matched only by one that begins
 * with a literal "." too, and "**" does not pass through it.  A "**" at the end means every file below.
 *
 * A state is a set of positions in the pattern (bit i: the first i parts are matched), as in an automaton: matching
 * takes time proportional to pattern and path, whatever the number of "**".
 */
#define GLOB_PARTS 62

struct glob {
	const char *part[GLOB_PARTS]; /* borrowed from the pattern */
	size_t len[GLOB_PARTS];
	unsigned n;
	uint64_t deep; /* bit i: part i is "**" */
};

/*
 * glob_compile() - @pattern stays borrowed by @ret
 *
 * Empty and "." components are dropped, "**" after "**" is one.
 * Return: 0; -EINVAL (empty, absolute, ".." in it, or a folder: ends in "/"); -E2BIG (more than GLOB_PARTS components)
 */
int glob_compile(const char *pattern, size_t len, struct glob *ret) MUST_CHECK;

/* glob_start() - the state at the root */
uint64_t glob_start(const struct glob *g);

/* glob_step() - the state after one more component; 0: nothing below can match */
uint64_t glob_step(const struct glob *g, uint64_t state, const char *name, size_t len);

/* glob_is_match() - whether a file whose last component led to @state is named */
bool glob_is_match(const struct glob *g, uint64_t state);

/* glob_goes_on() - whether something below a folder that led to @state can be named */
bool glob_goes_on(const struct glob *g, uint64_t state);
