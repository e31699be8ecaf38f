/* SPDX-License-Identifier: Apache-2.0 */
/* A fork from its birth to its script: the lock-down, the parking place, the hand-over (what is done ahead: touch.c). */
#include "zygote/zygote.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "sandbox/inside.h"

#define PATH_ROOM 304 /* a name has 255 bytes at most */

/* In every libpython and interpreter since Python 2, but not in the limited API: run_stream() does without if need be. */
PyAPI_FUNC(PyObject *) PyRun_FileExFlags(FILE *, const char *, int, PyObject *, PyObject *, int, void *)
	__attribute__((weak));

static _Noreturn void fail_at(const struct step_fail *f)
{
	(void)!write(INSIDE_STATUS_FD, f, sizeof(*f));
	_exit(127);
}

static _Noreturn void fail_with(const char *step, int sys)
{
	struct step_fail f;

	step_fail_set(&f, step, sys);
	fail_at(&f);
}

/* No allocation, no lock, no Python from here to the end of this function. */
static void lock_down(const struct server *s, const struct zygote_fork *f, const int *fds, size_t n_fds, int *ret_listener)
{
	struct home home = { .ids.count = f->n_ids,
			     .has_cgroup_ns = f->has_cgroup_ns,
			     .has_landlock = f->has_landlock,
			     .has_proc = f->has_proc };
	struct cgroup cgroup = CGROUP_EMPTY;
	struct inside in = {
		.home = &home,
		.spec = &f->spec,
		.cgroup = &cgroup,
		.init = fds[0],
		.in = fds[1],
		.out = fds[2],
		.err = fds[3],
		.status = fds[4],
		.cpu_seconds = f->cpu_seconds,
		.signals = s->handled,
		.has_filters = true,
		.is_sampled = f->is_sampled,
		.cpu = f->cpu,
		.ret_listener = ret_listener,
		.tells_sockets = true,
	};
	struct step_fail fail;

	for (size_t i = 5; i < n_fds && !f->is_cgroup_v2; i++)
		cgroup.tasks[i - 5] = fds[i];
	if (inside_lock_down(&in, &fail) == 0)
		return;
	/* until the step "descriptors" is through the job socket has another number */
	(void)!write(in.status, &fail, sizeof(fail));
	fail_at(&fail);
}

/* The lock-down has set all to their defaults; an interpreter ignores two and handles one. */
static void restore_signals(const struct server *s)
{
	for (int i = 1; i < NSIG; i++) {
		if (s->signals[i].sa_handler != SIG_DFL)
			(void)sigaction(i, &s->signals[i], NULL);
	}
}

PyObject *run_stream(FILE *file, const char *path, PyObject *globals)
{
	PyObject *code;
	PyObject *v;
	char *text = NULL;
	size_t len;
	int r;

	if (!file)
		return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
	if (PyRun_FileExFlags)
		return PyRun_FileExFlags(file, path, Py_file_input, globals, globals, 1, NULL);
	r = fd_read_all(fileno(file), SIZE_MAX / 2, &text, &len);
	(void)fclose(file);
	if (r < 0) {
		errno = -r;
		return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
	}
	code = Py_CompileString(text, path, Py_file_input);
	free(text);
	v = code ? PyEval_EvalCode(code, globals, globals) : NULL;
	Py_XDECREF(code);
	return v;
}

