/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "job/conf.h"
#include "job/request.h"

static int setup(void **state)
{
	struct conf *c = calloc(1, sizeof(*c));

	*state = c;
	return c ? conf_init(c) : -1;
}

static int teardown(void **state)
{
	conf_done(*state);
	free(*state);
	return 0;
}

static void takes(struct conf *c, const char *text)
{
	struct err e = { 0 };
	int r = conf_parse(c, text, strlen(text), "t.ini", true, &e);

	if (r != 0)
		fail_msg("%s\n gave %d: %s", text, r, e.msg);
}

static void refuses_as(struct conf *c, const char *text, bool is_trusted, const char *message)
{
	struct err e = { 0 };
	struct conf before = *c;
	int r = conf_parse(c, text, strlen(text), "t.ini", is_trusted, &e);

	if (r != -EINVAL || strcmp(e.msg, message) != 0)
		fail_msg("%s\n gave %d: %s\n not: %s", text, r, e.msg, message);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_memory_equal(c, &before, sizeof(before)); /* not even a pointer moved */
}

static void refuses(struct conf *c, const char *text, const char *message)
{
	refuses_as(c, text, true, message);
}

static void test_defaults(void **state)
{
	const struct conf *c = *state;
	struct err e;

	assert_int_equal(c->n_environments, 1);
	assert_string_equal(c->environments[0].name, "default");
	assert_string_equal(c->environments[0].python, "/usr/bin/python3");
	assert_int_equal(c->rules.defaults.memory_bytes, 512 << 20);
	assert_int_equal(c->rules.n_profiles, 1);
	assert_string_equal(c->rules.profiles[0].name, "default");
	assert_ptr_equal(conf_environment(c, "default"), &c->environments[0]);
	assert_null(conf_environment(c, "other"));
	assert_int_equal(conf_check(c, &e), 0);
}

static void test_everything(void **state)
{
	struct conf *c = *state;
	const struct conf_environment *v;
	struct err e;

	takes(c, "\xef\xbb\xbf# a comment\r\n[limits]\r\nmemory_bytes = 256m ; as ever\r\nmax_memory_bytes: "
		 "1.5g\r\ncpu_seconds = 10\n"
		 "cpus = 0.5\nprocesses=5\nmax_processes = none\ntimeout = 2m\nmax_timeout = 1h\nmax_script_bytes = "
		 "64k\n\n"
		 "[environment sci]\npython = /opt/sci/bin/python\npaths = /opt/data:/srv/models\n  /opt/more\n"
		 "env.OMP_NUM_THREADS = 1\nenv.X = a = b\npreload = json, re\n\tnumpy.linalg\nmode = warm\ndisk_bytes "
		 "= 1g\n"
		 "[environment default]\npython = /usr/bin/python3.11\nfigures = no\n"
		 "[screen]\nreport = ctypes, os.system\nreject = \n  ; within a list\n  subprocess\n"
		 "[protect]\nrequire = cgroup, landlock\nallow_missing = landlock\n");
	assert_int_equal(c->rules.defaults.memory_bytes, 256 << 20);
	assert_int_equal(c->rules.max.memory_bytes, 3 << 29);
	assert_int_equal(c->rules.defaults.cpu_ns, 10 * NS_PER_SEC);
	assert_int_equal(c->rules.defaults.cpu_milli, 500);
	assert_int_equal(c->rules.defaults.processes, 5);
	assert_int_equal(c->rules.max.processes, 0);
	assert_int_equal(c->rules.timeout_ns, 120 * NS_PER_SEC);
	assert_int_equal(c->rules.max_timeout_ns, 3600 * NS_PER_SEC);
	assert_int_equal(c->rules.max_script_bytes, 65536);
	assert_int_equal(c->n_environments, 2);
	assert_string_equal(c->environments[0].python, "/usr/bin/python3.11");
	v = conf_environment(c, "sci");
	assert_non_null(v);
	assert_string_equal(v->python, "/opt/sci/bin/python");
	assert_int_equal(v->paths.n, 3);
	assert_string_equal(v->paths.items[2], "/opt/more");
	assert_int_equal(v->env.n, 2);
	assert_string_equal(v->env.items[1], "X=a = b");
	assert_int_equal(v->preload.n, 3);
	assert_string_equal(v->preload.items[0], "json");
	assert_string_equal(v->preload.items[2], "numpy.linalg");
	assert_int_equal(v->mode, JOB_MODE_WARM);
	assert_true(v->keeps_figures);
	assert_false(c->environments[0].keeps_figures);
	assert_int_equal(v->limits.disk_bytes, 1 << 30);
	assert_int_equal(v->limits.memory_bytes, 0);
	assert_int_equal(c->screen_report.n, 2);
	assert_string_equal(c->screen_report.items[1], "os.system");
	assert_int_equal(c->screen_reject.n, 1);
	assert_int_equal(c->require.n, 2);
	assert_string_equal(c->allow_missing.items[0], "landlock");
	assert_int_equal(c->rules.n_profiles, 2);
	assert_string_equal(c->rules.profiles[1].name, "sci");
	assert_int_equal(c->rules.profiles[1].limits.disk_bytes, 1 << 30);
	assert_int_equal(conf_check(c, &e), 0);
}

