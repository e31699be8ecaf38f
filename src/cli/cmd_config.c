/* SPDX-License-Identifier: Apache-2.0 */
/* cloche config check: is the configuration valid, and what does it come to. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macro.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/setup.h"

static const char usage[] =
	"Usage: cloche config check [FILE...]\n"
	"\n"
	"Checks the configuration and prints the settings in force, in the form of cloche.ini(5).  With FILEs: those\n"
	"alone, each over the one before, as if they stood in /etc/cloche.\n"
	"\n";

static const char examples[] =
	"\n"
	"Exit status: 0 valid; 2 not valid, and one line says where and why.\n"
	"\n"
	"Examples:\n"
	"  cloche config check\n"
	"  cloche config check /etc/cloche/cloche.ini\n";

static const char *yes(bool b)
{
	return b ? "yes" : "no";
}

static void print_list(const char *key, const struct conf_strings *s, const char *between)
{
	if (!s->n)
		return;
	(void)printf("%s = ", key);
	for (size_t i = 0; i < s->n; i++)
		(void)printf("%s%s", i ? between : "", s->items[i]);
	(void)putchar('\n');
}

/* @prefix: "" or "max_"; what is 0 is not set */
static void print_limits(const struct job_limits *l, const char *prefix)
{
	char number[48];

	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		uint64_t value = limit_get(l, &limit_defs[i]);

		if (value)
			(void)printf("%s%s = %s\n", prefix, limit_defs[i].name,
				     scaled_text(value, limit_scale(limit_defs[i].unit), number, sizeof(number)));
	}
}

static void print_environment(const struct conf_environment *env)
{
	(void)printf("\n[environment %s]\npython = %s\n", env->name, env->python);
	print_list("paths", &env->paths, ":");
	for (size_t i = 0; i < env->env.n; i++) {
		const char *setting = env->env.items[i];
		size_t name = strcspn(setting, "=");

		(void)printf("env.%.*s = %s\n", (int)name, setting, setting[name] ? setting + name + 1 : "");
	}
	if (env->preload.n)
		print_list("preload", &env->preload, " ");
	else
		(void)puts("preload ="); /* left out, it would be the default one */
	(void)printf("mode = %s\nfigures = %s\n", job_mode_name((enum job_mode)env->mode),
		     yes(env->keeps_figures));
	print_limits(&env->limits, "");
}

static void print_server(const struct conf_server *v)
{
	char number[48];

	(void)puts("\n[server]");
	if (v->max_running)
		(void)printf("max_running = %u\n", v->max_running);
	(void)printf("pool_min = %u\npool_max = %u\nzygote_max_runs = %u\n", v->pool_min, v->pool_max, v->zygote_max_runs);
	(void)printf("queue_max = %u\ngrace = %s\n", v->queue_max, scaled_text(v->grace_ns, NS_PER_SEC, number, sizeof(number)));
	(void)printf("share_zygotes = %s\ntenant_idle = %s\n", yes(v->share_zygotes),
		     scaled_text(v->tenant_idle_ns, NS_PER_SEC, number, sizeof(number)));
	(void)printf("log = %s\n", v->logs_json ? "json" : "text");
	if (v->group)
		(void)printf("group = %s\n", v->group);
}

static void print_http(const struct conf_http *h)
{
	char patience[48];

	if (!h->socket && !h->listen)
		return;
	(void)printf("\n[http]\n");
	if (h->socket)
		(void)printf("socket = %s\n", h->socket);
	if (h->listen)
		(void)printf("listen = %s\n", h->listen);
	(void)printf("behind_tls_proxy = %s\npatience = %s\n", yes(h->is_behind_tls_proxy),
		     scaled_text(h->patience_ns, NS_PER_SEC, patience, sizeof(patience)));
	print_list("allowed_hosts", &h->allowed_hosts, ", ");
	print_list("allowed_origins", &h->allowed_origins, ", ");
}

static void print_history(const struct conf_history *h)
{
	char age[48];

	(void)printf("\n[history]\nenabled = %s\n", yes(h->is_enabled));
	if (h->path)
		(void)printf("path = %s\n", h->path);
	(void)printf("max_age = %s\nmax_rows = %llu\nmax_bytes = %llu\n",
		     scaled_text(h->max_age_ns, NS_PER_SEC, age, sizeof(age)), (unsigned long long)h->max_rows,
		     (unsigned long long)h->max_bytes);
	(void)printf("store_scripts = %s\nstore_output = %s\n", yes(h->stores_scripts), yes(h->stores_output));
}

static void print(const struct conf *c)
{
	char number[48];

	(void)puts("[limits]");
	(void)printf("timeout = %s\n", scaled_text(c->rules.timeout_ns, NS_PER_SEC, number, sizeof(number)));
	(void)printf("max_timeout = %s\n", scaled_text(c->rules.max_timeout_ns, NS_PER_SEC, number, sizeof(number)));
	(void)printf("max_script_bytes = %llu\n", (unsigned long long)c->rules.max_script_bytes);
	print_limits(&c->rules.defaults, "");
	print_limits(&c->rules.max, "max_");
	for (size_t i = 0; i < c->n_environments; i++)
		print_environment(&c->environments[i]);
	if (c->screen_report.n || c->screen_reject.n)
		(void)puts("\n[screen]");
	print_list("report", &c->screen_report, ", ");
	print_list("reject", &c->screen_reject, ", ");
	if (c->require.n || c->allow_missing.n)
		(void)puts("\n[protect]");
	print_list("require", &c->require, ", ");
	print_list("allow_missing", &c->allow_missing, ", ");
	print_server(&c->server);
	print_http(&c->http);
	print_history(&c->history);
}

static int execute(struct options *o, struct settings *s, struct refusal *no, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_CONFIG, o, no);

	if (r < 0)
		return r;
	if (options_have(o, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_CONFIG);
		(void)fputs(examples, stdout);
		return 0;
	}
	if (o->n_operands < 1)
		return refuse(no, "argument", NULL, "check (cloche config check [FILE...])");
	if (strcmp(o->operands[0], "check") != 0)
		return refuse(no, "argument", o->operands[0], "check (cloche config check [FILE...])");
	r = o->n_operands > 1 ? setup_load_files(s, o->operands + 1, no) : setup_load(s, o, no);
	if (r == 0)
		print(&s->conf);
	return r;
}

int cmd_config(int argc, char **argv)
{
	struct options o = { .items = NULL };
	struct settings s = { .lists = NULL };
	struct refusal no = { .status = CLI_OK };
	int r = execute(&o, &s, &no, argc, argv);
	int status = r < 0 ? refusal_tell(&no, false) : CLI_OK;

	settings_done(&s);
	options_done(&o);
	return status;
}
