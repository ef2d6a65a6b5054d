/* syrk.cu - the symmetric product on a GPU. */
#include "kernels/syrk/syrk.h"

extern "C" const pb_impl pb_syrk_product_cuda[] = {{0}};
