/* ns_room.h - the scratch memory of the CPU implementation, which works on one matrix after the other. */
#ifndef PB_NS_ROOM_H
#define PB_NS_ROOM_H
#include "kernels/newton_schulz/ns_products.h"
#include "kernels/syrk/syrk_gemm.h"

/* Byte offsets. x: two buffers that hold X_k in turn; wide: X_k in f32 (bf16 only); sum: [R] doubles; small: [m,m], f32
 * (gram) or dtype; products: scratch of the products, to the end. */
typedef struct pb_ns_room {
    size_t x[2], wide, sum, small[5], products, bytes;
} pb_ns_room;

static inline pb_ns_room pb_ns_room_of(const pb_newton_schulz_run_args *a)
{
    pb_ns_room r = {0};
    const bool gram = pb_ns_on_gram(a);
    const pb_dtype type = gram ? PB_F32 : a->dtype;
    const size_t m = (size_t)pb_ns_small(a), all = (size_t)a->R * (size_t)a->C * pb_dtype_size(a->dtype);
    size_t most = 0;
    for (int i = 0; i < 2; i++) r.x[i] = pb_ns_place(&r.bytes, all);
    r.wide = pb_ns_place(&r.bytes, a->dtype == PB_F32 || gram ? 0 : (size_t)a->R * (size_t)a->C * sizeof(float));
    r.sum = pb_ns_place(&r.bytes, (size_t)a->R * sizeof(double));
    for (int i = 0; i < (gram ? 5 : 2); i++) r.small[i] = pb_ns_place(&r.bytes, m * m * pb_dtype_size(type));
    r.products = r.bytes;
    const pb_syrk_product_args g = pb_ns_gram(a, NULL, NULL, type);
    const pb_syrk_product_args s = pb_ns_square(a, pb_ns_factors_of(a->variant, 0), NULL, NULL, type);
    pb_gemm y = pb_ns_apply(a, NULL, type, NULL, NULL, true);
    if (!gram) y.c_dtype = PB_F32;
    const pb_gemm t = pb_ns_times(a, NULL, NULL, NULL, true);
    const size_t need[] = {pb_syrk_workspace(&g), pb_syrk_workspace(&s), pb_gemm_workspace(&y),
                           gram ? pb_gemm_workspace(&t) : 0};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (need[i] > most) most = need[i];
    r.bytes += most;
    return r;
}
#endif
