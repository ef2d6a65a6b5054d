/* counters.c - emits the exact counters of a case. */
#include "bench/measure/counters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"

/* ---- the list of kernels and its digest -------------------------------------------------------------- */

enum { NAME = 96 };

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Writes one entry of the list: "op.impl=count" or "kernel=count". */
static void entry(const struct pb_tally_name *n, char out[NAME])
{
    snprintf(out, NAME, "%.40s%s%.30s=%llu", n->op, *n->impl ? "." : "", n->impl, (unsigned long long)n->count);
    for (char *s = out; *s; s++)
        if (*s <= ' ' || *s == ',' || *s == '"') *s = '_';
}

void pb_kernel_list(const pb_tally *names, char out[PB_KERNEL_LIST_TEXT])
{
    char list[PB_TALLY_MOST][NAME];
    size_t len = 0;
    *out = 0;
    for (int i = 0; i < names->n; i++) entry(&names->name[i], list[i]);
    qsort(list, (size_t)names->n, sizeof *list, by_text);
    for (int i = 0; i < names->n && len < PB_KERNEL_LIST_TEXT; i++)
        len += (size_t)snprintf(out + len, PB_KERNEL_LIST_TEXT - len, "%s%s", i ? " " : "", list[i]);
}

uint32_t pb_kernel_digest(const char *list)
{
    uint32_t h = 2166136261u;
    for (const char *s = list; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

/* Emits the digest with the list as its note. The list is of the last warm-up call. If that call had other launches
 * than the timed calls, the list would be wrong, so the row gets status unsupported and no list. */
static pb_status emit_kernels(pb_emitter *e, const pb_case *c, const pb_timing *t)
{
    char list[PB_KERNEL_LIST_TEXT];
    uint64_t launches = t->names.lost;
    for (int i = 0; i < t->names.n; i++) launches += t->names.name[i].count;
    if (t->names.lost)
        return pb_emit(e, c, "kernel_digest", (double)NAN, 0, PB_ROW_UNSUPPORTED,
                       "a call has too many kernels to list");
    if (!t->nodes && (double)launches != t->kernel_launches)
        return pb_emit(e, c, "kernel_digest", (double)NAN, 0, PB_ROW_UNSUPPORTED,
                       "the last warm-up call launched another number of kernels than the timed calls");
    pb_kernel_list(&t->names, list);
    return pb_emit(e, c, "kernel_digest", pb_kernel_digest(list), 0, PB_ROW_OK, list);
}

/* ---- emitting all counters of a case ----------------------------------------------------------------- */

static pb_status emit_count(pb_emitter *e, const pb_case *c, const char *metric, double value)
{
    const pb_metric_bound *b = pb_metric_bound_find(c->key, metric);
    const bool wrong = b && !b->relative && !pb_metric_bound_keeps(b, 0, value);
    return pb_emit(e, c, metric, value, 0, wrong ? PB_ROW_WRONG : PB_ROW_OK, wrong ? b->text : "");
}

/* Emits the smaller number of the last two calls. */
static pb_status emit_instructions(pb_emitter *e, const pb_case *c, const pb_timing *t)
{
    char note[160];
    const double a = t->instructions[PB_COUNTED_CALLS - 2], b = t->instructions[PB_COUNTED_CALLS - 1];
    if (t->n == PB_COUNTED_CALLS && pb_exact_same(pb_exact_find("instructions"), a, b))
        return pb_emit(e, c, "instructions", fmin(a, b), 0, PB_ROW_OK, "");
    if (t->n < PB_COUNTED_CALLS) snprintf(note, sizeof note, "interrupted after %d calls", t->n);
    else snprintf(note, sizeof note, "two calls executed %.0f and %.0f instructions", a, b);
    return pb_emit(e, c, "instructions", (double)NAN, 0, PB_ROW_UNSUPPORTED, note);
}

pb_status pb_emit_counters(pb_emitter *e, const pb_case *c, const pb_ctx *ctx, const pb_timing *t, double flops)
{
    if (!t->n) return PB_OK;
    PB_TRY(emit_count(e, c, "kernel_launches", t->kernel_launches));
    PB_TRY(emit_count(e, c, "host_syncs", t->host_syncs));
    if (ctx->id != PB_CPU) PB_TRY(emit_count(e, c, "algorithm_searches", t->searches));
    if (t->nodes) PB_TRY(emit_count(e, c, "graph_nodes", (double)t->nodes));
    PB_TRY(emit_count(e, c, "allocations", (double)t->allocations));
    PB_TRY(emit_count(e, c, "held_peak", (double)ctx->held_peak));
    if (flops > 0) PB_TRY(emit_count(e, c, "formula_flops", flops));
    if (t->counted) PB_TRY(emit_instructions(e, c, t));
    return emit_kernels(e, c, t);
}
