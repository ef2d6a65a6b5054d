/* sparse_mla.cu - the lists of CUDA implementations of sparse_mla, best first, and the arguments that each accepts. */
#include "kernels/sparse_mla/mla_list.cuh"

PB_MLA_CUDA_LIST(sparse_mla)
