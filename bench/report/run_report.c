/* run_report.c - prints a run: its name and machine, the tables of each suite, then the requirements. */
#include "bench/report/run_report.h"

#include <math.h>
#include <string.h>

#include "bench/report/views.h"
#include "bench/text/text.h"

typedef struct counts {
    int pass, fail, unsupported, bad; /* requirements by result; bad: series wrong, failed, timeout or truncated */
} counts;

static void print_head(const pb_table *t, pb_report_page *p)
{
    const pb_row *r = &t->rows[0];
    int runs = 1;
    for (size_t i = 1; i < t->n; i++) runs += t->rows[i].run_id != t->rows[i - 1].run_id;
    for (size_t i = 0; i < p->set->n; i++)
        if (p->set->s[i].processes > p->processes) p->processes = p->set->s[i].processes;
    if (p->markdown) {
        fputs("\nrun ", p->out), pb_markdown(p->out, r->run_id, true);
        fprintf(p->out, "%s on ", runs > 1 ? " and others" : "");
        pb_markdown(p->out, r->machine_id, true);
        fprintf(p->out, ", %d process%s\n", p->processes, p->processes == 1 ? "" : "es");
        return;
    }
    fprintf(p->out, "run %s%s on %s, %d process%s (%s)\n", r->run_id, runs > 1 ? " and others" : "", r->machine_id,
            p->processes, p->processes == 1 ? "" : "es", t->path);
}

static const char *requirement_word(const pb_series *s)
{
    return s->status == PB_ROW_PASS ? "PASS" : s->status == PB_ROW_FAIL ? "FAIL" : pb_row_status_name(s->status);
}

static void print_requirement(const pb_series *s, const pb_report_page *p)
{
    char figure[PB_FIGURE_TEXT] = "";
    pb_case c;
    if (pb_case_parse(s->key, &c) != PB_OK) return; /* cannot happen: the reader has checked the key */
    if (isfinite(s->median)) pb_figure(figure, s->median, s->unit);
    if (p->markdown) {
        fprintf(p->out, "| %s | ", requirement_word(s)), pb_markdown(p->out, c.name, true);
        fprintf(p->out, " | %s | ", figure), pb_markdown(p->out, s->note, false);
        fputs(" |\n", p->out);
        return;
    }
    fprintf(p->out, "%-11s  %s%s%s\n", requirement_word(s), c.name, *figure ? ": " : "", figure);
    if (*s->note) pb_print_wrapped(p->out, 13, s->note);
}

static void print_requirements(const pb_report_page *p, size_t from, size_t to, const counts *n)
{
    fputs(p->markdown ? "\n| requirement | | value | |\n|---|---|--:|---|\n" : "\nrequirements\n", p->out);
    for (size_t i = from; i < to; i++) print_requirement(&p->set->s[i], p);
    if (!p->markdown)
        fprintf(p->out, "requirements: %d pass, %d fail, %d unsupported\n", n->pass, n->fail, n->unsupported);
}

static void count(const pb_series_set *set, counts *n)
{
    for (size_t i = 0; i < set->n; i++) {
        const pb_series *s = &set->s[i];
        bool requirement = pb_key_of(s->key, "requirement"), pass = s->status == PB_ROW_PASS;
        bool fail = s->status == PB_ROW_FAIL;
        n->bad += pb_row_class_of(s->status) == PB_ROW_BROKEN;
        n->pass += requirement && pass;
        n->fail += requirement && fail;
        n->unsupported += requirement && !pass && !fail;
    }
}

static void print_headline(const pb_report_page *p, const counts *n)
{
    fputs("### bench: ", p->out);
    if (n->bad)
        fprintf(p->out, "%d value%s missing: wrong, failed or truncated", n->bad, n->bad == 1 ? " is" : "s are");
    else fputs("no value is missing", p->out);
    if (n->pass + n->fail + n->unsupported)
        fprintf(p->out, "; requirements: %d pass, %d fail, %d unsupported", n->pass, n->fail, n->unsupported);
    fputc('\n', p->out);
}

/* ---- the report as JUnit XML -------------------------------------------------------------------- */

static bool junit_case(void *user, size_t i, pb_junit_case *out)
{
    const pb_series *s = &((const pb_series_set *)user)->s[i];
    size_t suite = pb_suite_length(s->key);
    bool passed = pb_series_ok(s) || s->status == PB_ROW_PASS;
    bool wrong = s->status == PB_ROW_WRONG || s->status == PB_ROW_FAIL;
    bool skipped = pb_row_class_of(s->status) == PB_ROW_NONE || pb_series_throttled(s);
    out->outcome = passed ? PB_JUNIT_PASSED : wrong ? PB_JUNIT_FAILURE : skipped ? PB_JUNIT_SKIPPED : PB_JUNIT_ERROR;
    snprintf(out->classname, sizeof out->classname, "bench.%.*s", (int)suite, s->key);
    snprintf(out->name, sizeof out->name, "%s %s", s->key + suite + 1, s->metric);
    snprintf(out->type, sizeof out->type, "%s", pb_row_status_name(s->status));
    snprintf(out->message, sizeof out->message, "%s%s%.500s", pb_row_status_name(s->status), *s->note ? ": " : "",
             s->note);
    return true;
}

/* ---- printing the whole report ------------------------------------------------------------------ */

static pb_status print_report(const pb_table *t, pb_report_page *p, const counts *n)
{
    size_t requirements = p->set->n, requirements_end = requirements;
    if (p->markdown) print_headline(p, n);
    print_head(t, p);
    for (size_t from = 0, to; from < p->set->n; from = to) {
        to = pb_suite_end(p->set, from);
        if (pb_key_of(p->set->s[from].key, "requirement")) {
            requirements = from;
            requirements_end = to;
        } else {
            PB_TRY(pb_view_print(p, from, to));
        }
    }
    if (requirements < requirements_end) print_requirements(p, requirements, requirements_end, n);
    if (n->bad && !p->markdown)
        fprintf(p->out, "\n%d value%s missing: wrong, failed or truncated\n", n->bad, n->bad == 1 ? " is" : "s are");
    return PB_OK;
}

static pb_status report_table(const pb_table *t, pb_format format, FILE *out, counts *n)
{
    pb_series_set set;
    if (!t->n) return pb_fail(PB_EINVAL, "%s: has a header but no rows", t->path);
    PB_TRY(pb_series_make(t, &set));
    pb_report_page page = {.out = out, .markdown = format == PB_FORMAT_MARKDOWN, .text = pb_strings_new(), .set = &set};
    pb_status s = PB_OK;
    count(&set, n);
    if (format == PB_FORMAT_JUNIT) pb_junit(out, "bench report", set.n, junit_case, &set);
    else s = page.text ? print_report(t, &page, n) : pb_fail(PB_ENOMEM, "report: out of memory");
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
        s = report_table(&t, pb_format_of(o->format), out, &n);
        pb_table_free(&t);
    }
    if (s != PB_OK) return pb_file_exit(s);
    if (n.bad) e = pb_worse_exit(e, PB_EXIT_INCOMPARABLE);
    if (n.fail && o->gate_requirements) e = pb_worse_exit(e, PB_EXIT_REGRESSION);
    return e;
}
