/* read_bytes.h - checks the readers of results and of gates on arbitrary bytes. Input that they accept must survive
 * joining, comparison with itself and reporting. Shared by the fuzzer and by the test that runs the fuzzer's corpus. */
#ifndef PB_READ_BYTES_H
#define PB_READ_BYTES_H
#include <stdlib.h>
#include <string.h>

#include "bench/report/layout.h"
#include "bench/rows/read.h"
#include "bench/rows/series.h"
#include "bench/compare/verdict.h"
#include "os/text.h"

/* Aborts when a table breaks a guarantee of read.h. */
static inline void pb_check_table(const pb_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const pb_row *r = &t->rows[i];
        pb_case c;
        if (pb_case_parse(r->key, &c) != PB_OK || !*r->metric || r->process < 0 || r->samples < 0) abort();
        if (r->status == PB_ROW_OK && !(r->value - r->value == 0)) abort();
        if (!pb_is_printable(r->key) || !pb_is_printable(r->metric) || !pb_is_printable(r->run_id) ||
            !pb_is_printable(r->machine_id) || !pb_is_printable(r->unit) || !pb_is_printable(r->note))
            abort();
    }
}

static inline void pb_use_table(const pb_table *t)
{
    static const pb_gates gates = {.n = 0};
    pb_series_set set;
    pb_verdicts v = {0};
    if (pb_series_make(t, &set) != PB_OK) return;
    for (size_t i = 0; i < set.n; i++)
        if (pb_series_find(&set, set.s[i].key, set.s[i].metric) != &set.s[i]) abort();
    if (pb_judge(&set, &set, &gates, NULL, &(pb_judge_opts){0}, &v) != PB_OK) abort();
    if (pb_verdicts_decide(&v) != PB_OK) abort();
    if (v.count[PB_VERDICT_REGRESSED] || v.count[PB_VERDICT_IMPROVED]) abort();
    pb_verdicts_free(&v);
    for (size_t from = 0, to; from < set.n; from = to) {
        pb_layout l;
        to = pb_suite_end(&set, from);
        if (pb_layout_make(&l, pb_view_of(set.s[from].key), set.s + from, to - from) != PB_OK) abort();
        pb_layout_free(&l);
    }
    pb_series_free(&set);
}

/* Returns whether the reader accepted the bytes. */
static inline bool pb_read_bytes(const void *bytes, size_t n)
{
    pb_table t;
    if (pb_table_parse("fuzz", bytes, n, &t) != PB_OK) {
        if (!*pb_error() || strchr(pb_error(), '\n')) abort(); /* the error must be one line */
        return false;
    }
    pb_check_table(&t);
    pb_use_table(&t);
    pb_table_free(&t);
    return true;
}
#endif
