/* dynmask_keys_fast.c - the key lists of dynamic-mask attention on the CPU: a heap of the kept keys in exact mode, the
 * radix select of topk in union mode. The rows of all batch rows and kv heads are divided among the threads. Limit: the
 * dependent loads of the heap, and the histograms of topk. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/threads.h"
#include "kernels/dynmask_keys/plan.h"

/* ---- exact mode: a heap whose root is the kept key that ranks last -------------------------------------- */

/* Returns whether key x ranks after key y. */
static bool after(const float *bias, int x, int y) { return bias[x] == bias[y] ? x > y : bias[x] < bias[y]; }

/* Moves the key at `at` of the heap [n] towards the root until its parent ranks after it. */
static void rise(const float *bias, int32_t *heap, int at)
{
    const int32_t key = heap[at];
    for (; at > 0 && after(bias, key, heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
}

/* Replaces the root of the heap [n] by `key` and restores the order. */
static void replace_root(const float *bias, int32_t *heap, int n, int32_t key)
{
    int at = 0;
    for (int child = 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && after(bias, heap[child + 1], heap[child]);
        if (!after(bias, heap[child], key)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

/* Sets until[j] of the keys of a conversation: the first position that does not attend to the key, or j. */
static void evict(const float *bias, int from, int end, int keep, int32_t *until, int32_t *heap)
{
    int n = 0;
    for (int j = from; j < end; j++) {
        until[j] = j;
        if (bias[j] == -INFINITY) continue;
        if (n < keep) {
            heap[n] = j;
            rise(bias, heap, n++);
        } else {
            if (!after(bias, heap[0], j)) continue;
            until[heap[0]] = j;
            replace_root(bias, heap, n, j);
        }
        until[j] = end;
    }
}

/* ---- union mode: the first keys of a whole conversation ------------------------------------------------- */

static void pick(const float *bias, int from, int end, int keep, int32_t *until, uint32_t *keys, int32_t *list)
{
    const int most = keep < end - from ? keep : end - from;
    for (int j = from; j < end; j++) until[j] = j;
    PB_FAST(pb_topk_row)(bias + from, end - from, most, list, keys);
    for (int l = 0; l < most && list[l] >= 0; l++) until[from + list[l]] = end;
}

/* ---- both ------------------------------------------------------------------------------------------------ */

static void build_row(const pb_dynmask_keys_build_args *a, size_t r, int32_t *room)
{
    const float *bias = a->bias + r * a->S;
    const int32_t *start = a->start ? a->start + r / a->K * a->S : NULL;
    int32_t *list = a->list + r * a->L, *until = a->until + r * a->L, *to = room, *rest = room + pb_topk_row_room(a->S);
    int n = 0;
    for (int from = 0, end; from < a->S; from = end) {
        end = pb_dynmask_end(start, from, a->S);
        if (a->exact) evict(bias, from, end, a->keep, to, rest);
        else pick(bias, from, end, a->keep, to, (uint32_t *)rest, list + n); /* the picks are overwritten below */
        for (int j = from; j < end; j++)
            if (to[j] > j) list[n] = j, until[n++] = to[j];
    }
    for (; n < a->L; n++) list[n] = -1, until[n] = 0;
}

pb_status PB_FAST(pb_dynmask_keys_build)(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args *a = args;
    const size_t room = pb_dynmask_keys_room(a);
    PB_TRY(pb_dynmask_keys_ranked(a));
#pragma omp parallel for schedule(static) num_threads(pb_threads_for(ctx, 0, room))
    for (size_t r = 0; r < (size_t)a->B * a->K; r++)
        build_row(a, r, (int32_t *)ctx->scratch + omp_get_thread_num() * room);
    return PB_OK;
}
