/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script's end.  The interpreter's own way takes 3 to 10 ms, most of it for giving back what the kernel is about to
 * take anyway.  Here is what can be noticed of it, in the interpreter's order: the exception's text, threads joined,
 * atexit, streams flushed, destructors of what the script made, streams flushed again.  What was imported beforehand
 * stays.
 *
 * Where threads are still running, or a stream can't be flushed, the interpreter's own way is taken.
 */
#include "zygote/zygote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The interpreter's cache of attributes knows names by their address: a new string each time would be a new entry. */
static PyObject *attribute(PyObject *o, const char *name)
{
	PyObject *interned = PyUnicode_InternFromString(name);
	PyObject *v = interned ? PyObject_GetAttr(o, interned) : NULL;

	Py_XDECREF(interned);
	return v;
}

/* A method without arguments. */
static PyObject *call(PyObject *o, const char *method)
{
	PyObject *interned = PyUnicode_InternFromString(method);
	PyObject *v = interned ? PyObject_CallMethodObjArgs(o, interned, NULL) : NULL;

	Py_XDECREF(interned);
	return v;
}

static void call_quietly(PyObject *o, const char *method)
{
	PyObject *v = o && o != Py_None ? call(o, method) : NULL;

	Py_XDECREF(v);
	PyErr_Clear();
}

static void flush_quietly(void)
{
	PyObject *type, *value, *traceback;

	PyErr_Fetch(&type, &value, &traceback);
	call_quietly(PySys_GetObject("stderr"), "flush");
	call_quietly(PySys_GetObject("stdout"), "flush");
	PyErr_Restore(type, value, traceback);
}

/* Return: whether all went well; what is to be said of a stream that can't be flushed is the interpreter's business */
static bool flush_streams(void)
{
	static const char *const names[] = { "stdout", "stderr" };
	bool is_good = true;

	for (int i = 0; i < 2; i++) {
		PyObject *stream = PySys_GetObject(names[i]);
		PyObject *closed;
		PyObject *v;
		int is_closed = 0;

		if (!stream || stream == Py_None)
			continue;
		Py_INCREF(stream);
		closed = attribute(stream, "closed");
		if (closed)
			is_closed = PyObject_IsTrue(closed);
		PyErr_Clear();
		Py_XDECREF(closed);
		v = is_closed > 0 ? NULL : call(stream, "flush");
		is_good = is_good && (v || is_closed > 0);
		PyErr_Clear();
		Py_XDECREF(v);
		Py_DECREF(stream);
	}
	return is_good;
}

/* What a SystemExit carries: in *@ret_code, owned.  Return: the status for a number or None; -1 for a text or what else
 */
static long exit_number(PyObject *value, PyObject **ret_code)
{
	PyObject *code = value ? attribute(value, "code") : NULL;
	long number = -1;

	*ret_code = code;
	if (code == Py_None)
		number = 0;
	else if (code && PyLong_Check(code))
		number = PyLong_AsLong(code) & 0xff;
	if (PyErr_Occurred()) {
		PyErr_Clear();
		number = -1;
	}
	return number;
}

/* Return: the exit status.  The exception that is set is taken over; what is rare about it is left to the interpreter.
 */
static int exit_status(void)
{
	PyObject *stream = PySys_GetObject("stderr");
	PyObject *type, *value, *traceback;
	PyObject *code;
	long number;

	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	number = exit_number(value, &code);
	(void)fflush(stdout);
	if (number < 0 && code && (PyObject *)Py_TYPE(code) == (PyObject *)&PyUnicode_Type && stream &&
	    stream != Py_None && PyFile_WriteObject(code, stream, Py_PRINT_RAW) == 0) {
		PySys_WriteStderr("\n");
		number = 1;
	}
	PyErr_Clear();
	Py_XDECREF(code);
	if (number < 0) {
		PyErr_Restore(type, value, traceback);
		PyErr_Print(); /* does not return */
		_exit(1);
	}
	/* the traceback holds the script's frames: they go now, as they do in an interpreter */
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(traceback);
	return (int)number;
}

