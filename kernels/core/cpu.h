/* cpu.h - the vectorised CPU implementations of an op: one source, compiled once per instruction set.
 *
 * family_fast.c is compiled for every instruction set of cmake/PbIsa.cmake with PB_ISA defined as its
 * name; PB_FAST(fn) gives each compilation its own symbol, and PB_FAST_IMPLS lists them best first, so
 * that the machine decides at run time and tests reach every one of them by name. */
#ifndef PB_CPU_H
#define PB_CPU_H
#include "kernels/core/op.h"

#define PB_CAT2(a, b) a##_##b
#define PB_CAT(a, b)  PB_CAT2(a, b)
#define PB_FAST(fn)   PB_CAT(fn, PB_ISA) /* inside family_fast.c */

/* True when this machine and its operating system run the instruction set. */
bool pb_cpu_has_avx512(void); /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */
bool pb_cpu_has_avx2(void);   /* x86-64-v3: AVX2, FMA, F16C */

/* PB_ISA_MAP(X, ...): every variant of this architecture, best first; "omp" is the baseline that any
 * machine runs. In step with cmake/PbIsa.cmake, which compiles them. */
#if defined(__x86_64__)
#define PB_ISA_MAP(X, ...)                                                                                             \
    X(avx512, pb_cpu_has_avx512, __VA_ARGS__)                                                                          \
    X(avx2, pb_cpu_has_avx2, __VA_ARGS__)                                                                              \
    X(omp, NULL, __VA_ARGS__)
#else
#define PB_ISA_MAP(X, ...) X(omp, NULL, __VA_ARGS__)
#endif

#define PB_FAST_PROTO(isa, has, fn) pb_status fn##_##isa(pb_ctx *ctx, const void *args);
#define PB_FAST_DECLARE(fn)         PB_ISA_MAP(PB_FAST_PROTO, fn)
/* The extra arguments are further fields of pb_impl, e.g. .workspace = ws. */
#define PB_FAST_ENTRY(isa, has, fn, ...) {#isa, fn##_##isa, .available = has, __VA_ARGS__},
#define PB_FAST_IMPLS(...)               PB_ISA_MAP(PB_FAST_ENTRY, __VA_ARGS__)

/* Every implementation list needs the CUDA side's name to exist; backend_none.c defines them all
 * empty in a build without CUDA. */
#endif
