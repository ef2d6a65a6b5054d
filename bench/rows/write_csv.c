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

/* ---- formatting fields and rows ---------------------------------------------------------------- */

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
    if (!isfinite(v)) return;
    const double exact_below = 9007199254740992; /* 2^53: a double holds every whole number up to it */
    char nine[32];
    snprintf(nine, sizeof nine, "%.9g", v);
    const bool rounded = fabs(strtod(nine, NULL) - v) > 0.5;
    fprintf(f, rounded && v == rint(v) && fabs(v) < exact_below ? "%.0f" : "%.9g", v);
}

static void put_str(FILE *f, const char *v) { pb_csv_text(f, v); }
static void put_opt(FILE *f, const char *v) { pb_csv_text(f, v); }
static void put_i64(FILE *f, long long v) { fprintf(f, "%lld", v); }
static void put_f64(FILE *f, double v) { pb_csv_number(f, v); }
static void put_status(FILE *f, pb_row_status v) { pb_csv_text(f, pb_row_status_name(v)); }

void pb_csv_header(FILE *f)
{
    for (const pb_csv_column *c = pb_columns; c->name; c++) fprintf(f, "%s%s", c == pb_columns ? "" : ",", c->name);
    fputc('\n', f);
}

bool pb_csv_has_header(const char *text, size_t n)
{
    for (const pb_csv_column *c = pb_columns; c->name; c++) {
        const size_t length = strlen(c->name);
        if (n <= length || memcmp(text, c->name, length) != 0 || text[length] != (c[1].name ? ',' : '\n')) return false;
        text += length + 1, n -= length + 1;
    }
    return true;
}

void pb_csv_row(FILE *f, const pb_row *r)
{
    const char *comma = "";
#define COL(type, name, doc) fputs(comma, f), put_##type(f, r->name), comma = ",";
#include "bench/rows/columns.def"
#undef COL
    fputc('\n', f);
}

/* ---- creating and appending to the files -------------------------------------------------------- */

static pb_status create_results(const char *dir)
{
    char *path;
    pb_page p;
    PB_TRY(pb_path_join(dir, "results.csv", &path));
    pb_status s = pb_page_open(&p);
    if (s == PB_OK) {
        pb_csv_header(p.f);
        s = pb_page_save(&p, PB_OK, pb_file_create, path);
    }
    free(path);
    return s;
}

static pb_status create_samples(const char *dir)
{
    char *path;
    PB_TRY(pb_path_join(dir, "samples.csv", &path));
    const pb_status s = pb_file_create(path, PB_SAMPLES_HEADER, strlen(PB_SAMPLES_HEADER));
    free(path);
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
    const pb_status s = create_samples(dir);
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
