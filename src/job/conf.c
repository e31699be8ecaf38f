/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration text by way of inih, which reads lines into a small fixed buffer and says nothing about sections
 * without settings.  Our reader hands it the lines, so that it knows each one's number, refuses what would be cut, and
 * looks at section headers itself.
 */
#include "job/conf.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/conf_list.h"
#include "job/refuse.h"

#define TEXT_MAX   65536
#define NAME_BYTES 49 /* of sections and settings: inih cuts longer ones silently */
#define BLANKS     " \t\r\v\f"

struct parse {
	struct conf *conf;
	const char *text;
	size_t len;
	size_t at;
	int line;
	bool is_trusted;
	struct conf_strings seen; /* "section\nkey" of this text */
	int r;                    /* first failure */
	struct conf_fault fault;
};

static int complain(struct err *e, const char *source, int line, const struct conf_fault *f)
{
	char shown[100];

	job_show_plain(shown, sizeof(shown), source, strlen(source));
	if (line > 0)
		(void)err_set(e, ERR_INVALID, 0, "%s:%d: %s", shown, line, f->msg);
	else
		(void)err_set(e, ERR_INVALID, 0, "%s: %s", shown, f->msg);
	return -EINVAL;
}

/* check_header() - a line that begins with "[": is it a section that we know? */
static int check_header(struct parse *p, const char *line, size_t len)
{
	const char *end = memchr(line, ']', len);
	char name[NAME_BYTES + 1];
	size_t rest = end ? (size_t)(end - line) + 1 : 0;

	while (end && rest < len && strchr(BLANKS, line[rest]))
		rest++;
	if (!end || (rest < len && !strchr(";#", line[rest]))) {
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg), "a section is [NAME] alone on its line");
		return -EINVAL;
	}
	len = (size_t)(end - line) - 1;
	if (len > NAME_BYTES) {
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg), "a section's name has at most %d bytes", NAME_BYTES);
		return -EINVAL;
	}
	memcpy(name, line + 1, len);
	name[len] = '\0';
	return conf_section_ok(name, &p->fault) ? 0 : -EINVAL;
}

/* next_line() - what inih reads lines with; NULL ends the parse */
static char *next_line(char *buf, int size, void *user)
{
	struct parse *p = user;
	const char *line = p->text + p->at;
	const char *end;
	size_t blanks = 0;
	size_t len;

	if (p->r < 0 || p->at >= p->len)
		return NULL;
	end = memchr(line, '\n', p->len - p->at);
	len = end ? (size_t)(end - line) : p->len - p->at;
	p->at += len + (end != NULL);
	p->line++;
	while (blanks < len && strchr(BLANKS, line[blanks]))
		blanks++;
	if (blanks == len || strchr(";#", line[blanks])) /* a comment may be of any length */
		len = 0;
	if (len + 3 > (size_t)size) {
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg),
			       "a line has at most %d bytes (a list goes on in indented lines below it)", size - 3);
		p->r = -EINVAL;
		return NULL;
	}
	if (len > 0 && line[blanks] == '[')
		p->r = check_header(p, line + blanks, len - blanks);
	if (p->r < 0)
		return NULL;
	memcpy(buf, line, len);
	memcpy(buf + len, "\n", 2);
	return buf;
}

/* is_again() - whether this text has set that key before; notes it.  Return: 1, 0 or -ENOMEM */
static int is_again(struct parse *p, const char *section, const char *key)
{
	char *id;
	int r = 0;

	if (asprintf(&id, "%s\n%s", section, key) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < p->seen.n && r == 0; i++)
		r = strcmp(p->seen.items[i], id) == 0;
	if (r == 0)
		r = conf_strings_add(&p->seen, id, strlen(id));
	free(id);
	return r;
}

/* on_setting() - what inih calls with each NAME = VALUE.  Return: 0 to have it count as an error */
static int on_setting(void *user, const char *section, const char *key, const char *value)
{
	struct parse *p = user;
	struct conf_setting s = { .section = section, .key = key, .value = value, .is_trusted = p->is_trusted };
	int again;

	if (p->r < 0)
		return 0;
	if (strlen(key) > NAME_BYTES) {
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg), "a setting's name has at most %d bytes", NAME_BYTES);
		p->r = -EINVAL;
		return 0;
	}
	again = is_again(p, section, key);
	s.is_first = again == 0;
	if (again < 0)
		p->r = again;
	else if (again && !conf_is_list(key))
		p->r = -EINVAL;
	else
		p->r = conf_apply(p->conf, &s, &p->fault);
	if (again > 0 && p->r == -EINVAL && p->fault.msg[0] == '\0')
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg),
			       "%.60s.%.60s is given twice (an indented line goes on with the setting above it)",
			       section, key);
	return p->r == 0;
}