/* A later file replaces single values and whole lists, and leaves the rest. */
static void test_server(void **state)
{
	struct conf *c = *state;

	assert_false(c->server.share_zygotes);
	assert_int_equal(c->server.tenant_idle_ns, 60 * NS_PER_SEC);
	takes(c, "[server]\nshare_zygotes = yes\ntenant_idle = 250ms\n");
	assert_true(c->server.share_zygotes);
	assert_int_equal(c->server.tenant_idle_ns, 250 * NS_PER_MS);
	takes(c, "[server]\nshare_zygotes = no\n");
	assert_false(c->server.share_zygotes);
}

static void test_layers(void **state)
{
	struct conf *c = *state;
	struct err e;

	takes(c, "[limits]\nprocesses = 5\ncpus = 2\n[screen]\nreport = a, b\n[environment x]\nenv.A = 1\nenv.B = 2\n");
	takes(c, "[limits]\nprocesses = 6\n[screen]\nreport = c\nreport = d\n[environment x]\nenv.A = 3\n");
	assert_int_equal(c->rules.defaults.processes, 6);
	assert_int_equal(c->rules.defaults.cpu_milli, 2000);
	assert_int_equal(c->screen_report.n, 2);
	assert_string_equal(c->screen_report.items[0], "c");
	assert_string_equal(c->environments[1].env.items[0], "A=3");
	assert_string_equal(c->environments[1].env.items[1], "B=2");
	assert_int_equal(conf_set(c, "screen", "report", "", "CLOCHE_SCREEN_REPORT", true, &e), 0);
	assert_int_equal(c->screen_report.n, 0);
	assert_int_equal(conf_set(c, "limits", "memory_bytes", "1g", "flag", false, &e), 0);
	assert_int_equal(c->rules.defaults.memory_bytes, 1 << 30);
	assert_int_equal(conf_set(c, "limits", "cpu_seconds", "none", "flag", false, &e), 0);
	assert_int_equal(conf_set(c, "environment y", "mode", "cold", "flag", false, &e), 0);
	assert_int_equal(c->n_environments, 3);
}

static void test_set_refusals(void **state)
{
	struct conf *c = *state;
	struct err e = { 0 };

	assert_int_equal(conf_set(c, "limits", "memory_bytes", "5q", "CLOCHE_LIMITS_MEMORY_BYTES", true, &e), -EINVAL);
	assert_string_equal(
		e.msg,
		"CLOCHE_LIMITS_MEMORY_BYTES: limits.memory_bytes: \"5q\" is not allowed: a whole number, at least "
		"16777216, at most 1125899906842624 bytes");
	assert_int_equal(conf_set(c, "limits", "max_cpus", "1", "flag", false, &e), -EINVAL);
	assert_string_equal(
		e.msg,
		"flag: limits.max_cpus: \"1\" is not allowed: maxima are set by the administrator's configuration "
		"alone");
	assert_int_equal(conf_set(c, "nope", "a", "b", "flag", true, &e), -EINVAL);
	assert_string_equal(
		e.msg,
		"flag: [nope] is an unknown section: known are [limits], [environment NAME], [screen], [protect], "
		"[server], [http], [history]");
	assert_int_equal(c->n_environments, 1);
}

