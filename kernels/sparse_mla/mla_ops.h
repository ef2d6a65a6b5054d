/* mla_ops.h - PB_MLA_OP defines one pass of sparse_mla or dense_mla as an op: its descriptor and its list of CPU
 * implementations. */
#ifndef PB_MLA_OPS_H
#define PB_MLA_OPS_H
#include "kernels/cpu/cpu.h"
#include "kernels/sparse_mla/convert.h"

PB_FAST_DECLARE(pb_mla_fwd)
PB_FAST_DECLARE(pb_mla_bwd)

/* Defines the op f_pass. lists: true if the op has key lists. The including file defines axes, edge, grid, device_grid
 * and
 *     static void bind_keys(pb_binder *b, const int *dim, pb_mla *p)
 *     static bool wide_of(const int *dim)
 * The first sets the key lists of p (sparse_mla), or its causal and window (dense_mla). The second is true if dkv is
 * f32 for a shape. Arguments after `lists` initialise further fields of the pb_op. */
#define PB_MLA_OP(f, pass, lists, ...)                                                                                 \
    static pb_status pass##_check(const void *args)                                                                    \
    {                                                                                                                  \
        const pb_mla p = pb_mla_##pass##_problem(args);                                                                \
        return pb_mla_check(#f "_" #pass, &p, lists);                                                                  \
    }                                                                                                                  \
    static pb_status pass##_bind(pb_binder *b, const int *dim, void *args)                                             \
    {                                                                                                                  \
        pb_mla p = pb_mla_##pass##_bind(b, dim, wide_of(dim));                                                         \
        bind_keys(b, dim, &p);                                                                                         \
        *(pb_mla_##pass##_args *)args = pb_mla_##pass##_of(&p);                                                        \
        return b->status;                                                                                              \
    }                                                                                                                  \
    const pb_impl pb_##f##_##pass##_cpu[] = {                                                                          \
        PB_FAST_IMPLS(pb_mla_##pass, .workspace = pb_mla_##pass##_fast_workspace){                                     \
            "ref", pb_mla_##pass##_ref, .workspace = pb_mla_##pass##_ref_workspace},                                   \
        {0},                                                                                                           \
    };                                                                                                                 \
    static const pb_number pass##_numbers[] = {PB_NUMBER(pb_mla_##pass##_args, scale), {0}};                           \
    const pb_op pb_op_##f##_##pass = {.name = #f "_" #pass,                                                            \
                                      .axes = axes,                                                                    \
                                      .edge = (const pb_dims *)edge,                                                   \
                                      .grid = (const pb_dims *)grid,                                                   \
                                      .device_grid = (const pb_dims *)device_grid,                                     \
                                      .args_size = sizeof(pb_mla_##pass##_args),                                       \
                                      .numbers = pass##_numbers,                                                       \
                                      .impls = PB_BOTH_BACKENDS(f, pass),                                              \
                                      .check = pass##_check,                                                           \
                                      .bind = pass##_bind,                                                             \
                                      .prepare = pb_mla_##pass##_prepare,                                              \
                                      .cost = pb_mla_##pass##_cost,                                                    \
                                      .tol = PB_MLA_TOL,                                                               \
                                      __VA_ARGS__};
#endif
