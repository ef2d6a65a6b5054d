/* case.c - cases and their keys: suite/name?axis=value&..., with the axes sorted by name. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/row.h"

/* True if s[0..n) can be used as a name or value in a key: 1 to PB_AXIS_TEXT - 1 characters, without white space,
 * control characters and the characters that separate the parts of a key (/ ? & =), the items of a list (,) and CSV
 * fields (, "). */
static bool word_ok(const char *s, size_t n)
{
    if (!n || n >= PB_AXIS_TEXT) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f || strchr("/?&=,\"", s[i])) return false;
    return true;
}

static pb_axis *find(const pb_case *c, const char *axis)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->axes[i].name, axis) == 0) return (pb_axis *)&c->axes[i];
    return NULL;
}

const char *pb_case_get(const pb_case *c, const char *axis)
{
    const pb_axis *a = find(c, axis);
    return a ? a->value : NULL;
}

bool pb_case_is(const pb_case *c, const char *axis, const char *value)
{
    const char *v = pb_case_get(c, axis);
    return v && strcmp(v, value) == 0;
}

pb_status pb_case_int(const pb_case *c, const char *axis, long *out)
{
    const char *text = pb_case_get(c, axis);
    char *end;
    if (!text) return pb_fail(PB_EINVAL, "%s: the case has no axis '%s'", c->key, axis);
    errno = 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || errno) return pb_fail(PB_EINVAL, "%s=%s: need a whole number", axis, text);
    *out = v;
    return PB_OK;
}

static size_t key_length(const pb_case *c)
{
    size_t n = strlen(c->suite) + 1 + strlen(c->name);
    for (int i = 0; i < c->n; i++) n += strlen(c->axes[i].name) + strlen(c->axes[i].value) + 2;
    return n;
}

pb_status pb_case_set(pb_case *c, const char *axis, const char *value)
{
    pb_axis *a = find(c, axis);
    size_t old = a ? strlen(a->value) : 0, more = strlen(value) + (a ? 0 : strlen(axis) + 2);
    if (!word_ok(axis, strlen(axis)) || !word_ok(value, strlen(value)))
        return pb_fail(PB_EINVAL,
                       "axis %s=%s: name and value need 1 to %d characters, no blank and none of / ? & = , \"", axis,
                       value, PB_AXIS_TEXT - 1);
    if (!a && c->n == PB_CASE_AXES)
        return pb_fail(PB_EINVAL, "axis %s: a case has at most %d axes", axis, PB_CASE_AXES);
    if (key_length(c) - old + more >= PB_KEY_TEXT)
        return pb_fail(PB_EINVAL, "axis %s=%s: the key would be longer than %d characters", axis, value,
                       PB_KEY_TEXT - 1);
    if (!a) {
        int at = c->n++;
        for (; at > 0 && strcmp(c->axes[at - 1].name, axis) > 0; at--) c->axes[at] = c->axes[at - 1];
        a = &c->axes[at];
    }
    *a = (pb_axis){{0}, {0}};            /* cleared, so that equal cases have equal bytes */
    memcpy(a->name, axis, strlen(axis)); /* word_ok() has checked that both texts fit */
    memcpy(a->value, value, strlen(value));
    return PB_OK;
}

void pb_case_drop(pb_case *c, const char *axis)
{
    pb_axis *a = find(c, axis);
    if (!a) return;
    c->n--;
    memmove(a, a + 1, (size_t)(&c->axes[c->n] - a) * sizeof *a);
    c->axes[c->n] = (pb_axis){{0}, {0}}; /* so that equal cases have equal bytes */
}

/* Appends text to key at *n and advances *n; cuts off what does not fit. It does not use snprintf(), in which the
 * reader of results.csv spent a sixth of its time, because it rebuilds every distinct key. */
static void put(char key[PB_KEY_TEXT], size_t *n, const char *text)
{
    const size_t len = strlen(text), room = PB_KEY_TEXT - 1 - *n, take = len < room ? len : room;
    memcpy(key + *n, text, take);
    *n += take;
}

void pb_case_finish(pb_case *c)
{
    size_t n = 0;
    put(c->key, &n, c->suite);
    put(c->key, &n, "/");
    put(c->key, &n, c->name);
    for (int i = 0; i < c->n; i++) {
        put(c->key, &n, i ? "&" : "?");
        put(c->key, &n, c->axes[i].name);
        put(c->key, &n, "=");
        put(c->key, &n, c->axes[i].value);
    }
    c->key[n] = 0;
}

/* Copies the characters [from, end) to out. EINVAL: they contain a character that keys do not allow, or `end` is NULL
 * because no separator was found. */
static pb_status take(const char *key, const char *from, const char *end, char *out)
{
    if (!end || !word_ok(from, (size_t)(end - from)))
        return pb_fail(PB_EINVAL, "'%.200s' is not a key: need suite/name?axis=value&...", key);
    memcpy(out, from, (size_t)(end - from));
    out[end - from] = 0;
    return PB_OK;
}

pb_status pb_case_parse(const char *key, pb_case *out)
{
    pb_case c = {0};
    const char *at = key, *slash = strchr(key, '/');
    PB_TRY(take(key, at, slash, c.suite));
    at = slash + 1;
    PB_TRY(take(key, at, at + strcspn(at, "?"), c.name));
    at += strcspn(at, "?");
    while (*at) {
        pb_axis a;
        const char *equals = strchr(++at, '=');
        PB_TRY(take(key, at, equals, a.name));
        at = equals + 1;
        PB_TRY(take(key, at, at + strcspn(at, "&"), a.value));
        at += strcspn(at, "&");
        PB_TRY(pb_case_set(&c, a.name, a.value));
    }
    pb_case_finish(&c);
    if (strcmp(c.key, key) != 0)
        return pb_fail(PB_EINVAL, "'%.200s' is not a valid key; the valid form is %s", key, c.key);
    *out = c;
    return PB_OK;
}

bool pb_key_is_control(const char *key)
{
    return strstr(key, "?" PB_CONTROL_AXIS "=") || strstr(key, "&" PB_CONTROL_AXIS "=");
}

/* The value of axis `ranks`, with its length; length 0: the key has none. */
static const char *ranks_of(const char *key, size_t *n)
{
    const char *at = strstr(key, "&ranks=");
    if (!at) at = strstr(key, "?ranks=");
    *n = at ? strcspn(at + 7, "&") : 0;
    return at ? at + 7 : key;
}

bool pb_key_same_ranks(const char *a, const char *b)
{
    size_t n, m;
    a = ranks_of(a, &n), b = ranks_of(b, &m);
    return n == m && strncmp(a, b, n) == 0;
}

bool pb_key_has_ranks(const char *key)
{
    size_t n;
    (void)ranks_of(key, &n);
    return n > 0;
}

bool pb_key_matches(const char *pattern, const char *key)
{
    return strpbrk(pattern, "*?[") ? fnmatch(pattern, key, 0) == 0 : strstr(key, pattern) != NULL;
}
