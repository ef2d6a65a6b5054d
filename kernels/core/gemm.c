/* gemm.c - the engine of this machine. */
#include "kernels/core/gemm.h"

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
