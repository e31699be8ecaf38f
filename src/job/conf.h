/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "job/limits.h"

/*
 * Configuration, cloche.ini(5).  Text in, struct out; files and the process environment are read by the caller.
 *
 *	[limits]                      NAME = default, max_NAME = maximum, timeout, max_timeout, max_script_bytes
 *	[environment NAME]            python = /path, paths = /opt/data:/srv/models (extra read-only paths), env.K = V,
 *	                              preload = json re, mode = auto|warm|cold, figures = yes|no, and any of [limits]'
 *	                              NAME
 *	[screen]                      report = ctypes, os.system   reject = ...
 *	[protect]                     require = cgroup, landlock   allow_missing = ...
 *	[server]                      max_running = 4, queue_max = 128, grace = 10, group = NAME, pool_min = 2,
 *	                              pool_max = 16, zygote_max_runs = 1000, share_zygotes = no, tenant_idle = 60,
 *	                              log = text|json
 *	[http]                        socket = /path, listen = 127.0.0.1:7411, behind_tls_proxy = no, patience = 10,
 *	                              allowed_hosts = run.example.org, allowed_origins = https://run.example.org
 *	[history]                     enabled = yes, path = /path, max_age = 30d, max_rows = 100000, max_bytes = 256m,
 *	                              store_scripts = yes, store_output = yes
 */
struct conf_strings {
	char **items; /* owned, each owned */
	size_t n;
};

extern const char *const conf_default_preload[]; /* NULL-terminated */

#define CONF_ENVIRONMENTS_MAX 32 /* each has files of its own in every supervisor */

struct conf_environment {
	char *name;
	char *python;               /* absolute path */
	struct conf_strings paths;  /* absolute, read-only inside */
	struct conf_strings env;    /* "K=V" */
	struct conf_strings preload; /* conf_default_preload where nothing is set */
	int mode;                   /* enum job_mode */
	bool keeps_figures;         /* what matplotlib shows becomes artifacts */
	struct job_limits limits;   /* 0 in a field: not set here */
};

/* What a server keeps to; see cloche.ini(5). */
struct conf_server {
	uint32_t max_running; /* runs at the same time; 0: the number of CPUs */
	uint32_t queue_max;   /* requests that wait */
	uint64_t grace_ns;    /* what runs get to end by themselves when the server stops */
	uint32_t pool_min;    /* sandboxes kept ready for each environment, at least */
	uint32_t pool_max;    /* ... and at most; 0: every run is cold */
	uint32_t zygote_max_runs; /* until another interpreter takes its place */
	bool share_zygotes;       /* among tenants */
	uint64_t tenant_idle_ns;  /* what is kept ready for a tenant goes after so long without a run */
	bool logs_json;       /* lines of the log are JSON objects */
	char *group;          /* owned; who besides root may use root's socket; NULL: nobody */
};

/* Where a server's HTTP door listens, and whom it believes; see cloche-http(7). */
struct conf_http {
	char *socket; /* owned; absolute path; NULL: none */
	char *listen; /* owned; HOST:PORT; NULL: none */
	bool is_behind_tls_proxy;
	uint64_t patience_ns; /* what a client gets to send a request's head */
	struct conf_strings allowed_hosts;
	struct conf_strings allowed_origins;
};

/* What a server writes down about its runs; see cloche.ini(5). */
struct conf_history {
	bool is_enabled;
	char *path; /* owned; absolute; NULL: the usual place */
	uint64_t max_age_ns;
	uint64_t max_rows;
	uint64_t max_bytes;
	bool stores_scripts;
	bool stores_output;
};

struct conf {
	struct job_rules rules;
	struct conf_environment *environments; /* [0] is "default": /usr/bin/python3 unless configured */
	size_t n_environments;
	struct job_profile *profiles; /* owned; what rules.profiles points to */
	struct conf_strings screen_report;
	struct conf_strings screen_reject;
	struct conf_strings require;
	struct conf_strings allow_missing;
	struct conf_server server;
	struct conf_http http;
	struct conf_history history;
};

int conf_init(struct conf *c) MUST_CHECK;
void conf_done(struct conf *c);

/*
 * conf_parse() - lay the settings of one file's text over @c
 * @source:  its name, for messages ("/etc/cloche/cloche.ini:12: ...")
 * @is_trusted: false: max_* settings are refused (a local user can't raise what the administrator allows)
 *
 * Return: 0 or -EINVAL with @e naming file, line, key, what was given and what is allowed; -ENOMEM.  On failure @c is unchanged.
 */
int conf_parse(struct conf *c, const char *text, size_t len, const char *source, bool is_trusted,
	       struct err *e) MUST_CHECK;

/*
 * conf_set() - one setting, as CLOCHE_<SECTION>_<KEY>=VALUE or a flag gives it ("limits", "memory_bytes", "512m")
 *
 * Return: as conf_parse().
 */
int conf_set(struct conf *c, const char *section, const char *key, const char *value, const char *source,
	     bool is_trusted, struct err *e) MUST_CHECK;

/* conf_check() - what only the whole can show: a default above its maximum, ... */
int conf_check(const struct conf *c, struct err *e) MUST_CHECK;

/* conf_environment() - by name; NULL: not there */
const struct conf_environment *conf_environment(const struct conf *c, const char *name);
