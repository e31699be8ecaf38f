/* SPDX-License-Identifier: Apache-2.0 */
/*
 * _cloche: the fork server's C half, an extension module for any CPython from 3.9 on.
 *
 * Theory of operation.  inside/zygote.py imports the environment's modules and calls serve(), which never returns. From
 * then on there is one thread, no Python frame, and a thread state without history, so that a script in a child finds
 * the whole recursion depth and nothing below its own first frame.
 *
 * A child is made by a raw clone3 with CLONE_PARENT: it is the supervisor's own child, whose waitid is the verdict. The
 * C library does not know of it; what it keeps about its thread (thread id, list of robust mutexes) is put right by
 * hand. The order for each child: PyOS_BeforeFork, the sandbox's process namespace, clone3, lock-down (C alone: no
 * allocation, no lock, no Python), PyOS_AfterFork_Child, new random states, park.
 */
#include "zygote/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/inside.h"

#define FDS_MIN             5 /* init, 0, 1, 2, job socket */
#define VERSION_FIRST_STATE 0x030d0000u

/* /proc/self/task has two links and one for each thread. */
static bool is_single(const struct server *s)
{
	struct stat st;

	return fstat(s->tasks, &st) == 0 && st.st_nlink == 3;
}

static pid_t clone_raw(const struct server *s, const struct zygote_fork *f, const int *fds, size_t n_fds)
{
	struct clone_args a = {
		.flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
		.child_tid = (uintptr_t)s->tid,
	};
	long pid;

	if (f->is_cgroup_v2 && n_fds > FDS_MIN) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint32_t)fds[FDS_MIN];
	}
	pid = syscall(SYS_clone3, &a, sizeof(a));
	if (pid == 0)
		(void)syscall(SYS_set_robust_list, s->robust, s->robust_len);
	return (pid_t)pid;
}

/* Return: the child's pid, or -errno */
static int serve_fork(const struct server *s, const struct zygote_fork *f, const int *fds, size_t n_fds)
{
	int r;

	if (n_fds < FDS_MIN || n_fds > FDS_MIN + CGROUP_HIERARCHIES)
		return -EBADMSG;
	if (!is_single(s))
		return -EDEADLK;
	if (setns(fds[0], CLONE_NEWPID) < 0)
		return -errno;
	PyOS_BeforeFork();
	r = clone_raw(s, f, fds, n_fds);
	if (r == 0)
		child_begin(s, f, fds, n_fds);
	if (r < 0)
		r = -errno;
	PyOS_AfterFork_Parent();
	/* an ended sandbox's namespace must not be kept alive by us */
	if (setns(s->pid_ns, CLONE_NEWPID) < 0)
		_exit(1);
	return r;
}

