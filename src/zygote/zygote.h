/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/pack.h"
#include "zygote/wire.h"

/*
 * Inside the extension module: module.c (the zygote), child.c (a fork up to its script), touch.c and memory.c (what
 * is done ahead, so that a run has less to do), end.c (an interpreter's end).
 */

/* How many names a module has, before there was a script. */
struct kept_module {
	PyObject *dict; /* borrowed of kept */
	Py_ssize_t size;
};

struct server {
	int tasks;  /* owned; /proc/self/task */
	int pid_ns; /* owned; our own */
	pid_t *tid; /* the C library's copy of our thread id */
	void *robust;
	size_t robust_len;
	struct sigaction signals[NSIG]; /* as the interpreter has set them */
	uint64_t handled;               /* those of them that are not quite the default, as in struct inside */
	PyObject *dress;  /* dress(argv, environment, is_buffered); this and the rest owned, never given back */
	PyObject *reseed; /* reseed() */
	PyObject *enable_gc;    /* gc.enable() */
	PyObject *gc_callbacks; /* gc.callbacks */
	PyObject *kept;   /* sys.modules as it was when serving began */
	struct kept_module *sizes; /* owned; of each of kept but sys */
	size_t n_sizes;
	struct kept_module sys; /* apart: an interpreter lets go of it last */
	uint32_t version;     /* sys.hexversion */
	struct pack sample; /* a bundle for practice: our own arguments and environment */
	bool has_plain_hooks; /* sys.path_hooks are those of any interpreter: archives, folders */
	size_t dict_size; /* of a dictionary object; DICT_MAX at most */
};
#define DICT_MAX 256

/* child_begin() - a fresh fork: lock-down, park, run the script; never returns */
_Noreturn void child_begin(const struct server *s, const struct zygote_fork *f, const int *fds, size_t n_fds);

/*
 * end_run() - what an interpreter does when its script has ended, as far as anybody can tell; never returns
 * @globals: of the script; taken over
 * @result:  of the script; NULL: an exception is set
 */
_Noreturn void end_run(const struct server *s, PyObject *globals, PyObject *result);

/*
 * end_touch() - what end_run() does at least, as far as it can be done before there was a script
 * @globals: of a script that was practice
 * @result:  of it; taken over
 */
void end_touch(const struct server *s, PyObject *globals, PyObject *result);

/* end_learn() - what kept modules have by now is theirs; what a script puts beside it goes with the script.  Return: 0 or -errno */
int end_learn(struct server *s);

/* dress() - write @bundle's files, put on the job's clothes; where that fails it says so and ends the process */
void dress(const struct server *s, const char *bundle, size_t len, bool is_buffered, const char *path);

/*
 * settle() - the last of a zygote before its first fork: what forks do is practised, memory is put in order
 *
 * Return: 0 or -errno
 */
int settle(struct server *s);

/*
 * memory_begin()  - before anything is imported: where it is to be
 * memory_settle() - the part of settle() that is about memory
 */
void memory_begin(void);
void memory_settle(const struct server *s);

/* touch() - in a child, before there is a script: have the pages that every script writes */
void touch(const struct server *s);

/*
 * run_stream() - like the interpreter's own reading of a script
 * @file: taken over; NULL: it could not be opened, errno tells why
 * @path: what its code is said to be from
 *
 * Return: NULL with an exception set
 */
PyObject *run_stream(FILE *file, const char *path, PyObject *globals);
