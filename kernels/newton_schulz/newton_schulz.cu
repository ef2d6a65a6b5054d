/* newton_schulz.cu - the Newton-Schulz iteration on a GPU. */
#include "kernels/newton_schulz/newton_schulz.h"

extern "C" const pb_impl pb_newton_schulz_run_cuda[] = {{0}};
