/* dense_mla.cu - the lists of CUDA implementations of dense_mla, best first, and the arguments that each accepts. */
#include "kernels/sparse_mla/mla_list.cuh"

PB_MLA_CUDA_LIST(dense_mla)
