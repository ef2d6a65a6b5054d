/* accepted.c - reads accepted.csv, and finds the line that accepts a rise. */
#include "bench/compare/accepted.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "os/file.h"
#include "os/text.h"

enum { KEY, METRIC, FROM, TO, REASON, UNTIL, FIELDS };
static const char *const header[FIELDS] = {"key", "metric", "from", "to", "reason", "until"};

typedef struct reader {
    const char *path, *today;
    pb_accepted_list *out;
    pb_status status;
    size_t line;
    int field;
    char text[FIELDS][PB_REASON_FIELD];
} reader;

static void fail(reader *r, const char *what, const char *detail)
{
    if (r->status == PB_OK) r->status = pb_fail(PB_EINVAL, "%s:%zu: %s%s", r->path, r->line, what, detail);
}

static void on_field(void *bytes, size_t n, void *self)
{
    reader *r = self;
    const char *text = bytes ? bytes : "";
    if (r->field < FIELDS) {
        if (n >= PB_REASON_FIELD || strlen(text) != n || !pb_is_printable(text))
            fail(r, "too long, or with a control character: the column ", header[r->field]);
        snprintf(r->text[r->field], PB_REASON_FIELD, "%s", text);
    }
    r->field++;
}

static double count_of(reader *r, int field)
{
    char *end;
    const double v = strtod(r->text[field], &end);
    if (end == r->text[field] || *end || !isfinite(v) || v < 0) fail(r, "need a count in the column ", header[field]);
    return v;
}

/* True for a date of the form 2027-03-31. Comparing such dates as text compares them in time. */
static bool is_day(const char *s)
{
    static const char form[] = "0000-00-00";
    for (size_t i = 0; i < sizeof form; i++)
        if (form[i] == '0' ? s[i] < '0' || s[i] > '9' : s[i] != form[i]) return false;
    return true;
}

static pb_accepted *new_line(reader *r)
{
    pb_accepted_list *l = r->out;
    if (l->n == PB_ACCEPTED_MOST) fail(r, "too many lines", "");
    if (l->n == l->room && r->status == PB_OK) {
        const int room = l->room ? 2 * l->room : 16;
        pb_accepted *more = realloc(l->a, (size_t)room * sizeof *more);
        if (!more) r->status = pb_fail(PB_ENOMEM, "%s: out of memory", r->path);
        else l->a = more, l->room = room;
    }
    return r->status == PB_OK ? &l->a[l->n++] : NULL;
}

static void data_line(reader *r)
{
    char(*t)[PB_REASON_FIELD] = r->text;
    const pb_exact_counter *x = pb_exact_find(t[METRIC]);
    const double from = count_of(r, FROM), to = count_of(r, TO);
    if (!*t[KEY] || strlen(t[KEY]) >= PB_KEY_TEXT) fail(r, "need a key or a pattern in the column ", header[KEY]);
    if (!x || x->listed) fail(r, "not an exact counter that can fail a comparison: ", t[METRIC]);
    if (!(to > from)) fail(r, "`to` must be above `from`", "");
    if (!*t[REASON]) fail(r, "a reason is required", "");
    if (*t[UNTIL] && !is_day(t[UNTIL])) fail(r, "need a day such as 2027-03-31, or nothing, in the column ", "until");
    pb_accepted *a = r->status == PB_OK ? new_line(r) : NULL;
    if (!a) return;
    *a = (pb_accepted){.from = from, .to = to, .line = (int)r->line};
    a->expired = *t[UNTIL] && strcmp(r->today, t[UNTIL]) > 0;
    snprintf(a->key, sizeof a->key, "%s", t[KEY]);
    snprintf(a->metric, sizeof a->metric, "%s", x->metric);
    snprintf(a->reason, sizeof a->reason, "%s", t[REASON]);
    snprintf(a->until, sizeof a->until, "%.10s", t[UNTIL]);
}

static void on_line(int terminator, void *self)
{
    reader *r = self;
    (void)terminator;
    if (r->field != FIELDS) fail(r, "a line must have six fields: key,metric,from,to,reason,until", "");
    for (int i = 0; r->line == 1 && i < FIELDS; i++)
        if (strcmp(r->text[i], header[i]) != 0) fail(r, "the header must be key,metric,from,to,reason,until", "");
    if (r->line > 1 && r->status == PB_OK) data_line(r);
    r->field = 0;
    r->line++;
}

pb_status pb_accepted_read(const char *path, const char *today, pb_accepted_list *out)
{
    FILE *f;
    *out = (pb_accepted_list){0};
    pb_status s = pb_file_read(path, &f);
    if (s == PB_EPATH) return PB_OK;
    PB_TRY(s);
    reader *r = calloc(1, sizeof *r);
    if (r) {
        *r = (reader){.path = path, .today = today, .out = out, .line = 1};
        const pb_csv_split_to to = {on_field, on_line, r, path, &r->line, &r->status};
        s = pb_csv_split(f, &to);
        if (s == PB_OK) s = r->status;
    } else {
        s = pb_fail(PB_ENOMEM, "%s: out of memory", path);
    }
    free(r);
    fclose(f);
    return s;
}

void pb_accepted_free(pb_accepted_list *l)
{
    free(l->a);
    *l = (pb_accepted_list){0};
}

const pb_accepted *pb_accepted_find(pb_accepted_list *l, const char *key, const char *metric, double from, double to)
{
    const pb_accepted *found = NULL;
    const pb_exact_counter *x = pb_exact_find(metric);
    for (int i = 0; i < l->n; i++) {
        pb_accepted *a = &l->a[i];
        if (strcmp(a->metric, metric) != 0 || (strcmp(a->key, key) != 0 && fnmatch(a->key, key, 0) != 0)) continue;
        a->compared = true;
        if (a->expired || !pb_exact_same(x, a->from, from) || !pb_exact_same(x, a->to, to)) continue;
        a->justified = true;
        if (!found) found = a;
    }
    return found;
}
