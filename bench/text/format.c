/* format.c - formats values and the labels of cases, and hashes text. */
#include "bench/text/format.h"

#include <math.h>
#include <string.h>

typedef struct scale {
    double factor;
    const char *prefix;
} scale;

/* Chooses the SI prefix so that the number before it is from 1 to 999 after rounding to three digits. */
static scale scale_of(double v, const char *unit)
{
    static const scale scales[] = {{1e-9, "n"}, {1e-6, "u"}, {1e-3, "m"}, {1, ""},     {1e3, "k"},
                                   {1e6, "M"},  {1e9, "G"},  {1e12, "T"}, {1e15, "P"}, {1e18, "E"}};
    enum { N = sizeof scales / sizeof *scales, ONE = 3 };
    int i = !strcmp(unit, "s") ? 0 : ONE; /* only times use the prefixes n, u and m */
    if (!strcmp(unit, "1") || v == 0) return scales[ONE];
    while (i + 1 < N && fabs(v) >= 999.5 * scales[i].factor) i++;
    return scales[i];
}

static void digits(char *out, size_t n, double v, bool plain)
{
    double a = fabs(v);
    if (plain) snprintf(out, n, a < 1e6 && v == floor(v) ? "%.0f" : "%.3g", v); /* integers in full */
    else snprintf(out, n, "%.*f", a == 0 || a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2, v);
}

void pb_figure(char out[PB_FIGURE_TEXT], double v, const char *unit)
{
    bool plain = !strcmp(unit, "1");
    char number[32];
    if (!isfinite(v)) {
        snprintf(out, PB_FIGURE_TEXT, "-");
        return;
    }
    if (!strcmp(unit, "hash")) {
        snprintf(out, PB_FIGURE_TEXT, "%08x", (unsigned)v);
        return;
    }
    scale s = scale_of(v, unit);
    digits(number, sizeof number, v / s.factor, plain);
    if (plain) snprintf(out, PB_FIGURE_TEXT, "%s", number);
    else snprintf(out, PB_FIGURE_TEXT, "%s %s%.20s", number, s.prefix, strcmp(unit, "1/s") ? unit : "/s");
}

void pb_figure_range(char out[PB_FIGURE_TEXT], double v, double min, double max, const char *unit)
{
    char lo[30], hi[30];
    bool plain = !strcmp(unit, "1");
    *out = 0;
    if (!isfinite(min) || !isfinite(max)) return;
    scale s = scale_of(v, unit);
    digits(lo, sizeof lo, min / s.factor, plain);
    digits(hi, sizeof hi, max / s.factor, plain);
    if (strcmp(lo, hi) != 0) snprintf(out, PB_FIGURE_TEXT, "%s..%s", lo, hi);
}

double pb_percent(double ratio, double digit)
{
    const double percent = 100 * (ratio - 1);
    return fabs(percent) < digit / 2 ? 0 : percent;
}

void pb_worsening(char out[PB_FIGURE_TEXT], double change, const char *space)
{
    if (isinf(change)) snprintf(out, PB_FIGURE_TEXT, "none");
    else if (change < log(10)) snprintf(out, PB_FIGURE_TEXT, "%.3g%s%%", 100 * expm1(change), space);
    else if (change < log(1e300)) snprintf(out, PB_FIGURE_TEXT, "x%s%.3g", space, exp(change));
    else snprintf(out, PB_FIGURE_TEXT, "beyond%sx%s1e300", space, space);
}

/* A part of a key; not NUL-terminated. */
typedef struct span {
    const char *p;
    size_t n;
} span;

static span span_to(const char *p, const char *stop) { return (span){p, strcspn(p, stop)}; }

static bool span_is(span s, const char *text) { return !strncmp(s.p, text, s.n) && !text[s.n]; }

static void span_copy(span s, char out[PB_AXIS_TEXT])
{
    if (s.n >= PB_AXIS_TEXT) s.n = PB_AXIS_TEXT - 1;
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
}

/* Iterates over "?axis=value&axis=value". *at points to a '?' or '&', and is moved to the next one. False: at the
 * end. */
