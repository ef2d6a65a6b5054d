/* resources.c - implements resources.h: records the call into a graph and reads the attributes of its kernels. */
#include "bench/measure/resources.h"

#include <math.h>
#include <stdio.h>

static pb_status read_call(pb_ctx *ctx, pb_fn fn, void *self, pb_kernel_resources *out)
{
    pb_graph *graph = NULL;
    PB_TRY(pb_record(ctx, fn, self, &graph));
    const pb_status s = pb_graph_resources(ctx, graph, out);
    pb_graph_free(ctx, graph);
    return s;
}

pb_status pb_emit_resources(pb_emitter *e, const pb_case *c, pb_ctx *ctx, pb_fn fn, void *self)
{
    pb_kernel_resources r;
    if (ctx->id == PB_CPU) return PB_OK;
    const pb_status s = read_call(ctx, fn, self, &r);
    if (s == PB_EUNSUPPORTED) {
        char why[256];
        snprintf(why, sizeof why, "%s", pb_error());
        PB_TRY(pb_emit(e, c, "registers", (double)NAN, 0, PB_ROW_UNSUPPORTED, why));
        return pb_emit(e, c, "local_bytes", (double)NAN, 0, PB_ROW_UNSUPPORTED, why);
    }
    PB_TRY(s);
    if (!r.kernels) return PB_OK;
    PB_TRY(pb_emit(e, c, "registers", r.registers, 0, PB_ROW_OK, ""));
    return pb_emit(e, c, "local_bytes", (double)r.local_bytes, 0, PB_ROW_OK, "");
}
