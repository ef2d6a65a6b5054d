/* compare_files.c - writes each run and each text file that cases.txt defines to a file NAME.csv. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/write_csv.h"
#include "os/file.h"
#include "tests/bench/compare_runs.h"

/* The text of every column. */
typedef struct fields {
#define COL(type, name, doc) const char *name;
#include "bench/rows/columns.def"
#undef COL
} fields;

static void put_line(FILE *f, const fields *x, bool other_layout, const char *extra)
{
    const char *const text[] = {
#define COL(type, name, doc) x->name,
#include "bench/rows/columns.def"
#undef COL
    };
    const int n = sizeof text / sizeof *text;
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', f);
        pb_csv_text(f, text[other_layout ? n - 1 - i : i]);
    }
    if (other_layout) fputc(',', f), pb_csv_text(f, extra), fputc('\r', f);
    fputc('\n', f);
}

static void put_header(FILE *f, bool other_layout)
{
    static const fields names = {
#define COL(type, name, doc) #name,
#include "bench/rows/columns.def"
#undef COL
    };
    if (other_layout) fputs("\xef\xbb\xbf", f);
    put_line(f, &names, other_layout, "laboratory");
}

/* Copies item i of a comma-separated list, or the last item if the list is shorter, to the buffer. */
static const char *item(const char *list, int i, char *buffer, size_t size)
{
    for (const char *comma; i > 0 && (comma = strchr(list, ',')); i--) list = comma + 1;
    snprintf(buffer, size, "%.*s", (int)strcspn(list, ","), list);
    return buffer;
}

/* Writes the row of process or session i. */
static void put_row(FILE *f, const pb_made_run *run, const char *id, const pb_run_row *row, int i)
{
    char key[256], session[32], number[16], version[16], host[64];
    const pb_run_value *v = &row->v[i];
    const char *sharp = strchr(row->key, '#');
    if (!strcmp(v->text, ".")) return;
    if (sharp) snprintf(key, sizeof key, "%.*s%d%s", (int)(sharp - row->key), row->key, row->number, sharp + 1);
    else snprintf(key, sizeof key, "%s", row->key);
    snprintf(session, sizeof session, "baseline:r%02d", i + 1);
    snprintf(number, sizeof number, "%d", run->sessions ? 3 : i);
    const fields x = {
        .bench_version = item(run->versions, i, version, sizeof version),
        .run_id = run->sessions ? session : id,
        .machine_id = run->machine,
        .process = row->process ? row->process : number,
        .key = key,
        .metric = row->metric,
        .unit = row->unit,
        .better = row->better,
        .value = v->text,
        .samples = row->samples,
        .status = v->status,
        .note = v->note,
        .host = item(run->hosts, i, host, sizeof host),
    };
    put_line(f, &x, run->other_layout, "a \"quoted\", name");
}

static void put_rows(FILE *f, const pb_made_run *run, const char *id, bool last)
{
    for (int i = 0; i < run->count; i++)
        for (int k = 0; k < run->n; k++)
            if (run->rows[k].last == last) put_row(f, run, id, &run->rows[k], i);
}

static void put_run(FILE *f, const pb_made_run *run)
{
    char id[32];
    int ids = 1;
    for (const char *p = run->ids; *p; p++) ids += *p == ',';
    put_header(f, run->other_layout);
    for (int i = 0; i < ids; i++) {
        item(run->ids, i, id, sizeof id);
        put_rows(f, run, id, false);
        put_rows(f, run, id, true);
    }
}

static void put_lines(FILE *f, const pb_made_run *file)
{
    for (int i = 0; i < file->n; i++) fprintf(f, "%s\n", file->rows[i].key);
}

static pb_status write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f) return pb_fail_errno(errno, "%s", path);
    const bool written = fwrite(bytes, 1, n, f) == n;
    return !fclose(f) && written ? PB_OK : pb_fail(PB_EIO, "%s: not written", path);
}

static pb_status write_run(const pb_made_run *run, const char *path)
{
    char *bytes = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&bytes, &n);
    if (!f) return pb_fail(PB_ENOMEM, "no memory for %s", run->name);
    if (run->file) put_lines(f, run);
    else put_run(f, run);
    fclose(f);
    const pb_status s = write_bytes(path, bytes, n > (size_t)run->cut ? n - (size_t)run->cut : 0);
    free(bytes);
    return s;
}

pb_status pb_compare_table_write(const pb_compare_table *t, const char *folder)
{
    pb_status s = PB_OK;
    for (int i = 0; s == PB_OK && i < t->nruns; i++) {
        char name[128], *path;
        snprintf(name, sizeof name, "%s.csv", t->runs[i].name);
        PB_TRY(pb_path_join(folder, name, &path));
        s = write_run(&t->runs[i], path);
        free(path);
    }
    return s;
}
