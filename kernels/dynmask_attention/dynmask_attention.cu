/* dynmask_attention.cu - no CUDA implementation yet: on a GPU the op reports EUNSUPPORTED. */
#include "kernels/dynmask_attention/dynmask_attention.h"

extern "C" const pb_impl pb_dynmask_attention_fwd_cuda[] = {{0}};
extern "C" const pb_impl pb_dynmask_attention_bwd_cuda[] = {{0}};
