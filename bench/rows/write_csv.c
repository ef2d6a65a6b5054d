/* write_csv.c - formats rows as CSV, and creates and appends to results.csv and samples.csv. */
#define _GNU_SOURCE
#include "bench/rows/write_csv.h"

#include <csv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/rows/tables.h"
#include "os/append.h"
#include "os/draft.h"
#include "os/file.h"

/* ---- text -------------------------------------------------------------------------------------- */

void pb_csv_text(FILE *f, const char *s)
{
    if (!s) return;
    size_t n = strlen(s);
    bool plain = !strpbrk(s, ",\"\r\n") && (!n || (s[0] != ' ' && s[n - 1] != ' '));
    if (plain) fputs(s, f);
    else csv_fwrite2(f, s, n, '"');
}

void pb_csv_number(FILE *f, double v)
{
    if (isfinite(v)) fprintf(f, "%.9g", v);
}

static void put_str(FILE *f, const char *v) { pb_csv_text(f, v); }
static void put_i64(FILE *f, long long v) { fprintf(f, "%lld", v); }
static void put_f64(FILE *f, double v) { pb_csv_number(f, v); }

void pb_csv_header(FILE *f)
{
    for (const pb_column *c = pb_columns; c->name; c++) fprintf(f, "%s%s", c == pb_columns ? "" : ",", c->name);
    fputc('\n', f);
}

void pb_csv_row(FILE *f, const pb_row *r)
{
    const char *comma = "";
#define COL(type, name, doc) fputs(comma, f), put_##type(f, r->name), comma = ",";
#include "bench/rows/columns.def"
#undef COL
    fputc('\n', f);
}

/* ---- files -------------------------------------------------------------------------------------- */

pb_status pb_page_open(pb_page *p)
{
    *p = (pb_page){0};
    p->f = open_memstream(&p->text, &p->n);
    return p->f ? PB_OK : pb_fail(PB_ENOMEM, "no memory for a row");
}

pb_status pb_page_append(pb_page *p, int fd, const char *what)
{
    pb_status s =
        fclose(p->f) == 0 ? pb_append_put(fd, what, p->text, p->n) : pb_fail(PB_ENOMEM, "no memory for a row");
    free(p->text);
    return s;
}

static pb_status create(const char *dir, const char *file, const char *text, size_t n)
{
    char *path;
    PB_TRY(pb_path_join(dir, file, &path));
    const pb_status s = pb_file_create(path, text, n);
    free(path);
    return s;
}

static pb_status create_results(const char *dir)
{
    pb_page p;
    PB_TRY(pb_page_open(&p));
    pb_csv_header(p.f);
    const pb_status s =
        fclose(p.f) == 0 ? create(dir, "results.csv", p.text, p.n) : pb_fail(PB_ENOMEM, "no memory for a row");
    free(p.text);
    return s;
}

static void remove_results(const char *dir)
{
    char *path;
    if (pb_path_join(dir, "results.csv", &path) != PB_OK) return;
    unlink(path);
    free(path);
}

pb_status pb_results_create(const char *dir)
{
    PB_TRY(create_results(dir));
    const pb_status s = create(dir, "samples.csv", PB_SAMPLES_HEADER, strlen(PB_SAMPLES_HEADER));
    if (s != PB_OK) remove_results(dir);
    return s;
}

pb_status pb_results_append(const char *dir, const char *rows, size_t n)
{
    char *path;
    PB_TRY(pb_path_join(dir, "results.csv", &path));
    const pb_status s = pb_append(path, rows, n);
    free(path);
    return s;
}
