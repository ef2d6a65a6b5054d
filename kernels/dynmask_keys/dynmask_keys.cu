/* dynmask_keys.cu - no CUDA implementation yet: on a GPU the op reports EUNSUPPORTED. */
#include "kernels/dynmask_keys/dynmask_keys.h"

extern "C" const pb_impl pb_dynmask_keys_build_cuda[] = {{0}};
