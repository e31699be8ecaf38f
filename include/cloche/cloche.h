/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * libcloche - run a Python script that nobody has reviewed in a fresh sandbox, and learn what happened
 *
 *	struct cloche_error e;
 *	struct cloche *c;
 *	char *result;
 *
 *	if (cloche_open(NULL, &c, &e) < 0)
 *		errx(1, "%s", e.message);
 *	if (cloche_run(c, "{\"script_content\": \"print(1)\"}", 30, NULL, &result, &e) == 0) {
 *		puts(result);
 *		cloche_free(result);
 *	}
 *	cloche_close(c);
 *
 * Requests and results are the JSON objects of the manual page cloche(1), the same through every door.
 *
 * The library never forks in its caller: it starts the program cloche-supervisor with posix_spawn(3) and talks to it over
 * a socket, so that a program with threads may use it.  One struct cloche belongs to one thread at a time; several may be
 * open.  No function is async-signal-safe.  SIGPIPE is never raised.
 */
struct cloche;

enum cloche_code {
	CLOCHE_OK = 0,
	CLOCHE_INVALID = -1,   /* the request or the configuration breaks a rule; nothing ran */
	CLOCHE_NOT_FOUND = -2, /* the environment or its interpreter does not exist */
	CLOCHE_ACCESS = -3,    /* the interpreter can't be executed */
	CLOCHE_HOST = -4,      /* this machine can't run sandboxes as asked; the message has the remedy */
	CLOCHE_BUG = -5,       /* a fault of cloche */
};

struct cloche_error {
	int code;          /* enum cloche_code */
	char message[512]; /* one sentence, whole in itself, NUL-terminated */
};

/*
 * cloche_open() - read the configuration and start a supervisor
 * @configuration: text in the form of cloche.ini(5), laid over /etc/cloche/cloche.ini; NULL: none.  Maxima are taken from
 *                 /etc/cloche/cloche.ini alone
 * @ret:           set on success; ended by cloche_close()
 * @e:             filled on failure; may not be NULL
 *
 * Returns before the supervisor is ready: what the host lacks is told by the first cloche_run().
 * Return: 0 or a negative enum cloche_code.
 */
int cloche_open(const char *configuration, struct cloche **ret, struct cloche_error *e);

/* cloche_close() - end the supervisor with everything in it and wait for its end; takes NULL */
void cloche_close(struct cloche *c);

/* What a caller may want to see while a script runs. */
struct cloche_hooks {
	void *userdata;
	/*
	 * Output as it comes; @stream: 1 stdout, 2 stderr; @data is valid during the call.  The result then has empty
	 * stdout and stderr.  Return: 0 to go on, negative to cancel the run.
	 */
	int (*on_output)(void *userdata, int stream, const void *data, size_t len);
};

/*
 * cloche_run() - run one script in a fresh sandbox and wait for it
 * @request:    a JSON object of @len bytes; borrowed for the call
 * @hooks:      borrowed for the call; NULL: none
 * @ret_result: the result, one JSON object, NUL-terminated; released by cloche_free().  With CLOCHE_INVALID it is the
 *              object {"error": {"field", "given", "allowed", "message"}}
 * @e:          filled on failure; may not be NULL
 *
 * Blocks until the script has ended: at most its timeout and a few seconds of clean-up, or 40 seconds where the supervisor has
 * become stuck.  A script that raises, is killed or runs out of time or memory is a success here: see the result's `status`.
 * Return: 0 or a negative enum cloche_code; *@ret_result is NULL on failures other than CLOCHE_INVALID.
 */
int cloche_run(struct cloche *c, const char *request, size_t len, const struct cloche_hooks *hooks, char **ret_result,
	       struct cloche_error *e);

/* cloche_free() - release what cloche_run() gave; takes NULL */
void cloche_free(void *p);

/* cloche_version() - "0.1.0"; static */
const char *cloche_version(void);

#ifdef __cplusplus
}
#endif
