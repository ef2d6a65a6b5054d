/* gemm.c - the engine of this machine. */
#include "kernels/core/gemm.h"

extern const float pb_nf4_level[16]; /* kernels/nf4/nf4.h */
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