static bool next_axis(const char **at, span *name, span *value)
{
    if (!**at) return false;
    *name = span_to(*at + 1, "=&");
    *value = span_to(name->p + name->n + (name->p[name->n] == '='), "&");
    *at = value->p + value->n;
    return true;
}

static span case_name(const char *key) { return span_to(key + strcspn(key, "/") + 1, "?"); }

/* Finds an axis by name; NULL: not found. The cases of a suite list their axes in the same order, so the search starts
 * at *hint, after the axis found last. */
static const struct pb_axis_seen *find_seen(const pb_axes *a, span name, int *hint)
{
    for (int i = 0; i < a->n; i++) {
        int at = (*hint + i) % a->n;
        if (!span_is(name, a->seen[at].axis.name)) continue;
        *hint = at + 1;
        return &a->seen[at];
    }
    return NULL;
}

static bool varies(const pb_axes *a, const struct pb_axis_seen *x) { return !x || x->varies || x->cases < a->cases; }

bool pb_axes_vary(const pb_axes *a, const char *axis)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->seen[i].axis.name, axis)) return varies(a, &a->seen[i]);
    return false;
}

void pb_axes_add(pb_axes *a, const char *key)
{
    span name = case_name(key), value;
    const char *at = key + strcspn(key, "?");
    int hint = 0;
    if (!a->cases) {
        span_copy(span_to(key, "/"), a->suite);
        span_copy(name, a->name);
    }
    a->names_vary |= !span_is(name, a->name);
    a->cases++;
    while (next_axis(&at, &name, &value)) {
        struct pb_axis_seen *x = (struct pb_axis_seen *)find_seen(a, name, &hint);
        if (!x && a->n == PB_AXES_SEEN) continue;
        if (!x) {
            x = &a->seen[a->n++];
            memset(x, 0, sizeof *x);
            span_copy(name, x->axis.name);
            span_copy(value, x->axis.value);
        }
        x->cases++;
        x->varies |= !span_is(value, x->axis.value);
    }
}

void pb_axes_print_common(const pb_axes *a, FILE *out)
{
    int column = fprintf(out, "%s%s%s", a->suite, a->names_vary ? "" : "/", a->names_vary ? "" : a->name);
    for (int i = 0; i < a->n; i++) {
        const pb_axis *x = &a->seen[i].axis;
        if (varies(a, &a->seen[i])) continue;
        int width = (int)(strlen(x->name) + strlen(x->value)) + 2;
        if (column + width > 100) column = fprintf(out, "\n   ") - 1;
        column += fprintf(out, " %s=%s", x->name, x->value);
    }
    fprintf(out, "\n");
}

/* Appends len bytes to out, which has room for n. Truncates what does not fit. */
static void append(char *out, size_t n, size_t *used, const char *p, size_t len)
{
    if (*used + len >= n) len = n - *used - 1;
    memcpy(out + *used, p, len);
    *used += len;
    out[*used] = 0;
}

void pb_axes_label(const pb_axes *a, const char *key, char *out, size_t n)
{
    span name = case_name(key), value;
    const char *at = key + strcspn(key, "?");
    size_t used = 0;
    int hint = 0;
    if (a->names_vary) append(out, n, &used, name.p, name.n);
    while (next_axis(&at, &name, &value)) {
        if (!varies(a, find_seen(a, name, &hint))) continue;
        if (used) append(out, n, &used, " ", 1);
        append(out, n, &used, name.p, (size_t)(value.p + value.n - name.p));
    }
    name = case_name(key);
    if (!used) append(out, n, &used, name.p, name.n);
}

pb_axes *pb_axes_of(pb_axes_set *s, const char *key)
{
    int i = 0;
    while (i < s->n && !span_is(span_to(key, "/"), s->suite[i].suite)) i++;
    if (i == s->n && i < PB_AXES_SUITES - 1) s->n++;
    return &s->suite[i];
}

void pb_axes_set_label(pb_axes_set *s, const char *key, char *out, size_t n)
{
    int used = s->n > 1 ? snprintf(out, n, "%.*s: ", (int)strcspn(key, "/"), key) : 0;
    pb_axes_label(pb_axes_of(s, key), key, out + used, n - (size_t)used);
}

unsigned pb_text_hash(const char *text)
{
    unsigned h = 2166136261u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}