/* parse_text() - lay @p's text over @p->conf.  Return: 0; -EINVAL with p->fault and p->line set; -ENOMEM */
static int parse_text(struct parse *p)
{
	int line;

	if (p->len > TEXT_MAX) {
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg), "a configuration has at most %d bytes", TEXT_MAX);
		return -EINVAL;
	}
	if (memchr(p->text, '\0', p->len)) {
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg), "a configuration is text without NUL");
		return -EINVAL;
	}
	if (p->len >= 3 && memcmp(p->text, "\xef\xbb\xbf", 3) == 0)
		p->at = 3;
	line = ini_parse_stream(next_line, p, on_setting, p);
	if (p->r < 0)
		return p->r;
	if (line < 0)
		return -ENOMEM;
	if (line > 0) {
		p->line = line;
		(void)snprintf(p->fault.msg, sizeof(p->fault.msg), "neither a [section] nor NAME = VALUE");
		return -EINVAL;
	}
	return conf_refresh(p->conf);
}

/* settle() - the changed copy becomes the configuration, or vanishes */
static int settle(struct conf *c, struct conf *copy, int r)
{
	if (r == 0) {
		conf_done(c);
		*c = *copy;
	} else {
		conf_done(copy);
	}
	return r;
}

int conf_parse(struct conf *c, const char *text, size_t len, const char *source, bool is_trusted, struct err *e)
{
	struct conf copy;
	struct parse p = { .conf = &copy, .text = text, .len = len, .is_trusted = is_trusted };
	int r = conf_copy(c, &copy);

	if (r == 0)
		r = settle(c, &copy, parse_text(&p));
	conf_strings_done(&p.seen);
	if (r == -EINVAL)
		return complain(e, source, p.line, &p.fault);
	return r < 0 ? err_set(e, ERR_HOST, ENOMEM, "%s", source) : 0;
}

/* NOLINTNEXTLINE(readability-function-size): each of the seven is a word of the setting or of its message */
int conf_set(struct conf *c, const char *section, const char *key, const char *value, const char *source,
	     bool is_trusted, struct err *e)
{
	struct conf_setting s = {
		.section = section, .key = key, .value = value, .is_first = true, .is_trusted = is_trusted
	};
	struct conf copy;
	struct conf_fault fault = { "" };
	int r = conf_copy(c, &copy);

	if (r == 0) {
		r = conf_apply(&copy, &s, &fault);
		if (r == 0)
			r = conf_refresh(&copy);
		r = settle(c, &copy, r);
	}
	if (r == -EINVAL)
		return complain(e, source, 0, &fault);
	return r < 0 ? err_set(e, ERR_HOST, ENOMEM, "%s", source) : 0;
}

/* above() - Return: -EINVAL with @e naming both sides when @value is above its maximum */
static int above(const char *where, const struct limit_def *d, uint64_t value, const struct conf *c, struct err *e)
{
	uint64_t max = limit_max(&c->rules, d);
	uint64_t scale = limit_scale(d->unit);
	char given[48];
	char most[48];

	if (value <= max)
		return 0;
	(void)err_set(e, ERR_INVALID, 0, "%s.%s is %s: above max_%s, which is %s", where, d->name,
		      scaled_text(value, scale, given, sizeof(given)), d->name,
		      scaled_text(max, scale, most, sizeof(most)));
	return -EINVAL;
}

int conf_check(const struct conf *c, struct err *e)
{
	char where[80];
	char given[48];
	char most[48];
	int r = 0;

	if (c->rules.timeout_ns > c->rules.max_timeout_ns) {
		(void)err_set(e, ERR_INVALID, 0, "limits.timeout is %s: above max_timeout, which is %s",
			      scaled_text(c->rules.timeout_ns, NS_PER_SEC, given, sizeof(given)),
			      scaled_text(c->rules.max_timeout_ns, NS_PER_SEC, most, sizeof(most)));
		return -EINVAL;
	}
	if (c->n_environments > CONF_ENVIRONMENTS_MAX) {
		(void)err_set(e, ERR_INVALID, 0, "%zu environments: at most %d are allowed", c->n_environments,
			      CONF_ENVIRONMENTS_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; i < LIMIT_DEFS && r == 0; i++)
		r = above("limits", &limit_defs[i], limit_get(&c->rules.defaults, &limit_defs[i]), c, e);
	for (size_t k = 0; k < c->n_environments && r == 0; k++) {
		(void)snprintf(where, sizeof(where), "environment %s", c->environments[k].name);
		for (size_t i = 0; i < LIMIT_DEFS && r == 0; i++)
			r = above(where, &limit_defs[i], limit_get(&c->environments[k].limits, &limit_defs[i]), c, e);
	}
	return r;
}
