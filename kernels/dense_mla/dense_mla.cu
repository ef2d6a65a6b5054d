/* dense_mla.cu - the CUDA implementations of dense_mla: the passes of sparse_mla on a range of rows. */
#include "kernels/sparse_mla/mla_list.cuh"

PB_MLA_CUDA_LIST(dense_mla)
