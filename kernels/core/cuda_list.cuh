/* cuda_list.cuh - walking over a list of tensors in device memory that is cut into pieces: which tensor does piece p
 * belong to? The list may have any length; nothing about it is known to the host. */
#ifndef PB_CUDA_LIST_CUH
#define PB_CUDA_LIST_CUH
#include "kernels/core/cuda.cuh"

/* A warp's window of 32 tensors. Pieces must be asked for in ascending order. Start with {}. */
struct pb_list_cursor {
    int next;             /* the first tensor after the window */
    uint32_t first, upto; /* pieces before this lane's tensor; and with it */
    uint32_t end;         /* pieces up to the window's end */
};

/* Finds the tensor of `piece`: returns its index, -1 when the list ends before, and the piece's number within it.
 * pieces(i) is the number of pieces of tensor i < n. Every lane of the warp takes part and gets the same answer. */
template <class PIECES>
__device__ static inline int pb_list_find(pb_list_cursor *c, int n, uint32_t piece, uint32_t *within, PIECES pieces)
{
    const int lane = threadIdx.x % 32;
    while (piece >= c->end) {
        if (c->next >= n) return -1;
        const int i = c->next + lane;
        const uint32_t mine = i < n ? pieces(i) : 0;
        uint32_t upto = mine;
        for (int d = 1; d < 32; d *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffu, upto, d);
            if (lane >= d) upto += other;
        }
        c->upto = c->end + upto;
        c->first = c->upto - mine;
        c->end = __shfl_sync(0xffffffffu, c->upto, 31);
        c->next += 32;
    }
    const int who = __ffs(__ballot_sync(0xffffffffu, c->upto > piece)) - 1;
    *within = piece - __shfl_sync(0xffffffffu, c->first, who);
    return c->next - 32 + who;
}
#endif
