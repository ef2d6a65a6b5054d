/* cpu.h - the vectorised CPU implementations of an op: one source file, compiled once per instruction set.
 *
 * family_fast.c is compiled for every instruction set of cmake/PbIsa.cmake; PB_ISA is defined as its name. PB_FAST(fn)
 * gives the function of each compilation its own symbol. PB_FAST_IMPLS lists all of them, the best first, so that the
 * choice is made at run time and tests can select each by name. */
#ifndef PB_CPU_H
#define PB_CPU_H
#include "kernels/engine/op.h"

#define PB_CAT2(a, b) a##_##b
#define PB_CAT(a, b)  PB_CAT2(a, b)
#define PB_FAST(fn)   PB_CAT(fn, PB_ISA) /* use inside family_fast.c only */

/* Return true if the processor and the operating system support the instruction set. */
bool pb_cpu_has_avx512(void); /* all of x86-64-v4, for which cmake/PbIsa.cmake compiles */
bool pb_cpu_has_avx2(void);   /* all of x86-64-v3 */

/* Registers of the CPUID leaves 1, 7 and 0x80000001 (what the processor supports), and XCR0 (what the operating system
 * saves and restores). */
typedef struct pb_cpuid {
    uint32_t ecx1, ebx7, ecx81, xcr0;
} pb_cpuid;
/* True if the processor and the operating system support every instruction of x86-64-v3, or of x86-64-v4. */
bool pb_cpu_is_v3(const pb_cpuid *c);
bool pb_cpu_is_v4(const pb_cpuid *c);

/* PB_ISA_MAP(X, ...): the instruction sets of this architecture, the best first. "omp" is the baseline that every
 * machine runs. cmake/PbIsa.cmake compiles them and must list the same names. */
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
/* Arguments after `fn` initialise further fields of the pb_impl, for example .workspace = ws. */
#define PB_FAST_ENTRY(isa, has, fn, ...) {#isa, fn##_##isa, .available = has, __VA_ARGS__},
#define PB_FAST_IMPLS(...)               PB_ISA_MAP(PB_FAST_ENTRY, __VA_ARGS__)

/* Every op also needs its list of CUDA implementations. In a build without CUDA, backend_none.c
 * defines these lists empty. */
#endif
