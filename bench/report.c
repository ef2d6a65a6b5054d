/* report.c - a run's tables: what it was, suite by suite, then the contracts. */
#include "bench/report.h"

#include <math.h>
#include <string.h>

#include "bench/text.h"
#include "bench/views.h"

typedef struct counts {
    int pass, fail, unsupported, bad; /* bad: series that are wrong, failed or truncated */
} counts;

static void print_head(const pb_table *t, pb_report_page *p)
{
    const pb_row *r = &t->rows[0];
    int runs = 1;
    for (size_t i = 1; i < t->n; i++) runs += t->rows[i].run_id != t->rows[i - 1].run_id;
    for (size_t i = 0; i < p->set->n; i++)
        if (p->set->s[i].launches > p->launches) p->launches = p->set->s[i].launches;
    fprintf(p->out, "run %s%s on %s, %d launch%s (%s)\n", r->run_id, runs > 1 ? " and others" : "", r->machine_id,
            p->launches, p->launches == 1 ? "" : "es", t->path);
}

static void print_contract(const pb_series *s, FILE *out, counts *n)
{
    char figure[PB_FIGURE_TEXT] = "";
    pb_case c;
    bool pass = !strcmp(s->status, "pass"), fail = !strcmp(s->status, "fail");
    if (pb_case_parse(s->key, &c) != PB_OK) return; /* the reader let no such key in */
    if (isfinite(s->median)) pb_figure(figure, s->median, s->unit);
    n->pass += pass;
    n->fail += fail;
    n->unsupported += !pass && !fail;
    fprintf(out, "%-11s  %s%s%s\n", pass ? "PASS" : fail ? "FAIL" : s->status, c.name, *figure ? ": " : "", figure);
    if (*s->note) pb_print_wrapped(out, 13, s->note);
}

static void print_contracts(const pb_series_set *set, size_t from, size_t to, FILE *out, counts *n)
{
    fprintf(out, "\ncontracts\n");
    for (size_t i = from; i < to; i++) print_contract(&set->s[i], out, n);
    fprintf(out, "contracts: %d pass, %d fail, %d unsupported\n", n->pass, n->fail, n->unsupported);
}

static void count_bad(const pb_series_set *set, counts *n)
{
    static const char *const bad[] = {"wrong", "failed", "truncated"};
    for (size_t i = 0; i < set->n; i++)
        for (int b = 0; b < 3; b++) n->bad += !strcmp(set->s[i].status, bad[b]);
}

static pb_status print_report(const pb_table *t, pb_report_page *p, counts *n)
{
    size_t contracts = p->set->n, contracts_end = contracts;
    print_head(t, p);
    for (size_t from = 0, to; from < p->set->n; from = to) {
        to = pb_suite_end(p->set, from);
        if (pb_key_of(p->set->s[from].key, "contract")) {
            contracts = from;
            contracts_end = to;
        } else {
            PB_TRY(pb_view_print(p, from, to));
        }
    }
    if (contracts < contracts_end) print_contracts(p->set, contracts, contracts_end, p->out, n);
    count_bad(p->set, n);
    if (n->bad) fprintf(p->out, "\n%d figures are missing: wrong, failed or cut short\n", n->bad);
    return PB_OK;
}

static pb_status report_table(const pb_table *t, FILE *out, counts *n)
{
    pb_series_set set;
    if (!t->n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", t->path);
    PB_TRY(pb_series_make(t, &set));
    pb_report_page page = {.out = out, .text = pb_strings_new(), .set = &set};
    pb_status s = page.text ? print_report(t, &page, n) : pb_fail(PB_ENOMEM, "report: out of memory");
    pb_strings_free(page.text);
    pb_series_free(&set);
    return s;
}

pb_exit pb_report(const char *run, const pb_report_opts *o, FILE *out)
{
    char newest[PB_PATH_TEXT];
    pb_table t;
    counts n = {0};
    pb_exit e = PB_EXIT_OK;
    pb_status s = run ? PB_OK : pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
    if (s == PB_OK) s = pb_table_read(run ? run : newest, &t);
    if (s == PB_OK) {
        s = report_table(&t, out, &n);
        pb_table_free(&t);
    }
    if (s != PB_OK) return pb_file_exit(s);
    if (n.bad) e = pb_worse_exit(e, PB_EXIT_INCOMPARABLE);
    if (n.fail && o->gate_contracts) e = pb_worse_exit(e, PB_EXIT_REGRESSION);
    return e;
}