static void test_refusals(void **state)
{
	struct conf *c = *state;

	refuses(c, "[limits]\n\nmemory_bytes = 1k\n",
		"t.ini:3: limits.memory_bytes: \"1k\" is not allowed: a whole number, at least "
		"16777216, at most 1125899906842624 bytes");
	refuses(c, "[limits]\nmemory_byte = 1g\n",
		"t.ini:2: limits.memory_byte is an unknown setting: the nearest known one is memory_bytes");
	refuses(c, "[limits]\nmax_proceses = 1\n",
		"t.ini:2: limits.max_proceses is an unknown setting: the nearest known one is max_processes");
	refuses(c, "[limits]\nprocesses = none\n",
		"t.ini:2: limits.processes: \"none\" is not allowed: a whole number, at least 1, at most 4194304 "
		"processes");
	refuses(c, "[limits]\ntimeout = 0\n",
		"t.ini:2: limits.timeout: \"0\" is not allowed: a time like 10, 1.5, 250ms, 2m or 1h, "
		"more than 0, at most 100000000 seconds");
	refuses(c, "[limits]\nmax_script_bytes = 1g\n",
		"t.ini:2: limits.max_script_bytes: \"1g\" is not allowed: at least 1, at most 67108864 bytes");
	refuses(c, "[limits]\ncpus = 1\nprocesses = 2\ncpus = 1\n",
		"t.ini:4: limits.cpus is given twice (an indented line goes on with the setting above it)");
	refuses(c, "[limits]\n  cpus = 1\n  processes = 2\n",
		"t.ini:3: limits.cpus is given twice (an indented line goes on with the setting above it)");
	refuses(c, "[screen]\nreport = os..system\n",
		"t.ini:2: screen.report: \"os..system\" is not allowed: names of modules and calls");
	refuses(c, "[screen]\n report = a\n reject = b\n",
		"t.ini:3: screen.report: \"reject = b\" is not allowed: names of modules and calls");
	refuses(c, "[screen]\nignore = a\n", "t.ini:2: screen.ignore is an unknown setting: known are report, reject");
	refuses(c, "[protect]\nrequire = Cgroup!\n",
		"t.ini:2: protect.require: \"Cgroup!\" is not allowed: names of protections");
	refuses(c, "[environment x]\npython = python3\n",
		"t.ini:2: environment x.python: \"python3\" is not allowed: the absolute path of an interpreter");
	refuses(c, "[environment x]\npaths = /a:b\n",
		"t.ini:2: environment x.paths: \"/a:b\" is not allowed: absolute paths with \":\" between them");
	refuses(c, "[environment x]\nmode = hot\n",
		"t.ini:2: environment x.mode: \"hot\" is not allowed: auto, warm or cold");
	refuses(c, "[server]\nshare_zygotes = often\n",
		"t.ini:2: server.share_zygotes: \"often\" is not allowed: yes or no");
	refuses(c, "[server]\ntenant_idle = 0\n",
		"t.ini:2: server.tenant_idle: \"0\" is not allowed: a time like 10, 1.5, 250ms, 2m or 1h, more than 0, "
		"at most 100000000 seconds");
	refuses(c, "[environment x]\nenv.1 = a\n",
		"t.ini:2: environment x.env.1: \"a\" is not allowed: env.NAME with a name of "
		"letters, digits and \"_\", not beginning with a digit");
	refuses(c, "[environment x]\nmemory = 1g\n",
		"t.ini:2: environment x.memory is an unknown setting: the nearest known one is memory_bytes");
}

