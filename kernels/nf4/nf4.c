/* nf4.c - the NF4 reference, bitsandbytes' 8-bit dynamic map, and the pb_op descriptors of both ops. */
#include "kernels/nf4/nf4.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nf4_decode.h"

/* ---- bitsandbytes' 8-bit dynamic map ----------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns point k of torch.linspace(0.1, 1, steps + 1) in f32. Like torch's vectorised kernel, it computes from the
 * nearer end and uses fused multiply-add: the last bits of bitsandbytes' map depend on both. */
static float linspace(int steps, int k)
{
    const float step = (1.0f - 0.1f) / (float)steps;
    return k < (steps + 1) / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(steps - k), 1.0f);
}

/* bitsandbytes' create_dynamic_map(both_signs, max_exponent_bits=7, total_bits=8). For each decade 10^(i-6), the
 * interval from 0.1 to 1 is divided into 2^i equal steps, or 2^(i+1) without negative numbers. Their midpoints enter
 * the map, and so do 0 and 1 once each. */
void pb_dynamic_map(bool both_signs, float code[256])
{
    static const float decade[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
    int n = 0;
    for (int i = 0; i < 7; i++) {
        const int steps = both_signs ? 1 << i : 2 << i;
        for (int k = 0; k < steps; k++) {
            const float mean = (linspace(steps, k) + linspace(steps, k + 1)) / 2 * decade[i];
            code[n++] = mean;
            if (both_signs) code[n++] = -mean;
        }
    }
    code[n++] = 0, code[n++] = 1;
    qsort(code, 256, sizeof *code, ascending);
}

/* ---- reference in double precision -------------------------------------------------------------- */

/* Returns the NF4 code of x, like dQuantizeNF4 in bitsandbytes' csrc/kernels.cu. Comparisons with NaN are false, so NaN
 * gets code 0. */
static int nf4_code(float x)
{
    int code = 0;
    for (int i = 0; i < 15; i++) code += x > (pb_nf4_level[i] + pb_nf4_level[i + 1]) / 2;
    return code;
}

/* Returns the 8-bit code of x, like dQuantize<0> in bitsandbytes' csrc/kernels.cu. */
static int dynamic_code(const float *code, float x)
{
    int pivot = 127, upper = 255, lower = 0;
    for (int i = 64; i > 0; i >>= 1) {
        if (x > code[pivot]) lower = pivot, pivot += i;
        else upper = pivot, pivot -= i;
    }
    const float value = code[pivot];
    if (x > value) return x > (code[upper] + value) * 0.5f ? upper : pivot;
    return x < (code[lower] + value) * 0.5f ? lower : pivot;
}

static float block_max(const void *w, size_t from, size_t to, pb_dtype t)
{
    float max = 0;
    for (size_t i = from; i < to; i++) max = fmaxf(max, fabsf((float)pb_load(w, i, t)));
    return max;
}

void pb_nf4_quantize_scales(const float *absmax, size_t blocks, const float *code, uint8_t *absmax_q, float *absmax2,
                            float *offset)
{
    double sum = 0;
    for (size_t j = 0; j < blocks; j++) sum += (double)absmax[j];
    const float mean = *offset = (float)(sum / (double)blocks);
#pragma omp parallel for if (blocks > 16384)
    for (size_t j = 0; j < blocks; j += 256) {
        const size_t end = j + 256 < blocks ? j + 256 : blocks;
        float max = 0;
        for (size_t k = j; k < end; k++) max = fmaxf(max, fabsf(absmax[k] - mean));
        const float inverse = 1 / max;
        absmax2[j / 256] = max;
        for (size_t k = j; k < end; k++) absmax_q[k] = (uint8_t)dynamic_code(code, (absmax[k] - mean) * inverse);
    }
}

static pb_status quantize_ref(pb_ctx *ctx, const void *args)
{
    const pb_nf4_quantize_args *a = args;
    const size_t block = (size_t)a->block, blocks = (a->n + block - 1) / block;
    (void)ctx;
    for (size_t j = 0; j < blocks; j++) {
        const size_t from = j * block, end = from + block < a->n ? from + block : a->n;
        const float inverse = 1 / (a->absmax[j] = block_max(a->w, from, end, a->dtype));
        for (size_t i = from; i < end; i += 2) {
            int high = nf4_code((float)pb_load(a->w, i, a->dtype) * inverse);
            int low = nf4_code((i + 1 < end ? (float)pb_load(a->w, i + 1, a->dtype) : 0) * inverse);
            a->q[i / 2] = (uint8_t)(high << 4 | low);
        }
    }
    if (a->absmax_q && blocks) pb_nf4_quantize_scales(a->absmax, blocks, a->code, a->absmax_q, a->absmax2, a->offset);
    return PB_OK;
}

static pb_status dequantize_ref(pb_ctx *ctx, const void *args)
{
    const pb_nf4_dequantize_args *a = args;
    (void)ctx;
    for (size_t i = 0; i < a->n; i++) pb_store(a->w, i, a->dtype, (double)pb_nf4_value(a->q, &a->scales, i));
    return PB_OK;
}

/* ---- CPU implementations, best first ------------------------------------------------------------- */

PB_FAST_DECLARE(pb_nf4_quantize)
PB_FAST_DECLARE(pb_nf4_dequantize)

const pb_impl pb_nf4_quantize_cpu[] = {PB_FAST_IMPLS(pb_nf4_quantize){"ref", quantize_ref}, {0}};
const pb_impl pb_nf4_dequantize_cpu[] = {PB_FAST_IMPLS(pb_nf4_dequantize){"ref", dequantize_ref}, {0}};

/* ---- op descriptors (pb_op): shapes, argument checks, inputs, costs ------------------------------ */

/* Axes of the shapes below: w has S rows of D elements; b: block size; q = 1: double quantisation. */
static const char axes[] = "SDbq";
static const pb_dims edge[] = {
    {5, 13, 32, 1},                          /* odd n, short last block */
    {3, 7, 64, 0},                           /* less than one block */
    {1, 1, 32, 1},                           /* a single element */
    {16, 64, 128, 0},                        /* whole blocks only */
    {9, 1001, 32, 1},                        /* more than 256 blocks: two groups of scales */
    {2, 4099, 4096, 1},                      /* the largest block size */
    {3, 2049, 1024, 0},  {64, 1023, 256, 1}, /* enough elements for several threads */
    {40, 1024, 2048, 0}, {33, 999, 512, 1},  {0},
};
static const pb_dims grid[] = {{576, 1536, 64, 1},  {1536, 1536, 64, 0},   {8960, 1536, 64, 0}, {8960, 1536, 64, 1},
                               {1536, 8960, 32, 1}, {4096, 4096, 4096, 0}, {64, 192, 64, 1},    {0}};
static const pb_dims device_grid[] = {{14336, 4096, 64, 0}, {14336, 4096, 64, 1}, {0}};

static bool valid_block(int block) { return block >= 32 && block <= 4096 && !(block & (block - 1)); }

pb_status pb_nf4_check_scales(const char *op, const pb_nf4_scales *s)
{
    if (!valid_block(s->block))
        return pb_fail(PB_EINVAL, "%s: block=%d, need a power of two in 32..4096", op, s->block);
    if (!s->absmax && !(s->absmax_q && s->code && s->absmax2 && s->offset))
        return pb_fail(PB_EINVAL, "%s: need absmax, or all of absmax_q, code, absmax2 and offset", op);
    return PB_OK;
}

static pb_status quantize_check(const void *args)
{
    const pb_nf4_quantize_args *a = args;
    const int given = !!a->code + !!a->absmax_q + !!a->absmax2 + !!a->offset;
    if (!valid_block(a->block))
        return pb_fail(PB_EINVAL, "nf4_quantize: block=%d, need a power of two in 32..4096", a->block);
    if (a->n && (!a->w || !a->q || !a->absmax)) return pb_fail(PB_EINVAL, "nf4_quantize: w, q or absmax is NULL");
    if (given && given != 4)
        return pb_fail(PB_EINVAL, "nf4_quantize: need all of code, absmax_q, absmax2 and offset, or none");
    return PB_OK;
}

static pb_status dequantize_check(const void *args)
{
    const pb_nf4_dequantize_args *a = args;
    if (a->n && (!a->q || !a->w)) return pb_fail(PB_EINVAL, "nf4_dequantize: q or w is NULL");
    return pb_nf4_check_scales("nf4_dequantize", &a->scales);
}

static const float *bind_code(pb_binder *b)
{
    float code[256];
    pb_dynamic_map(true, code);
    return pb_in_raw(b, "code", code, sizeof code);
}

pb_nf4_scales pb_nf4_bind_scales(pb_binder *b, size_t n, int block, bool nested)
{
    const size_t blocks = (n + (size_t)block - 1) / (size_t)block;
    pb_nf4_scales s = {.block = block};
    if (!nested) {
        s.absmax = pb_in_range(b, "absmax", PB_F32, blocks, 0.5, 1.5);
        return s;
    }
    s.absmax_q = pb_in_range(b, "absmax_q", PB_U8, blocks, 0, 256);
    s.code = bind_code(b);
    s.absmax2 = pb_in_range(b, "absmax2", PB_F32, (blocks + 255) / 256, 0.25, 0.5);
    s.offset = pb_in_range(b, "offset", PB_F32, 1, 0.75, 1.25);
    return s;
}

double pb_nf4_scale_bytes(const pb_nf4_scales *s, size_t n)
{
    const double blocks = ceil((double)n / s->block);
    return s->absmax ? 4 * blocks : blocks + 4 * ceil(blocks / 256) + 4 * 257;
}

static pb_status quantize_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0] * (size_t)dim[1], blocks = (n + (size_t)dim[2] - 1) / (size_t)dim[2];
    pb_nf4_quantize_args *a = args;
    *a = (pb_nf4_quantize_args){
        .w = pb_in(b, "w", b->dtype, n),
        .q = pb_out(b, "q", PB_U8, (n + 1) / 2),
        .absmax = pb_out(b, "absmax", PB_F32, blocks),
        .n = n,
        .block = dim[2],
        .dtype = b->dtype,
    };
    if (dim[3]) {
        a->code = bind_code(b);
        a->absmax_q = pb_out(b, "absmax_q", PB_U8, blocks);
        a->absmax2 = pb_out(b, "absmax2", PB_F32, (blocks + 255) / 256);
        a->offset = pb_out(b, "offset", PB_F32, 1);
    }
    return b->status;
}

