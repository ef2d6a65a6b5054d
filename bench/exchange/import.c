/* import.c - the table of tools to import from, and the functions that their readers share, for rows, keys and process
 * indices. */
#include "bench/exchange/import.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "cli/hint.h"
#include "os/disk.h"
#include "os/text.h"

enum { MOST_BYTES = 256 << 20 };

const pb_import_tool pb_import_tools[] = {
#define IMPORT(name, what) {#name, what},
#include "bench/exchange/imports.def"
#undef IMPORT
    {NULL, NULL},
};

static pb_status (*const readers[])(pb_import *im, const char *bytes, size_t n) = {
#define IMPORT(name, what) pb_import_##name,
#include "bench/exchange/imports.def"
#undef IMPORT
};

/* Writes a tool's name as the user types it: nccl_tests becomes nccl-tests. */
static void typed(const char *name, char out[PB_AXIS_TEXT])
{
    snprintf(out, PB_AXIS_TEXT, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = '-';
}

static int tool_index(const char *tool)
{
    char name[PB_AXIS_TEXT];
    for (int i = 0; pb_import_tools[i].name; i++) {
        typed(pb_import_tools[i].name, name);
        if (!strcmp(name, tool)) return i;
    }
    return -1;
}

pb_status pb_import_open(const char *tool, pb_import *out)
{
    pb_hint hint = {.word = tool};
    char name[PB_AXIS_TEXT];
    if (tool_index(tool) < 0) {
        for (const pb_import_tool *t = pb_import_tools; t->name; t++) typed(t->name, name), pb_hint_try(&hint, name);
        return pb_fail(PB_EINVAL, "import: the first argument must be nvbench or nccl-tests%s", pb_hint_text(&hint));
    }
    *out = (pb_import){.tool = tool, .text = pb_strings_new()};
    return out->text ? PB_OK : pb_fail(PB_ENOMEM, "import: out of memory");
}

void pb_import_close(pb_import *im)
{
    pb_strings_free(im->text);
    free(im->row);
    *im = (pb_import){0};
}

pb_status pb_import_bytes(pb_import *im, const char *name, const char *bytes, size_t n)
{
    const char *nul = memchr(bytes, 0, n);
    im->file = pb_intern(im->text, name, strlen(name));
    if (!im->file) return pb_fail(PB_ENOMEM, "import: out of memory");
    if (nul) return pb_import_bad(im, 0, "a NUL byte: not a text file", "");
    if (!n) return pb_import_bad(im, 0, "the file is empty", "");
    size_t before = im->n;
    const int tool = tool_index(im->tool);
    if (tool < 0 || tool >= (int)(sizeof readers / sizeof *readers)) return pb_fail(PB_EINVAL, "import: not opened");
    PB_TRY(readers[tool](im, bytes, n));
    if (im->n == before) return pb_import_bad(im, 0, "the file has no results", "");
    im->nfiles++;
    return PB_OK;
}

pb_status pb_import_file(pb_import *im, const char *path)
{
    char *bytes = NULL;
    size_t n = 0;
    PB_TRY(pb_disk_read_file(&pb_disk_posix, path, MOST_BYTES, &bytes, &n));
    pb_status s = pb_import_bytes(im, path, bytes, n);
    free(bytes);
    return s;
}

/* ---- functions for import_*.c ------------------------------------------------------------------------------ */

pb_status pb_import_bad(const pb_import *im, size_t line, const char *what, const char *detail)
{
    char shown[96], at[32] = "";
    snprintf(shown, sizeof shown, "%s", detail);
    pb_make_printable(shown, '?');
    if (line) snprintf(at, sizeof at, ":%zu", line);
    return pb_fail(PB_EINVAL, "%s%s: %s%s", im->file, at, what, shown);
}

bool pb_import_is_json(const char *bytes, size_t n)
{
    while (n && strchr(" \t\r\n", *bytes))
        bytes++, n--; /* pb_import_bytes() has refused NUL, which strchr would match */
    return n && *bytes == '{';
}

pb_status pb_import_json(const pb_import *im, const char *bytes, size_t n, json_t **out)
{
    json_error_t e;
    *out = json_loadb(bytes, n, 0, &e);
    return *out ? PB_OK : pb_import_bad(im, e.line > 0 ? (size_t)e.line : 0, "not JSON: ", e.text);
}

pb_status pb_import_word(const pb_import *im, size_t line, const char *text, char *out)
{
    size_t n = strlen(text);
    if (!n) return pb_import_bad(im, line, "an empty name or value", "");
    if (n >= PB_AXIS_TEXT) return pb_import_bad(im, line, "a word of 64 or more characters: ", text);
    for (size_t i = 0; i <= n; i++) out[i] = text[i] && strchr(" /?&=,\"", text[i]) ? '_' : text[i];
    pb_make_printable(out, '_');
    return PB_OK;
}

pb_status pb_import_axis(const pb_import *im, size_t line, pb_case *c, const char *axis, const char *value)
{
    char a[PB_AXIS_TEXT], v[PB_AXIS_TEXT];
    PB_TRY(pb_import_word(im, line, axis, a));
    PB_TRY(pb_import_word(im, line, value, v));
    if (pb_case_get(c, a)) return pb_import_bad(im, line, "two axes are called ", a);
    return pb_case_set(c, a, v) == PB_OK ? PB_OK
                                         : pb_import_bad(im, line, "too many axes, or too long ones, at the axis ", a);
}

const char *pb_import_machine(const pb_import *im, int devices, const char *name)
{
    char id[PB_AXIS_TEXT], count[16] = "";
    if (!*name) return "";
    if (devices > 1) snprintf(count, sizeof count, "%dx-", devices);
    int n = snprintf(id, sizeof id, "imported-%s", count);
    bool gap = false;
    for (; *name && n < (int)sizeof id - 2; name++) {
        bool letter = isalnum((unsigned char)*name);
        if (letter && gap) id[n++] = '-';
        if (letter) id[n++] = (char)tolower((unsigned char)*name);
        gap = !letter && id[n - 1] != '-';
    }
    return pb_intern(im->text, id, (size_t)n);
}

static pb_status add(pb_import *im, size_t line, const pb_case *c, pb_import_row r, const char *note)
{
    if (im->n == im->capacity) {
        size_t capacity = im->capacity ? 2 * im->capacity : 256;
        pb_import_row *grown = realloc(im->row, capacity * sizeof *grown);
        if (!grown) return pb_fail(PB_ENOMEM, "import: out of memory");
        im->row = grown;
        im->capacity = capacity;
    }
    pb_case named = *c;
    pb_case_finish(&named);
    char text[512];
    snprintf(text, sizeof text, "%s", note);
    pb_make_printable(text, ' ');
    r.key = pb_intern(im->text, named.key, strlen(named.key));
    r.note = pb_intern(im->text, text, strlen(text));
    r.metric = pb_metric_find(r.metric)->name;
    r.file = im->nfiles;
    r.line = line;
    if (!r.key || !r.note || !r.machine) return pb_fail(PB_ENOMEM, "import: out of memory");
    im->row[im->n++] = r;
    return PB_OK;
}

pb_status pb_import_figure(pb_import *im, size_t line, const pb_case *c, const char *machine, const char *metric,
                           double scale, const char *text, long long samples, const char *note)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end) return pb_import_bad(im, line, "not a number: ", text);
    if (!isfinite(v * scale))
        return pb_import_outcome(im, line, c, machine, metric, PB_ROW_FAILED, "not a finite number");
    return add(im, line, c,
               (pb_import_row){
                   .metric = metric, .status = PB_ROW_OK, .machine = machine, .value = v * scale, .samples = samples},
               note);
}

