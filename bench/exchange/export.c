/* export.c - the table of export formats, and their shared code: order of rows, units, omitted rows. */
#include "bench/exchange/export.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/text/text.h"
#include "cli/hint.h"

enum order { BY_METRIC, BY_PROCESS };

const pb_export_format pb_export_formats[] = {
#define FORMAT(name, order, what) {#name, what},
#include "bench/exchange/formats.def"
#undef FORMAT
    {NULL, NULL},
};

static const struct {
    enum order order;
    pb_status (*write)(pb_export_page *p);
} writers[] = {
#define FORMAT(name, order, what) {order, pb_export_##name},
#include "bench/exchange/formats.def"
#undef FORMAT
};

/* ---- units, values and omitted rows, shared by all formats -------------------------------------- */

void pb_export_leave_out(pb_export_page *p, const char *why)
{
    int i = 0;
    while (i < PB_EXPORT_REASONS - 1 && p->left_out[i].why && strcmp(p->left_out[i].why, why) != 0) i++;
    p->left_out[i].why = why;
    p->left_out[i].n++;
}

bool pb_row_ok(const pb_row *r) { return r->status == PB_ROW_OK && isfinite(r->value); }

double pb_export_value(double value, const char *unit) { return strcmp(unit, "s") == 0 ? value * 1e9 : value; }

const char *pb_export_unit(const char *unit) { return strcmp(unit, "s") == 0 ? "ns" : unit; }

size_t pb_export_key_end(const pb_export_page *p, size_t from)
{
    size_t to = from + 1;
    while (to < p->n && p->row[to]->key == p->row[from]->key) to++;
    return to;
}

bool pb_export_time(const char *run_id, struct tm *utc)
{
    struct tm t = {0};
    char end = 0;
    if (!strncmp(run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN))) run_id += strlen(PB_BASELINE_RUN);
    if (strlen(run_id) < 16) return false;
    int n = sscanf(run_id, "%4d%2d%2dT%2d%2d%2d%c", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec,
                   &end);
    if (n != 7 || end != 'Z') return false;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    *utc = t;
    return true;
}

/* ---- the two orders of rows --------------------------------------------------------------------- */

int pb_process_order(const pb_row *x, const pb_row *y)
{
    int run = x->run_id == y->run_id ? 0 : strcmp(x->run_id, y->run_id);
    return run ? run : (x->process > y->process) - (x->process < y->process);
}

static int metric_order(const void *a, const void *b)
{
    const pb_row *x = *(const pb_row *const *)a, *y = *(const pb_row *const *)b;
    int order = pb_series_order(x->key, x->metric, y->key, y->metric);
    return order ? order : pb_process_order(x, y);
}

static int process_order(const void *a, const void *b)
{
    const pb_row *x = *(const pb_row *const *)a, *y = *(const pb_row *const *)b;
    int order = x->key == y->key ? 0 : strcmp(x->key, y->key);
    if (!order) order = pb_process_order(x, y);
    return order ? order : strcmp(x->metric, y->metric);
}

/* ---- bench export ------------------------------------------------------------------------------- */

static pb_status find(const char *name, int *out)
{
    pb_hint hint = {.word = name ? name : ""};
    for (int i = 0; pb_export_formats[i].name; i++) {
        if (name && !strcmp(pb_export_formats[i].name, name)) {
            *out = i;
            return PB_OK;
        }
        pb_hint_try(&hint, pb_export_formats[i].name);
    }
    return name ? pb_fail(PB_EINVAL, "export: unknown format '%.60s'%s; bench list formats shows all", name,
                          pb_hint_text(&hint))
                : pb_fail(PB_EINVAL, "export: --to FORMAT is missing; bench list formats shows all");
}

static void print_left_out(const pb_export_page *p, const char *format, FILE *notes)
{
    for (int i = 0; i < PB_EXPORT_REASONS && p->left_out[i].why; i++)
        fprintf(notes, "bench: %s: %zu left out: they %s\n", format, p->left_out[i].n, p->left_out[i].why);
}

/* Fails unless all text is UTF-8, as JSON requires. Strings are interned, so a text equal to the previous row's has the
 * same address and is not checked again. */
static pb_status check_text(const pb_table *t)
{
    for (const pb_row *r = t->rows, *last = NULL; r < t->rows + t->n; last = r++) {
        bool fine = (last && last->key == r->key) || pb_is_utf8(r->key);
        fine &= (last && last->note == r->note) || pb_is_utf8(r->note);
        fine &= (last && last->machine_id == r->machine_id) || pb_is_utf8(r->machine_id);
        fine &= (last && last->run_id == r->run_id) || pb_is_utf8(r->run_id);
        fine &= pb_is_utf8(r->metric) && pb_is_utf8(r->unit) && pb_is_utf8(r->bench_version);
        if (!fine) return pb_fail(PB_EINVAL, "%s: row %zu is not UTF-8", t->path, (size_t)(r - t->rows) + 1);
    }
    return PB_OK;
}

static pb_status write_page(const pb_table *t, int format, const pb_export_opts *o, FILE *out, FILE *notes)
{
    pb_series_set set;
    const pb_row **rows = malloc((t->n + 1) * sizeof *rows);
    if (!rows) return pb_fail(PB_ENOMEM, "export: out of memory");
    pb_export_page page = {.path = t->path, .row = rows, .set = &set, .better = o->better, .out = out};
    pb_status s = check_text(t);
    for (size_t i = 0; i < t->n; i++) {
        if (pb_key_of(t->rows[i].key, "requirement"))
            pb_export_leave_out(&page, "are requirements, which are not measurements");
        else if (pb_key_is_control(t->rows[i].key))
            pb_export_leave_out(&page, "are of control cases, which show the noise of the run");
        else rows[page.n++] = &t->rows[i];
    }
    qsort(rows, page.n, sizeof *rows, writers[format].order == BY_METRIC ? metric_order : process_order);
    if (s == PB_OK) s = pb_series_make(t, &set);
    if (s == PB_OK) {
        s = writers[format].write(&page);
        pb_series_free(&set);
    }
    free(rows);
    if (s == PB_OK && !page.written)
        s = pb_fail(PB_EFORMAT, "%s: the run has no value that %s%s%s can hold", t->path,
                    pb_export_formats[format].name, o->better ? " --better " : "", o->better ? o->better : "");
    if (s == PB_OK) print_left_out(&page, pb_export_formats[format].name, notes);
    return s;
}

pb_status pb_export(const char *run, const pb_export_opts *o, FILE *out, FILE *notes)
{
    char newest[PB_PATH_TEXT], *text = NULL;
    size_t n = 0;
    int format = 0;
    pb_table t;
    PB_TRY(find(o->to, &format));
    if (!run) PB_TRY(pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest));
    PB_TRY(pb_table_read(run ? run : newest, &t));
    /* collects the page in memory, so that nothing is written to `out` on failure */
    FILE *draft = open_memstream(&text, &n);
    pb_status s = draft ? write_page(&t, format, o, draft, notes) : pb_fail(PB_ENOMEM, "export: out of memory");
    if (draft && fclose(draft) != 0 && s == PB_OK) s = pb_fail(PB_ENOMEM, "export: out of memory");
    if (s == PB_OK && fwrite(text, 1, n, out) != n) s = pb_fail(PB_EIO, "export: the output could not be written");
    free(text);
    pb_table_free(&t);
    return s;
}
