/* write_capture.c - captures a call of an op with seeded inputs, for tests of `bench replay`.
 *
 * usage: write_capture FILE OP DTYPE SHAPE IMPLEMENTATION [nan|wrong]
 *        e.g. write_capture x rmsnorm_fwd f32 B1.S2.G1.D8.p0.a0.f0 ref
 *        nan: element 5 of the first input is NaN; wrong: element 5 of the first output becomes 9 after the call */
#include <stdio.h>
#include <stdlib.h>

#include "os/disk.h"
#include "trainer/capture/capture.h"

/* Sets element 5 of the first tensor of this role. */
static pb_status put(pb_call *c, pb_role role, double value)
{
    int k = 0;
    while (c->b.t[k].role != role) k++;
    void *host = malloc(c->b.t[k].rows * c->b.t[k].cols * sizeof(float));
    if (!host) return pb_fail(PB_ENOMEM, "no memory");
    pb_status s = pb_bound_get(&c->b, k, host);
    pb_store(host, 5, c->b.t[k].dtype, value);
    if (s == PB_OK) s = pb_bound_set(&c->b, k, host);
    free(host);
    return s;
}

static pb_status write_capture(char **word, const char *fault)
{
    const pb_op *op = pb_op_find(word[1]);
    pb_dims dim;
    pb_ctx ctx;
    pb_call call;
    pb_capture *c;
    if (!op) return pb_fail(PB_EINVAL, "there is no op %s", word[1]);
    PB_TRY(pb_call_parse_shape(op, word[3], dim));
    PB_TRY(pb_ctx_open(&ctx, PB_CPU, 0));
    ctx.impl = word[4];
    PB_TRY(pb_call_bind(&ctx, op, dim, strcmp(word[2], "bf16") ? PB_F32 : PB_BF16, &call));
    if (op->prepare) PB_TRY(op->prepare(&ctx, call.args));
    if (!strcmp(fault, "nan")) PB_TRY(put(&call, PB_ROLE_IN, (double)NAN));
    PB_TRY(pb_capture_open((size_t)1 << 30, &c));
    PB_TRY(pb_capture_note(c, PB_NOTE_program, "write_capture"));
    PB_TRY(pb_capture_note(c, PB_NOTE_step, "3"));
    PB_TRY(pb_capture_before(c, &call));
    PB_TRY(pb_op_run(&ctx, op, call.args));
    if (!strcmp(fault, "wrong")) PB_TRY(put(&call, PB_ROLE_OUT, 9));
    PB_TRY(pb_capture_after(c, &call, pb_op_pick(&ctx, op, call.args)));
    PB_TRY(pb_capture_write(c, &pb_disk_posix, word[0]));
    pb_capture_close(c);
    pb_call_unbind(&call);
    pb_ctx_close(&ctx);
    return PB_OK;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc > 7)
        return fprintf(stderr, "usage: write_capture FILE OP DTYPE SHAPE IMPLEMENTATION [nan|wrong]\n"), 2;
    if (write_capture(argv + 1, argc == 7 ? argv[6] : "") == PB_OK) return 0;
    fprintf(stderr, "%s\n", pb_error());
    return 1;
}
