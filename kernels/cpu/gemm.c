/* gemm.c - runs the matrix product that is compiled for this machine's best instruction set, sizes its workspace, and
 * defines the levels of NF4. */
#include "kernels/cpu/gemm.h"

#include <omp.h>

#include "kernels/cpu/gemm_plan.h"
#include "kernels/nf4/nf4.h"

/* The values that the 16 NF4 codes stand for: quantiles of the normal distribution, scaled to [-1,1]. From
 * bitsandbytes, functional.py, get_4bit_type("nf4"). */
const float pb_nf4_level[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

size_t pb_gemm_workspace(const pb_gemm *g)
{
    if (pb_gemm_is_few(g)) return (size_t)g->M * pb_gemm_few_ld(g) * sizeof(float);
    const pb_gemm_plan p = pb_gemm_plan_of(g);
    const size_t threads = g->serial ? 1 : (size_t)omp_get_max_threads();
    return ((p.twice ? 2 : 1) * p.shared + p.buffer + threads * p.mine) * sizeof(float);
}

typedef void (*engine)(const pb_gemm *g);

void pb_gemm_best(const pb_gemm *g)
{
    static const struct {
        engine run;
        bool (*has)(void);
    } engines[] = {
#define X(isa, can, ...) {pb_gemm_run_##isa, can},
        PB_ISA_MAP(X, )
#undef X
    };
    for (size_t i = 0;; i++)
        if (!engines[i].has || engines[i].has()) {
            engines[i].run(g);
            return;
        }
}