pb_status pb_import_outcome(pb_import *im, size_t line, const pb_case *c, const char *machine, const char *metric,
                            pb_row_status status, const char *note)
{
    return add(im, line, c,
               (pb_import_row){.metric = metric, .status = status, .machine = machine, .value = (double)NAN}, note);
}

/* ---- giving rows their process indices ------------------------------------------------------------ */

static int by_identity(const void *a, const void *b)
{
    const pb_import_row *x = *(pb_import_row *const *)a, *y = *(pb_import_row *const *)b;
    int order = x->key == y->key ? 0 : strcmp(x->key, y->key);
    if (!order) order = strcmp(x->metric, y->metric);
    if (!order) order = (x->file > y->file) - (x->file < y->file);
    return order ? order : (x > y) - (x < y);
}

static pb_status number(const pb_import *im, pb_import_row **sorted)
{
    for (size_t i = 0; i < im->n; i++) {
        pb_import_row *r = sorted[i], *before = i ? sorted[i - 1] : NULL;
        if (!before || before->key != r->key || before->metric != r->metric) continue;
        if (before->file == r->file) return pb_import_bad(im, r->line, "the file has two results for ", r->key);
        r->process = before->process + 1;
    }
    return PB_OK;
}

pb_status pb_import_finish(pb_import *im)
{
    if (!im->n) return pb_fail(PB_EINVAL, "import: name at least one result file of %s", im->tool);
    pb_import_row **sorted = malloc(im->n * sizeof *sorted);
    if (!sorted) return pb_fail(PB_ENOMEM, "import: out of memory");
    for (size_t i = 0; i < im->n; i++) sorted[i] = &im->row[i];
    qsort(sorted, im->n, sizeof *sorted, by_identity);
    pb_status s = number(im, sorted);
    free(sorted);
    return s;
}

void pb_import_write(const pb_import *im, const char *run_id, const char *machine_id, FILE *out)
{
    static const char taken[] = "the file names no machine; this machine is assumed";
    char note[640];
    pb_csv_header(out);
    for (size_t i = 0; i < im->n; i++) {
        const pb_import_row *r = &im->row[i];
        const pb_metric *m = pb_metric_find(r->metric);
        snprintf(note, sizeof note, "%s%s%s", r->note, *r->note && !*r->machine ? "; " : "", *r->machine ? "" : taken);
        pb_csv_row(out, &(pb_row){.bench_version = im->tool,
                                  .run_id = run_id,
                                  .machine_id = *r->machine ? r->machine : machine_id,
                                  .process = r->process,
                                  .key = r->key,
                                  .metric = r->metric,
                                  .unit = m->unit,
                                  .better = m->better,
                                  .value = r->value,
                                  .samples = r->samples,
                                  .status = r->status,
                                  .note = note});
    }
}