static void test_form(void **state)
{
	struct conf *c = *state;
	char text[600];
	struct err e;

	refuses(c, "cpus = 1\n",
		"t.ini:1: [] is an unknown section: known are [limits], [environment NAME], [screen], [protect], "
		"[server], [http], [history]");
	refuses(c, "[limit]\n",
		"t.ini:1: [limit] is an unknown section: known are [limits], [environment NAME], [screen], [protect], "
		"[server], [http], [history]");
	refuses(c, "\n [limit]\n",
		"t.ini:2: [limit] is an unknown section: known are [limits], [environment NAME], [screen], [protect], "
		"[server], [http], [history]");
	refuses(c, "[limits\n", "t.ini:1: a section is [NAME] alone on its line");
	refuses(c, "[limits] cpus = 1\n", "t.ini:1: a section is [NAME] alone on its line");
	refuses(c, "[environment a/b]\n",
		"t.ini:1: [environment a/b] is not allowed: an environment's name is 1 to 32 of A-Z, a-z, 0-9, "
		"\".\", \"_\", \"-\", not beginning with \".\" or \"-\"");
	refuses(c, "[limits]\ncpus\n", "t.ini:2: neither a [section] nor NAME = VALUE");
	refuses(c, "[environment x]\nenv.A23456789012345678901234567890123456789012345678 = a\n",
		"t.ini:2: a setting's name has at most 49 bytes");
	(void)snprintf(text, sizeof(text), "[limits]\n# %0250d\ncpus = %0250d\n", 1, 1);
	assert_int_equal(conf_parse(c, text, strlen(text), "t.ini", true, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "t.ini:3: a line has at most"));
	assert_int_equal(conf_parse(c, "[limits]\ncpus = 1\0\n", 19, "t.ini", true, &e), -EINVAL);
	assert_string_equal(e.msg, "t.ini: a configuration is text without NUL");
	takes(c, "[limits] ; none yet\n[screen]\r\n");
	takes(c, "[limits]\ncpus = 3"); /* no newline at the end */
	assert_int_equal(c->rules.defaults.cpu_milli, 3000);
	takes(c, "");
	takes(c, "\n\n   \n;\n");
}

static void test_untrusted(void **state)
{
	struct conf *c = *state;

	refuses_as(c, "[limits]\ncpus = 1\nmax_timeout = 1h\n", false,
		   "t.ini:3: limits.max_timeout: \"1h\" is not allowed: maxima are set by the administrator's "
		   "configuration alone");
	refuses_as(c, "[limits]\nmax_script_bytes = 5\n", false,
		   "t.ini:2: limits.max_script_bytes: \"5\" is not allowed: maxima are set by the administrator's "
		   "configuration alone");
	assert_int_equal(c->rules.defaults.cpu_milli, 1000);
}

static void test_check(void **state)
{
	struct conf *c = *state;
	struct err e = { 0 };

	takes(c, "[limits]\nmax_memory_bytes = 256m\n");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_string_equal(e.msg, "limits.memory_bytes is 536870912: above max_memory_bytes, which is 268435456");
	takes(c, "[limits]\nmemory_bytes = 256m\nmax_cpus = 2\n[environment x]\ncpus = 2.5\n");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_string_equal(e.msg, "environment x.cpus is 2.5: above max_cpus, which is 2");
	takes(c, "[environment x]\ncpus = 2\n[limits]\nmax_timeout = 30\n");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_string_equal(e.msg, "limits.timeout is 60: above max_timeout, which is 30");
	takes(c, "[limits]\ntimeout = 30\n");
	assert_int_equal(conf_check(c, &e), 0);
	for (int i = 2; i < CONF_ENVIRONMENTS_MAX; i++) { /* with default and x */
		char text[48];

		(void)snprintf(text, sizeof(text), "[environment e%d]\ncpus = 1\n", i);
		takes(c, text);
	}
	assert_int_equal(conf_check(c, &e), 0);
	takes(c, "[environment one_more]\ncpus = 1\n");
	assert_int_equal(conf_check(c, &e), -EINVAL);
	assert_string_equal(e.msg, "33 environments: at most 32 are allowed");
}

/* What is set takes the default's place, nothing at all, too; a copy has it once. */
static void test_preload(void **state)
{
	struct conf *c = *state;
	const struct conf_environment *v;
	size_t n = 0;

	while (conf_default_preload[n])
		n++;
	assert_int_equal(c->environments[0].preload.n, n);
	assert_string_equal(c->environments[0].preload.items[n - 1], conf_default_preload[n - 1]);
	takes(c, "[environment default]\npreload =\n[environment x]\ncpus = 1\n[environment y]\npreload = re\n");
	v = conf_environment(c, "default");
	assert_non_null(v);
	assert_int_equal(v->preload.n, 0);
	v = conf_environment(c, "x");
	assert_non_null(v);
	assert_int_equal(v->preload.n, n);
	v = conf_environment(c, "y");
	assert_non_null(v);
	assert_int_equal(v->preload.n, 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_defaults), T(test_everything), T(test_preload), T(test_server), T(test_layers),    T(test_set_refusals),
		T(test_refusals), T(test_form),       T(test_untrusted), T(test_check),
	};

	return cmocka_run_group_tests_name("job/conf", tests, NULL, NULL);
}
