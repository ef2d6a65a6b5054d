#!/bin/bash
# check_kernels_test.sh SOURCE - scripts/check-kernels: words that analysers misread are found in names, parameters and
# template parameters of kernels, and nowhere else.
source=$1
. "${0%/*}/../cli.sh"
check() { "$source/scripts/check-kernels" "$@"; }

while IFS='|' read -r code text; do
    printf '%s\n' "$code" >bad.cu
    expect 1 "bad.cu:1: " check "$dir/bad.cu"
    grep -qF "$text" log || fail "not said of '$code': $text"
done <<'BAD'
__global__ void ncclDevKernel_own(float *x) {}|'nccl', which analysers take for communication
static __global__ __launch_bounds__(256) void gather_NCCL(float *x) {}|'NCCL'
__global__ void fast_memcpy(float *x) {}|'memcpy', which analysers take for a copy
template <int N> __global__ void MemsetRows(float *x) {}|'Memset'
__global__ void mem_set(float *x);|'mem_set'
__global__ void dma_rows(float *x) {}|'dma', which analysers take for a copy
__global__ void gridSync(float *x) {}|'Sync', which analysers take for a wait
__global__ void rows(const SyncState *s) {}|'Sync'
template <class T = MemcpyPlan> __global__ void rows(T p) {}|'Memcpy'
BAD
cat >good.cu <<'GOOD'
/* ncclKernel, Memcpy */ __global__ void rows(float *x /* Memset */) // dma
{
    cudaMemcpyAsync(x, x, 4, cudaMemcpyDefault, 0);
    __syncthreads();
}
static __global__ void asynchronous(float *x) {}
static void cudaDeviceSynchronize_after(void) {}
GOOD
expect 0 '' check "$dir/good.cu"
printf 'void host(void);\n' >none.cu
expect 1 'no kernel was found' check "$dir/none.cu"
expect 0 '' check
[[ $failures -eq 0 ]] || { echo "$failures failed" && exit 1; }
