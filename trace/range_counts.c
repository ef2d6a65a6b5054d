/* range_counts.c - implements range_counts.h. */
#include "trace/range_counts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "trace/gpu_counters.h"

/* A counted range. */
typedef struct counted {
    const char *name, *phase; /* phase: NULL: none */
    int64_t value, flops, bytes;
} counted;

struct pb_range_counts {
    pb_counter_group group;
    pb_range_kind kind;
    pb_gpu_counters *counters;
    pb_range_hook hook;
    counted *ranges; /* [most] */
    double *values;  /* [most][group.events] */
    int most, n;     /* ranges that a session may have, and has had */
    int depth, at;   /* ranges of any kind that are open; the depth of the counted one, 0: none is open */
    const char *phase;
    int phase_at, op_at; /* the depths of the outermost phase and op that are open; 0: none is */
    pb_status status;    /* of this session: the first failure, with its message */
    char why[256];
};

/* Ranges of a kind in one session. A step of a model of 28 layers has some 1500 ops in each micro-batch. */
static int most_of(pb_range_kind kind) { return kind == PB_RANGE_op ? 4096 : kind == PB_RANGE_phase ? 256 : 4; }

static void keep(pb_range_counts *c, pb_status s)
{
    if (s == PB_OK || c->status != PB_OK) return;
    c->status = s;
    snprintf(c->why, sizeof c->why, "%s", pb_error());
}

/* ---- the hook ------------------------------------------------------------------------------------ */

static void on_begin(void *self, pb_range_kind kind, const char *name, int64_t value)
{
    pb_range_counts *c = self;
    c->depth++;
    if (kind == PB_RANGE_phase && !c->phase_at) c->phase = name, c->phase_at = c->depth;
    if (kind == PB_RANGE_op && !c->op_at) c->op_at = c->depth;
    if (kind != c->kind || c->at || c->status != PB_OK) return;
    const pb_status s = pb_gpu_counters_push(c->counters);
    keep(c, s);
    if (s != PB_OK) return;
    c->at = c->depth;
    c->ranges[c->n++] = (counted){.name = name, .phase = c->phase_at ? c->phase : NULL, .value = value};
}

static void on_finish(void *self)
{
    pb_range_counts *c = self;
    if (!c->depth) return; /* the range began before the session */
    if (c->depth == c->at) {
        c->at = 0;
        keep(c, pb_gpu_counters_pop(c->counters));
    }
    if (c->depth == c->phase_at) c->phase_at = 0;
    if (c->depth == c->op_at) c->op_at = 0;
    c->depth--;
}

/* Ops inside an op do a part of its work. */
static void on_work(void *self, int64_t flops, int64_t bytes)
{
    pb_range_counts *c = self;
    if (!c->at || c->depth != c->op_at) return;
    c->ranges[c->n - 1].flops += flops;
    c->ranges[c->n - 1].bytes += bytes;
}

/* ---- sessions ------------------------------------------------------------------------------------ */

pb_status pb_range_counts_open(const pb_counter_group *g, pb_range_kind kind, pb_range_counts **out)
{
    pb_range_counts *c = *out = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "counters: no memory");
    c->group = *g;
    c->kind = kind;
    c->most = most_of(kind);
    c->hook = (pb_range_hook){on_begin, on_finish, on_work, c};
    c->ranges = calloc((size_t)c->most, sizeof *c->ranges);
    c->values = calloc((size_t)c->most * PB_GROUP_EVENTS, sizeof *c->values);
    pb_status s = c->ranges && c->values ? PB_OK : pb_fail(PB_ENOMEM, "counters: no memory for %d ranges", c->most);
    if (s == PB_OK) s = pb_gpu_counters_open_ranges(g, c->most, &c->counters);
    if (s != PB_OK) pb_range_counts_close(c), *out = NULL;
    return s;
}

void pb_range_counts_close(pb_range_counts *c)
{
    if (!c) return;
    pb_ranges_hook(NULL);
    pb_gpu_counters_close(c->counters);
    free(c->ranges);
    free(c->values);
    free(c);
}

pb_status pb_range_counts_begin(pb_range_counts *c)
{
    c->n = c->depth = c->at = c->phase_at = c->op_at = 0;
    c->status = PB_OK;
    PB_TRY(pb_gpu_counters_begin(c->counters));
    pb_ranges_hook(&c->hook);
    return PB_OK;
}

pb_status pb_range_counts_end(pb_range_counts *c)
{
    pb_ranges_hook(NULL);
    keep(c, pb_gpu_counters_end_ranges(c->counters, c->status == PB_OK ? c->values : NULL, c->n));
    if (c->status == PB_OK && !c->n)
        keep(c, pb_fail(PB_EDEVICE, "counters: the step had no range of kind %s", pb_range_kinds[c->kind]));
    if (c->status == PB_OK) return PB_OK;
    c->n = 0;
    return pb_fail(c->status, "%s", c->why);
}

void pb_range_counts_release(pb_range_counts *c) { pb_gpu_counters_release(c->counters); }

/* ---- the table ----------------------------------------------------------------------------------- */

void pb_range_counts_head(const pb_range_counts *c, FILE *f)
{
    fprintf(f, "step,rank,group,mode,kind,phase,name,layer,model_flops,model_bytes");
    for (int i = 0; i < c->group.events; i++) fprintf(f, ",%s", c->group.event[i].name);
    for (int i = 0; i < c->group.metrics; i++) fprintf(f, ",%s(%s)", c->group.metric[i].name, c->group.metric[i].unit);
    fputc('\n', f);
}

void pb_range_counts_rows(const pb_range_counts *c, FILE *f, long step, int rank, const char *mode)
{
    for (int r = 0; r < c->n; r++) {
        const counted *x = &c->ranges[r];
        const double *v = &c->values[r * c->group.events];
        fprintf(f, "%ld,%d,%s,%s,%s,%s,%s,", step, rank, c->group.name, mode, pb_range_kinds[c->kind],
                x->phase ? x->phase : "", x->name);
        if (x->value != PB_RANGE_NO_VALUE && c->kind != PB_RANGE_step) fprintf(f, "%" PRId64, x->value);
        fprintf(f, ",%" PRId64 ",%" PRId64, x->flops, x->bytes);
        for (int i = 0; i < c->group.events; i++) fprintf(f, ",%.17g", v[i]);
        for (int i = 0; i < c->group.metrics; i++) {
            const double m = pb_group_value(&c->group, i, v);
            fputc(',', f);
            if (isfinite(m)) fprintf(f, "%.9g", m);
        }
        fputc('\n', f);
    }
}
