/* cuda_list.cuh - finds the tensor that piece p belongs to, in a list of tensors in device memory that is divided into
 * pieces. The list may have any length; the host need not know its sizes. */
#ifndef PB_CUDA_LIST_CUH
#define PB_CUDA_LIST_CUH
#include "kernels/cuda/cuda.cuh"

/* State of pb_list_find for one warp: a window of 32 tensors, one per lane. Pieces must be looked up in ascending
 * order. Initialise with {}. */
struct pb_list_cursor {
    int next;             /* the first tensor after the window */
    uint32_t first, upto; /* this lane's tensor has the pieces first .. upto-1 of the list */
    uint32_t end;         /* number of the first piece after the window */
};

/* Returns the index of the tensor that `piece` belongs to, and in *within the piece's number inside this tensor; -1:
 * the list has fewer pieces. pieces(i) is the number of pieces of tensor i < n. All lanes of the warp must call it, and
 * all get the same result. */
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