static void drop(PyObject *dict, const char *name)
{
	if (PyDict_GetItemString(dict, name) && PyDict_DelItemString(dict, name) < 0)
		PyErr_Clear();
}

/* What became of the script.  Return: the exit status, and whether it was interrupted */
static int verdict(PyObject *globals, PyObject *result, bool *ret_is_interrupted)
{
	int status = 0;

	flush_quietly();
	if (!result && PyErr_ExceptionMatches(PyExc_SystemExit))
		return exit_status();
	if (!result) {
		*ret_is_interrupted = PyErr_Occurred() == PyExc_KeyboardInterrupt;
		PyErr_Print();
		status = 1;
	}
	Py_XDECREF(result);
	drop(globals, "__file__");
	drop(globals, "__cached__");
	return status;
}

static void join_threads(PyObject *modules)
{
	PyObject *threading = PyDict_GetItemString(modules, "threading");
	PyObject *v;

	if (!threading || threading == Py_None)
		return;
	Py_INCREF(threading);
	v = call(threading, "_shutdown");
	if (!v)
		PyErr_WriteUnraisable(threading);
	Py_XDECREF(v);
	Py_DECREF(threading);
}

static const char run_them[] = "_run_exitfuncs";

static PyObject *find_atexit(const struct server *s, PyObject *modules)
{
	PyObject *atexit = PyDict_GetItemString(modules, "atexit");

	return atexit ? atexit : PyDict_GetItemString(s->kept, "atexit");
}

static bool has_threads(const struct server *s)
{
	PyObject *thread = PyDict_GetItemString(s->kept, "_thread");
	PyObject *n = thread ? call(thread, "_count") : NULL;
	long count = n ? PyLong_AsLong(n) : 0;

	Py_XDECREF(n);
	PyErr_Clear();
	return count > 0;
}

/* Of sys, what an interpreter sets to None first; those with much behind them are kept from being taken apart. */
static const char *const sys_kept[] = { "path", "path_hooks", "path_importer_cache", "meta_path" };
static const char *const sys_gone[] = {
	"argv", "ps1", "ps2", "last_type", "last_value", "last_traceback", "last_exc"
};
static const char *const sys_streams[][2] = { { "stdin", "__stdin__" },
					      { "stdout", "__stdout__" },
					      { "stderr", "__stderr__" } };

static void clear_sys(void)
{
	for (size_t i = 0; i < sizeof(sys_kept) / sizeof(sys_kept[0]); i++) {
		Py_XINCREF(PySys_GetObject(sys_kept[i]));
		(void)PySys_SetObject(sys_kept[i], Py_None);
	}
	for (size_t i = 0; i < sizeof(sys_gone) / sizeof(sys_gone[0]); i++) {
		if (PySys_GetObject(sys_gone[i]))
			(void)PySys_SetObject(sys_gone[i], Py_None);
	}
	for (size_t i = 0; i < sizeof(sys_streams) / sizeof(sys_streams[0]); i++) {
		PyObject *first = PySys_GetObject(sys_streams[i][1]);

		(void)PySys_SetObject(sys_streams[i][0], first ? first : Py_None);
	}
	PyErr_Clear();
}

static void touch_sys(const char *name)
{
	PyObject *o = PySys_GetObject(name);

	if (!o)
		return;
	Py_INCREF(o);
	(void)PySys_SetObject(name, o);
	Py_DECREF(o);
}

/* Names with one leading underscore first, then all the others but __builtins__. */
static void clear_module(PyObject *module)
{
	PyObject *dict = PyModule_GetDict(module);

	for (int pass = 0; pass < 2; pass++) {
		PyObject *names = PyDict_Keys(dict);

		for (Py_ssize_t i = 0; names && i < PyList_Size(names); i++) {
			PyObject *name = PyList_GetItem(names, i);
			PyObject *bytes = PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : NULL;
			const char *text = bytes ? PyBytes_AsString(bytes) : "__builtins__";
			bool is_first = text[0] == '_' && text[1] != '_';

			if (pass == 0 ? is_first : text[0] != '_' || strcmp(text, "__builtins__") != 0)
				(void)PyDict_SetItem(dict, name, Py_None);
			Py_XDECREF(bytes);
			PyErr_Clear();
		}
		Py_XDECREF(names);
	}
}

