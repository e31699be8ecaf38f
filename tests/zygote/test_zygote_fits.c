/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macro.h"
#include "base/pack.h"
#include "run/zygote.h"

static char modules[] = "json\0json.decoder\0numpy.random\0re";
static char *env[] = { (char *)(uintptr_t) "PATH=/bin",
		       (char *)(uintptr_t) "HOME=/tmp",
		       (char *)(uintptr_t) "TZ=UTC",
		       (char *)(uintptr_t) "OMP_NUM_THREADS=1",
		       (char *)(uintptr_t) "PYTHON_CPU_COUNT=1",
		       (char *)(uintptr_t) "PYTHONUNBUFFERED=1",
		       NULL };

static struct zygote zygote(void)
{
	struct zygote z = ZYGOTE_EMPTY;

	z.python = (char *)(uintptr_t) "/usr/bin/python3";
	z.env = env;
	z.modules = modules;
	z.modules_len = sizeof(modules);
	z.version = 0x030b0000;
	z.is_plain = true;
	return z;
}

/* The bundle that fits, but for what is said: one more or one fewer of something. */
struct change {
	const char *file;    /* NULL: main.py */
	const char *python;  /* NULL: the zygote's */
	const char *env;     /* one more */
	const char *without; /* this one is left out */
};

static void add(struct pack *p, uint32_t kind, const char *name, const char *text)
{
	assert_int_equal(pack_add(p, kind, name, text, strlen(text)), 0);
}

static const char *ask(const struct zygote *z, const struct change *c, bool *ret_is_buffered)
{
	const char *python = c->python ? c->python : z->python;
	struct pack p = { 0 };
	const char *why;
	char path[64];

	(void)snprintf(path, sizeof(path), "/tmp/%s", c->file ? c->file : "main.py");
	add(&p, SANDBOX_EXEC, NULL, python);
	add(&p, SANDBOX_ARG, NULL, python);
	add(&p, SANDBOX_ARG, NULL, path);
	for (size_t i = 0; env[i]; i++) {
		if (!c->without || strcmp(env[i], c->without) != 0)
			add(&p, SANDBOX_ENV, NULL, env[i]);
	}
	if (c->env)
		add(&p, SANDBOX_ENV, NULL, c->env);
	add(&p, SANDBOX_FILE, c->file ? c->file : "main.py", "print(1)");
	why = zygote_fits(z, p.data, p.len, ret_is_buffered);
	pack_done(&p);
	return why;
}

static void fits(const struct change *c, bool expect_buffered)
{
	struct zygote z = zygote();
	bool is_buffered = !expect_buffered;

	assert_null(ask(&z, c, &is_buffered));
	assert_int_equal(is_buffered, expect_buffered);
}

static void refused(const struct change *c, const char *expect)
{
	struct zygote z = zygote();
	bool is_buffered = true;
	const char *why = ask(&z, c, &is_buffered);

	assert_non_null(why);
	assert_non_null(strstr(why, expect));
	assert_true(is_buffered); /* untouched */
}

static void test_plain(void **state)
{
	(void)state;
	fits(&(struct change) { 0 }, false);
	fits(&(struct change) { .without = "PYTHONUNBUFFERED=1" }, true);
	fits(&(struct change) { .env = "MINE=1" }, false);
	fits(&(struct change) { .without = "PATH=/bin", .env = "PATH=/usr/bin" }, false);
}

static void test_files(void **state)
{
	static const char *const good[] = {
		"other.py", "jsonx.py", "sub/json.py", "data.json", "numpyx/a.py", ".locals"
	};
	static const char *const bad[] = { "json.py", "json/a.py", "re.txt", "numpy/__init__.py", "numpy.py" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		fits(&(struct change) { .file = good[i] }, false);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refused(&(struct change) { .file = bad[i] }, "imported beforehand");
	refused(&(struct change) { .file = ".local/lib/x.py" }, "when it starts");
	refused(&(struct change) { .file = "main.pyc" }, ".pyc");
}

static void test_variables(void **state)
{
	static const char *const bad[] = {
		"PYTHONHASHSEED=0", "LD_PRELOAD=x",    "MALLOC_ARENA_MAX=1", "LC_TIME=C",
		"LANG=de",          "GLIBC_TUNABLES=", "OPENSSL_CONF=x",     "MPLBACKEND=svg"
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refused(&(struct change) { .env = bad[i] }, "starts");
	refused(&(struct change) { .without = "TZ=UTC", .env = "TZ=CET" }, "starts");
	refused(&(struct change) { .without = "TZ=UTC" }, "lacks");
	refused(&(struct change) { .without = "HOME=/tmp", .env = "HOME=/tmp/x" }, "starts");
	refused(&(struct change) { .without = "PYTHONUNBUFFERED=1", .env = "PYTHONUNBUFFERED=0" }, "PYTHONUNBUFFERED");
	refused(&(struct change) { .python = "/opt/python3" }, "another interpreter");
}

/* Numbers of threads are read by libraries when they are loaded, the number of CPUs by Python from 3.13 on. */
static void test_counts(void **state)
{
	const struct change threads = { .without = "OMP_NUM_THREADS=1", .env = "OMP_NUM_THREADS=2" };
	const struct change cpus = { .without = "PYTHON_CPU_COUNT=1", .env = "PYTHON_CPU_COUNT=2" };
	struct zygote z = zygote();
	bool is_buffered;

	(void)state;
	assert_null(ask(&z, &threads, &is_buffered));
	assert_null(ask(&z, &cpus, &is_buffered));
	z.is_plain = false;
	z.version = 0x030d0000;
	assert_non_null(ask(&z, &threads, &is_buffered));
	assert_non_null(ask(&z, &cpus, &is_buffered));
}

/* What modules from outside the standard library, matplotlib first of all, read when they are imported. */
static void test_configuration_of_modules(void **state)
{
	const struct change changes[] = { { .file = "matplotlibrc" }, { .file = ".config/matplotlib/matplotlibrc" },
					  { .file = ".matplotlib/x" }, { .env = "MATPLOTLIBRC=/tmp/x" },
					  { .env = "XDG_CONFIG_HOME=/tmp/x" } };
	struct zygote z = zygote();
	bool is_buffered;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		z.is_plain = true;
		assert_null(ask(&z, &changes[i], &is_buffered));
		z.is_plain = false;
		assert_non_null(ask(&z, &changes[i], &is_buffered));
	}
}

static void test_no_bundle(void **state)
{
	struct zygote z = zygote();
	bool is_buffered;

	(void)state;
	assert_non_null(zygote_fits(&z, "", 0, &is_buffered));
	assert_non_null(zygote_fits(&z, "\1\2\3\4\5\6\7", 7, &is_buffered));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),  cmocka_unit_test(test_files),     cmocka_unit_test(test_variables),
		cmocka_unit_test(test_counts), cmocka_unit_test(test_configuration_of_modules), cmocka_unit_test(test_no_bundle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