static _Noreturn void serve_loop(const struct server *s)
{
	for (;;) {
		struct zygote_forked answer = { .word = ZYGOTE_FORKED };
		int fds[FD_MAX_PASSED];
		struct zygote_fork f;
		size_t n_fds = 0;
		ssize_t n;
		int r;

		n = fd_recv(ZYGOTE_CONTROL, &f, sizeof(f), fds, &n_fds);
		if (n == -EINTR)
			continue;
		if ((size_t)n != sizeof(f) || f.word != ZYGOTE_FORK)
			_exit(n == 0 ? 0 : 1);
		r = serve_fork(s, &f, fds, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			fd_close(&fds[i]);
		answer.tag = f.tag;
		answer.pid = r > 0 ? r : 0;
		answer.sys = r > 0 ? 0 : -r;
		if (fd_send(ZYGOTE_CONTROL, &answer, sizeof(answer), NULL, 0) < 0)
			_exit(0);
		if (r == -EDEADLK)
			_exit(1); /* a fork of several threads would be a lie: the supervisor starts another zygote */
	}
}

/* @fresh takes the place of the current thread state, which is given back. */
static void replace_state(PyThreadState *fresh)
{
	PyThreadState *old = PyThreadState_Swap(fresh);

	PyThreadState_Clear(old);
	PyThreadState_Delete(old);
}

/* In every interpreter since 3.7, but not in the limited API. */
PyAPI_FUNC(PyObject *) PyContext_CopyCurrent(void) __attribute__((weak));
PyAPI_FUNC(int) PyContext_Enter(PyObject *) __attribute__((weak));

/* What modules keep for the thread that has imported them (threading.local, context variables) is the script's thread's. */
struct thread_values {
	PyObject *locals;
	PyObject *context;
};

static struct thread_values take_values(void)
{
	PyObject *locals = PyThreadState_GetDict();
	struct thread_values v = { .locals = locals ? PyDict_Copy(locals) : NULL };

	if (PyContext_CopyCurrent && PyContext_Enter)
		v.context = PyContext_CopyCurrent();
	if (v.context && PyObject_Size(v.context) == 0)
		Py_CLEAR(v.context);
	PyErr_Clear();
	return v;
}

static void put_values(struct thread_values *v)
{
	PyObject *locals = PyThreadState_GetDict();

	if (locals && v->locals)
		(void)PyDict_Update(locals, v->locals);
	if (v->context)
		(void)PyContext_Enter(v->context);
	PyErr_Clear();
	Py_CLEAR(v->locals);
	Py_CLEAR(v->context);
}

/*
 * A thread state that never ran anything takes the place of the one that imported the modules.
 *
 * Twice: up to 3.11 the thread's own state (PyGILState) is taken only by one that is made when the old one is gone.
 * From 3.13 on the first state of all is the one that Py_Finalize insists on; it is part of the interpreter and given
 * out again when there is no other.
 */
static void forget_history(uint32_t version)
{
	PyInterpreterState *interpreter = PyInterpreterState_Get();
	struct thread_values values = take_values();
	PyThreadState *helper = PyThreadState_New(interpreter);

	replace_state(helper);
	if (version < VERSION_FIRST_STATE) {
		replace_state(PyThreadState_New(interpreter));
	} else {
		PyThreadState_Clear(helper);
		(void)PyThreadState_Swap(NULL);
		PyThreadState_Delete(helper);
		(void)PyThreadState_Swap(PyThreadState_New(interpreter));
	}
	put_values(&values);
}

static PyObject *fail(const char *what)
{
	PyErr_Format(PyExc_OSError, "%s: %s", what, strerror(errno));
	return NULL;
}

static bool learn_size(struct server *s)
{
	PyObject *size = PyObject_GetAttrString((PyObject *)&PyDict_Type, "__basicsize__");
	long n = size ? PyLong_AsLong(size) : -1;

	Py_XDECREF(size);
	s->dict_size = (size_t)n;
	return n > (long)sizeof(PyObject) && n <= DICT_MAX;
}

static bool is_named(PyObject *o, const char *name)
{
	PyObject *is = o ? PyObject_GetAttrString(o, "__name__") : NULL;
	bool is_same = is && PyUnicode_Check(is) && PyUnicode_CompareWithASCIIString(is, name) == 0;

	Py_XDECREF(is);
	PyErr_Clear();
	return is_same;
}

static void learn_hooks(struct server *s)
{
	PyObject *hooks = PySys_GetObject("path_hooks");

	s->has_plain_hooks = hooks && PyList_Check(hooks) && PyList_Size(hooks) == 2 &&
			     is_named(PyList_GetItem(hooks, 0), "zipimporter") &&
			     is_named(PyList_GetItem(hooks, 1), "path_hook_for_FileFinder");
}

/* What a process must be before it may fork scripts. */
static PyObject *prepare(struct server *s)
{
	struct rlimit core = { 1, 1 }; /* 1, not 0: see sandbox/inside.c */

	if (getpid() < ZYGOTE_PID_MIN) {
		errno = ERANGE;
		return fail("the process id is too low");
	}
	s->tasks = open("/proc/self/task", O_PATH | O_DIRECTORY | O_CLOEXEC);
	s->pid_ns = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	if (s->tasks < 0 || s->pid_ns < 0)
		return fail("/proc/self");
	if (!is_single(s)) {
		errno = EDEADLK;
		return fail("the imported modules have started threads");
	}
	if (prctl(PR_GET_TID_ADDRESS, &s->tid, 0, 0, 0) < 0 || !s->tid || *s->tid != getpid())
		return fail("the thread id's address");
	if (syscall(SYS_get_robust_list, 0, &s->robust, &s->robust_len) < 0)
		return fail("the list of robust mutexes");
	for (int i = 1; i < NSIG; i++) {
		if (sigaction(i, NULL, &s->signals[i]) == 0 && (s->signals[i].sa_handler != SIG_DFL || s->signals[i].sa_flags))
			s->handled |= UINT64_C(1) << (i - 1);
	}
	if (setrlimit(RLIMIT_CORE, &core) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return fail("hide the process");
	if (inside_load_filters() < 0)
		return fail("load the filters");
	return Py_None;
}

static PyObject *serve(PyObject *self, PyObject *args)
{
	struct server s = { .tasks = -1, .pid_ns = -1 };
	struct zygote_modules ready = { .word = ZYGOTE_READY };
	PyObject *modules = PySys_GetObject("modules");
	const char *names;
	const char *paths;
	Py_ssize_t len;
	Py_ssize_t paths_len;
	unsigned n_failed;
	int is_plain;

	(void)self;
	if (!PyArg_ParseTuple(args, "OOOOs#Ipy#", &s.dress, &s.reseed, &s.enable_gc, &s.gc_callbacks, &names, &len, &n_failed, &is_plain, &paths,
			      &paths_len))
		return NULL;
	if (len > ZYGOTE_NAMES || paths_len > ZYGOTE_PATHS)
		return PyErr_Format(PyExc_ValueError, "too many modules");
	s.version = (uint32_t)PyLong_AsUnsignedLong(PySys_GetObject("hexversion"));
	ready.version = s.version;
	memcpy(ready.names, names, (size_t)len);
	memcpy(ready.names + len, paths, (size_t)paths_len);
	ready.len = (uint32_t)len;
	ready.paths_len = (uint32_t)paths_len;
	ready.n_failed = n_failed;
	ready.is_plain = (uint8_t)is_plain;
	s.kept = modules ? PyDict_Copy(modules) : NULL;
	/* __main__ becomes the script's: it must have no other owner than sys.modules, so that it ends when it is
	 * dropped */
	if (!s.kept || PyDict_DelItemString(s.kept, "__main__") < 0 || !learn_size(&s) || !prepare(&s))
		return NULL;
	learn_hooks(&s);
	forget_history(s.version);
	if (settle(&s) < 0)
		_exit(1);
	if (fd_send(ZYGOTE_CONTROL, &ready, offsetof(struct zygote_modules, names) + (size_t)(len + paths_len), NULL,
		    0) < 0)
		_exit(0);
	serve_loop(&s);
}

static PyObject *setup(PyObject *self, PyObject *args)
{
	struct zygote_modules m;
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n;

	(void)self;
	(void)args;
	(void)close(ZYGOTE_EXTENSION);
	memory_begin();
	if (fd_cloexec(ZYGOTE_CONTROL, true) < 0)
		return fail("the control socket");
	n = fd_recv(ZYGOTE_CONTROL, &m, sizeof(m), fds, &n_fds);
	if (n < (ssize_t)offsetof(struct zygote_modules, names) || m.word != ZYGOTE_SETUP ||
	    m.len != (size_t)n - offsetof(struct zygote_modules, names))
		_exit(1);
	return PyUnicode_DecodeFSDefaultAndSize(m.names, (Py_ssize_t)m.len);
}

static PyObject *rehearse(PyObject *self, PyObject *args)
{
	const char *path;
	PyObject *globals;

	(void)self;
	if (!PyArg_ParseTuple(args, "sO!", &path, &PyDict_Type, &globals))
		return NULL;
	return run_stream(fopen(path, "rbe"), path, globals);
}

static PyMethodDef methods[] = {
	{ "setup", setup, METH_NOARGS, "setup() -> the names of the modules to import, each with a NUL" },
	{ "rehearse", rehearse, METH_VARARGS, "rehearse(path, globals): run a file as a script is run" },
	{ "serve", serve, METH_VARARGS, "serve(dress, reseed, gc.enable, gc.callbacks, names, n_failed, is_plain, paths): never returns" },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_cloche",
	.m_methods = methods,
};

PyMODINIT_FUNC PyInit__cloche(void); /* the interpreter looks it up by name */

PyMODINIT_FUNC PyInit__cloche(void)
{
	return PyModuleDef_Init(&definition);
}