static PyObject *new_names(const struct server *s, PyObject *modules)
{
	PyObject *names = PyList_New(0);
	PyObject *name, *module;
	Py_ssize_t at = 0;

	while (names && PyDict_Next(modules, &at, &name, &module)) {
		if (PyDict_GetItem(s->kept, name) != module && PyList_Append(names, name) < 0)
			PyErr_Clear();
	}
	return names;
}

/*
 * Empty sys.modules, as an interpreter does, without letting go of what is in it: each module's reference count is on
 * another page, and to get those pages took a third of a run.  Two dictionaries change their contents, whatever is in
 * them. Return: the dictionary that has them now; NULL: none, and nothing was done.
 */
static PyObject *take_modules(const struct server *s, PyObject *modules)
{
	size_t size = s->dict_size - sizeof(PyObject);
	PyObject *all = PyDict_New();
	char body[DICT_MAX];

	if (!all || (PyObject *)Py_TYPE(modules) != (PyObject *)&PyDict_Type)
		return NULL;
	memcpy(body, modules + 1, size);
	memcpy(modules + 1, all + 1, size);
	memcpy(all + 1, body, size);
	return all;
}

int end_learn(struct server *s)
{
	PyObject *name, *module;
	Py_ssize_t at = 0;

	s->sizes = calloc((size_t)PyDict_Size(s->kept), sizeof(*s->sizes));
	if (!s->sizes)
		return -ENOMEM;
	while (PyDict_Next(s->kept, &at, &name, &module)) {
		bool is_sys = PyUnicode_CompareWithASCIIString(name, "sys") == 0;
		struct kept_module *m = is_sys ? &s->sys : &s->sizes[s->n_sizes];

		if (!PyModule_Check(module))
			continue;
		m->dict = PyModule_GetDict(module);
		m->size = PyDict_Size(m->dict);
		s->n_sizes += !is_sys;
	}
	return 0;
}

/* What a script has put into a module that was there before it: the last of its names. */
static void drop_new(const struct kept_module *m)
{
	PyObject *names = PyDict_Keys(m->dict);

	for (Py_ssize_t i = m->size; names && i < PyList_Size(names); i++)
		(void)PyDict_SetItem(m->dict, PyList_GetItem(names, i), Py_None);
	Py_XDECREF(names);
	PyErr_Clear();
}

static void clear_kept(const struct server *s)
{
	for (size_t i = s->n_sizes; i-- > 0;) {
		if (PyDict_Size(s->sizes[i].dict) > s->sizes[i].size)
			drop_new(&s->sizes[i]);
	}
}

/* Its streams are older than what a script adds, and gone by then. */
static void clear_kept_sys(const struct server *s)
{
	if (PyDict_Size(s->sys.dict) <= s->sys.size)
		return;
	for (size_t i = 0; i < sizeof(sys_streams) / sizeof(sys_streams[0]); i++)
		(void)PySys_SetObject(sys_streams[i][0], Py_None);
	drop_new(&s->sys);
}

/* From 3.10 on. */
PyAPI_FUNC(int) PyGC_Enable(void) __attribute__((weak));

/* An interpreter's last collections happen whatever gc.disable() said, and tell no gc.callbacks. */
static void free_gc(const struct server *s)
{
	PyObject *v = PyGC_Enable ? NULL : PyObject_CallFunctionObjArgs(s->enable_gc, NULL);
	Py_ssize_t n = PyList_Check(s->gc_callbacks) ? PyList_Size(s->gc_callbacks) : 0;
	PyObject *held = n ? PyList_GetSlice(s->gc_callbacks, 0, n) : NULL; /* for good: they go with the process */

	if (PyGC_Enable)
		(void)PyGC_Enable();
	Py_XDECREF(v);
	if (held)
		(void)PyList_SetSlice(s->gc_callbacks, 0, n, NULL);
	PyErr_Clear();
}

