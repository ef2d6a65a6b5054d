/* dynmask_bias.cu - no CUDA implementation yet: on a GPU the op reports EUNSUPPORTED. */
#include "kernels/dynmask_bias/dynmask_bias.h"

extern "C" const pb_impl pb_dynmask_bias_fwd_cuda[] = {{0}};
extern "C" const pb_impl pb_dynmask_bias_bwd_cuda[] = {{0}};