static pb_status dequantize_bind(pb_binder *b, const int *dim, void *args)
{
    const size_t n = (size_t)dim[0] * (size_t)dim[1];
    *(pb_nf4_dequantize_args *)args = (pb_nf4_dequantize_args){
        .q = pb_in_range(b, "q", PB_U8, (n + 1) / 2, 0, 256),
        .scales = pb_nf4_bind_scales(b, n, dim[2], dim[3]),
        .w = pb_out(b, "w", b->dtype, n),
        .n = n,
        .dtype = b->dtype,
    };
    return b->status;
}

static pb_cost quantize_cost(const void *args)
{
    const pb_nf4_quantize_args *a = args;
    const pb_nf4_scales s = {.block = a->block, .absmax = a->absmax_q ? NULL : a->absmax};
    return (pb_cost){.bytes = (double)a->n * ((double)pb_dtype_size(a->dtype) + 0.5) + pb_nf4_scale_bytes(&s, a->n)};
}

static pb_cost dequantize_cost(const void *args)
{
    const pb_nf4_dequantize_args *a = args;
    return (pb_cost){.flops = (double)a->n,
                     .bytes =
                         (double)a->n * (0.5 + (double)pb_dtype_size(a->dtype)) + pb_nf4_scale_bytes(&a->scales, a->n)};
}

/* Neither op has a backward op: quantisation is piecewise constant, and the quantised weights are frozen. */
const pb_op pb_op_nf4_quantize = {
    .name = "nf4_quantize",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_nf4_quantize_args),
    .impls = PB_BOTH_BACKENDS(nf4, quantize),
    .check = quantize_check,
    .bind = quantize_bind,
    .cost = quantize_cost,
    .tol = {[PB_F32] = 0, [PB_BF16] = 0},
};
const pb_op pb_op_nf4_dequantize = {
    .name = "nf4_dequantize",
    .axes = axes,
    .edge = edge,
    .grid = grid,
    .device_grid = device_grid,
    .args_size = sizeof(pb_nf4_dequantize_args),
    .impls = PB_BOTH_BACKENDS(nf4, dequantize),
    .check = dequantize_check,
    .bind = dequantize_bind,
    .cost = dequantize_cost,
    .tol = {[PB_F32] = 0, [PB_BF16] = 0},
};
