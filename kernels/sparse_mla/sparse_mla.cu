/* sparse_mla.cu - the CUDA implementations of sparse_mla, best first, and what each of them takes. */
#include "kernels/sparse_mla/mla_list.cuh"

PB_MLA_CUDA_LIST(sparse_mla)