/* The bundle's strings of one kind: arguments as str, the environment as bytes. */
static PyObject *strings(const char *bundle, size_t len, uint32_t kind)
{
	PyObject *list = PyList_New(0);
	struct pack_record rec;
	size_t offset = 0;

	while (list && pack_next(bundle, len, &offset, &rec) > 0) {
		PyObject *item;

		if (rec.kind != kind)
			continue;
		item = kind == SANDBOX_ARG ? PyUnicode_DecodeFSDefaultAndSize(rec.data, (Py_ssize_t)rec.len)
					   : PyBytes_FromStringAndSize(rec.data, (Py_ssize_t)rec.len);
		if (!item || PyList_Append(list, item) < 0)
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	return list;
}

/* The second of the arguments is the script's path; it stays where it is. */
static const char *script_path(const char *bundle, size_t len)
{
	struct pack_record rec;
	size_t offset = 0;
	unsigned n = 0;

	while (pack_next(bundle, len, &offset, &rec) > 0) {
		if (rec.kind == SANDBOX_ARG && n++ == 1 && strncmp(rec.data, "/tmp/", 5) == 0 && rec.len < PATH_ROOM)
			return rec.data;
	}
	fail_with("bundle", EBADMSG);
}

/*
 * A script of a short bundle is read from there: its file is there for whoever looks for it.  What tells its encoding may
 * have the interpreter read the descriptor.
 */
static FILE *open_script(const char *bundle, size_t len, const char *path)
{
	struct pack_record rec;
	size_t offset = 0;

	while (PyRun_FileExFlags && pack_next(bundle, len, &offset, &rec) > 0) {
		const char *line;

		if (rec.kind != SANDBOX_FILE || rec.len == 0 || strcmp(rec.name, path + strlen("/tmp/")) != 0)
			continue;
		line = memchr(rec.data, '\n', rec.len);
		line = line ? memchr(line + 1, '\n', rec.len - (size_t)(line + 1 - rec.data)) : NULL;
		if (memchr(rec.data, '\0', rec.len) || rec.data[0] == '\xef' ||
		    memmem(rec.data, line ? (size_t)(line - rec.data) : rec.len, "coding", 6))
			break;
		return fmemopen((void *)(uintptr_t)rec.data, rec.len, "rb");
	}
	return fopen(path, "rbe");
}

/*
 * An interpreter looks whether its script is an archive, and notes that.  Its way to find out is Python code over a
 * file; what holds no end of an archive's directory anywhere is none.
 */
static void note_archive(const struct server *s, const char *bundle, size_t len, const char *path)
{
	PyObject *cache = PySys_GetObject("path_importer_cache");
	PyObject *name = PyUnicode_DecodeFSDefault(path);
	PyObject *importer;

	if (name && s->has_plain_hooks && cache && PyDict_Check(cache) && !memmem(bundle, len, "PK\5\6", 4)) {
		(void)PyDict_SetItem(cache, name, Py_None);
	} else if (name) {
		importer = PyImport_GetImporter(name);
		Py_XDECREF(importer);
	}
	PyErr_Clear();
	Py_XDECREF(name);
}

void dress(const struct server *s, const char *bundle, size_t len, bool is_buffered, const char *path)
{
	PyObject *argv = strings(bundle, len, SANDBOX_ARG);
	PyObject *environment = strings(bundle, len, SANDBOX_ENV);
	PyObject *v = NULL;
	int r;

	r = inside_write_files(bundle, len);
	if (r < 0)
		fail_with("files", -r);
	if (is_buffered) { /* the C library's own streams follow the interpreter's */
		static char buffers[2][BUFSIZ];

		(void)setvbuf(stdin, buffers[0], _IOFBF, sizeof(buffers[0]));
		(void)setvbuf(stdout, buffers[1], _IOFBF, sizeof(buffers[1]));
	}
	if (argv && environment)
		v = PyObject_CallFunctionObjArgs(s->dress, argv, environment, is_buffered ? Py_True : Py_False, NULL);
	if (!v) {
		PyErr_Print();
		fail_with("dress", EPROTO);
	}
	Py_DECREF(v);
	Py_DECREF(argv);
	Py_DECREF(environment);
	note_archive(s, bundle, len, path);
}

/* It is behind @go, or in a memfd: borrowed. */
static void take_bundle(const struct zygote_go *go, size_t n, int *fds, size_t n_fds, const char **ret, size_t *ret_len)
{
	size_t head = offsetof(struct zygote_go, body);
	int r;

	if (n_fds == 0 && n > head) {
		*ret = go->body;
		*ret_len = n - head;
		return;
	}
	if (n_fds != 1 || n != head)
		fail_with("bundle", EBADMSG);
	r = fd_map_sealed(fds[0], ret, ret_len);
	fd_close(&fds[0]);
	if (r < 0 || !*ret)
		fail_with("bundle", -r);
}

/* Wait for the script; then it is all that there is. */
static _Noreturn void park(const struct server *s, int listener)
{
	struct zygote_parked parked = { .word = ZYGOTE_READY };
	int fds[FD_MAX_PASSED];
	const char *bundle = NULL;
	struct zygote_go go;
	char path[PATH_ROOM];
	size_t n_fds = 0;
	size_t len = 0;
	PyObject *globals;
	FILE *file;
	ssize_t n;

	if (fd_send(INSIDE_STATUS_FD, &parked, sizeof(parked), &listener, listener >= 0 ? 1 : 0) < 0)
		_exit(0);
	fd_close(&listener);
	n = fd_recv(INSIDE_STATUS_FD, &go, sizeof(go), fds, &n_fds);
	if (n <= 0)
		_exit(0); /* not needed any more */
	take_bundle(&go, (size_t)n, fds, n_fds, &bundle, &len);
	(void)memccpy(path, script_path(bundle, len), '\0', sizeof(path));
	dress(s, bundle, len, go.is_buffered, path);
	file = n_fds > 0 ? fopen(path, "rbe") : open_script(bundle, len, path);
	if (n_fds > 0)
		(void)munmap((void *)(uintptr_t)bundle, len);
	(void)close(INSIDE_STATUS_FD);
	globals = PyModule_GetDict(PyImport_AddModule("__main__"));
	Py_INCREF(globals);
	end_run(s, globals, run_stream(file, path, globals));
}

_Noreturn void child_begin(const struct server *s, const struct zygote_fork *f, const int *fds, size_t n_fds)
{
	int listener = -1;
	PyObject *v;

	lock_down(s, f, fds, n_fds, &listener);
	restore_signals(s);
	PyOS_AfterFork_Child();
	v = PyObject_CallFunctionObjArgs(s->reseed, NULL);
	if (!v) { /* two runs with the same random numbers are worse than none */
		PyErr_Print();
		fail_with("reseed", EPROTO);
	}
	Py_DECREF(v);
	if (f->is_touched)
		touch(s);
	park(s, listener);
}