/* Let go of the script's modules; then of what they still hold. */
static void clear_modules(const struct server *s, PyObject *modules)
{
	PyObject *names = new_names(s, modules);
	PyObject *all = take_modules(s, modules);
	PyObject *refs = PyList_New(0);

	for (Py_ssize_t i = 0; names && all && refs && i < PyList_Size(names); i++) {
		PyObject *name = PyList_GetItem(names, i);
		PyObject *module = PyDict_GetItem(all, name);
		PyObject *ref = module && PyModule_Check(module) ? PyWeakref_NewRef(module, NULL) : NULL;

		if (ref)
			(void)PyList_Append(refs, ref);
		Py_XDECREF(ref);
		(void)PyDict_DelItem(all, name);
		PyErr_Clear();
	}
	Py_XDECREF(names);
	free_gc(s);
	(void)PyGC_Collect();
	for (Py_ssize_t i = refs ? PyList_Size(refs) : 0; i-- > 0;) {
		PyObject *module = PyObject_CallFunctionObjArgs(PyList_GetItem(refs, i), NULL);

		if (module && module != Py_None)
			clear_module(module);
		Py_XDECREF(module);
	}
	PyErr_Clear();
	clear_kept(s);
	(void)PyGC_Collect();
}

void end_touch(const struct server *s, PyObject *globals, PyObject *result)
{
	PyObject *modules = PySys_GetObject("modules");
	PyObject *atexit = find_atexit(s, modules);
	PyObject *o;
	bool is_interrupted;

	(void)PyDict_SetItemString(globals, "__file__", Py_None);
	(void)verdict(globals, result, &is_interrupted);
	(void)PyDict_GetItemString(modules, "threading");
	o = atexit ? attribute(atexit, run_them) : NULL; /* what is registered is to be run later, once */
	Py_XDECREF(o);
	(void)has_threads(s);
	(void)flush_streams();
	(void)PyGC_Collect();
	for (size_t i = 0; i < sizeof(sys_kept) / sizeof(sys_kept[0]); i++)
		touch_sys(sys_kept[i]);
	for (size_t i = 0; i < sizeof(sys_gone) / sizeof(sys_gone[0]); i++)
		touch_sys(sys_gone[i]);
	for (size_t i = 0; i < sizeof(sys_streams) / sizeof(sys_streams[0]); i++)
		touch_sys(sys_streams[i][0]);
	o = new_names(s, modules);
	Py_XDECREF(o);
	flush_quietly();
	PyErr_Clear();
}

/*
 * Our group's CPU time is read before we have ended, and the kernel adds what a process uses when it looks at it, at a tick at
 * the latest: to ask for it has it look.
 */
static void count_time(void)
{
	struct timespec used;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
}

_Noreturn void end_run(const struct server *s, PyObject *globals, PyObject *result)
{
	PyObject *modules = PySys_GetObject("modules");
	bool is_interrupted = false;
	int status;

	status = verdict(globals, result, &is_interrupted);
	Py_DECREF(globals);
	if (modules && PyDict_Check(modules)) {
		Py_INCREF(modules);
		join_threads(modules);
		call_quietly(find_atexit(s, modules), run_them);
	}
	if (!modules || !PyDict_Check(modules) || has_threads(s) || !flush_streams()) {
		if (Py_FinalizeEx() < 0)
			status = 120;
		if (!is_interrupted)
			exit(status);
	} else {
		(void)PyGC_Collect();
		clear_sys();
		clear_modules(s, modules);
		flush_quietly(); /* an interpreter's flush themselves when they are taken apart, and say nothing */
		clear_kept_sys(s);
	}
	if (is_interrupted) { /* as a shell expects it of a program that was interrupted */
		(void)signal(SIGINT, SIG_DFL);
		(void)kill(getpid(), SIGINT);
	}
	(void)fflush(NULL);
	count_time();
	_exit(status);
}
