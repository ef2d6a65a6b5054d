/* dynmask_keys.cu - the key lists of dynamic-mask attention on the GPU. Three implementations:
 *
 * `all`: keep >= S and one conversation in each row. No key leaves, so the list is every key with a bias above -inf.
 *
 * `radix`: union mode with one conversation in each row. A CTA for each list selects its keys with the radix select of
 * topk, in five passes over the row; all queries from a key on attend to it.
 *
 * `blocks`: everything. Keys are processed in blocks of 256. Three kernels, one CTA for each block of each list:
 *     sort     sorts the biases of the block
 *     leave    each thread finds where its key leaves: for each other block of the conversation, a binary search counts
 *              the keys that rank before its own, until there are `keep`. The keys of the block in which that happens
 *              are then counted one by one.
 *     compact  writes the kept keys of the block to the list, after those of the blocks before it
 * So a key takes 9 comparisons for each other block, 256 in its own and at most 256 in the one where it leaves, and all S keys
 * are independent. Sums are integers: the result is exact. Kernel `leave` is bound by the latency of its searches. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "kernels/topk/topk.cuh"

namespace
{
constexpr int THREADS = 256, WARPS = THREADS / 32, BLOCK = THREADS; /* BLOCK: keys of a block */
constexpr unsigned ALL = 0xffffffffu;

/* The workspace of `blocks`. */
struct workspace {
    unsigned *sorted; /* [lists,blocks,BLOCK] order codes of a block's keys, ascending */
    int32_t *until;   /* [lists,S] the first position that does not attend to the key, or the key if no query does */
    int32_t *begin;   /* [lists,blocks] the first key of the block that begins a conversation, or INT_MAX */
    int32_t *kept;    /* [lists,blocks] keys of the block that the list holds */
    int blocks;
};
int blocks_of(const pb_dynmask_keys_build_args &a) { return (a.S + BLOCK - 1) / BLOCK; }
size_t workspace_bytes(const void *args)
{
    const pb_dynmask_keys_build_args *a = (const pb_dynmask_keys_build_args *)args;
    return (size_t)a->B * a->K * ((size_t)blocks_of(*a) * (BLOCK + 2) + (size_t)a->S) * sizeof(int32_t);
}
workspace workspace_at(void *room, const pb_dynmask_keys_build_args &a)
{
    const size_t lists = (size_t)a.B * a.K;
    workspace w;
    w.blocks = blocks_of(a);
    w.sorted = (unsigned *)room;
    w.until = (int32_t *)(w.sorted + lists * w.blocks * BLOCK);
    w.begin = w.until + lists * a.S;
    w.kept = w.begin + lists * w.blocks;
    return w;
}

__device__ inline bool begins(const int32_t *start, int j) { return j == 0 || (start && start[j] == j); }

/* The order code of a bias: a number that is larger if the bias is larger, equal for 0 and -0, and above 0. The keys of
 * other threads are compared with it. A NaN has the code 0 there, so it ranks before no key. */
__device__ inline unsigned code_of(float bias)
{
    const unsigned bits = __float_as_uint(bias + 0.0f); /* -0 + 0 = 0 */
    if (bias != bias) return 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/* The order code of the key whose end a thread looks for. A NaN has the largest number: no key ranks before it, so it
 * stays to the end of its conversation. */
__device__ inline unsigned own_code_of(float bias) { return bias != bias ? 0xffffffffu : code_of(bias); }

/* The list, the row of `start` and the block of a CTA. */
struct place {
    size_t list;
    int block, j; /* j: the key of this thread; may be S or more */
    const float *bias;
    const int32_t *start;
};
__device__ inline place place_of(const pb_dynmask_keys_build_args &a, int blocks)
{
    place p;
    p.list = blockIdx.x / blocks, p.block = (int)(blockIdx.x % blocks);
    p.j = p.block * BLOCK + (int)threadIdx.x;
    p.bias = a.bias + p.list * a.S;
    p.start = a.start ? a.start + p.list / a.K * a.S : NULL;
    return p;
}

__global__ __launch_bounds__(THREADS) void sort_kernel(const pb_dynmask_keys_build_args a, const workspace w)
{
    __shared__ alignas(16) unsigned code[BLOCK];
    __shared__ int first[WARPS];
    const place p = place_of(a, w.blocks);
    const int t = (int)threadIdx.x;
    const unsigned own = p.j < a.S ? code_of(p.bias[p.j]) : 0;
    const unsigned begin = __ballot_sync(ALL, p.j < a.S && begins(p.start, p.j));
    int at = 0;
    code[t] = own;
    if (t % 32 == 0) first[t / 32] = begin ? p.j + __ffs((int)begin) - 1 : INT_MAX;
    __syncthreads();
#pragma unroll 4
    for (int i = 0; i < BLOCK; i += 4) {
        const uint4 r = *reinterpret_cast<const uint4 *>(code + i);
        at += (r.x < own || (r.x == own && i < t)) + (r.y < own || (r.y == own && i + 1 < t)) +
              (r.z < own || (r.z == own && i + 2 < t)) + (r.w < own || (r.w == own && i + 3 < t));
    }
    w.sorted[(size_t)blockIdx.x * BLOCK + at] = own;
    if (t == 0) {
        for (int i = 1; i < WARPS; i++) first[0] = min(first[0], first[i]);
        w.begin[blockIdx.x] = first[0];
    }
}

/* Returns how many of the BLOCK ascending numbers are below `bound`. */
__device__ inline int below(const unsigned *sorted, unsigned bound)
{
    int at = 0;
#pragma unroll
    for (int step = BLOCK / 2; step > 0; step /= 2) at += sorted[at + step - 1] < bound ? step : 0;
    return at + (sorted[at] < bound);
}

/* The search for the position at which key j leaves. `before`: keys found so far that rank before it. */
struct search {
    int j, from, keep, before;
    unsigned own;
    bool open; /* the position is still to be found */
    int until; /* if not open; without a bias: j */
};

/* Counts the keys before j that rank before it, in the blocks before its own. All threads must call it. */
__device__ inline void count_earlier(search &s, const place &p, const unsigned *sorted_of_list,
                                     unsigned (&sorted)[2][BLOCK], int first_block)
{
    for (int b = first_block; b < p.block; b++) {
        unsigned(&now)[BLOCK] = sorted[b % 2];
        now[threadIdx.x] = sorted_of_list[(size_t)b * BLOCK + threadIdx.x];
        if (!__syncthreads_or(s.open)) return;
        if (!s.open || s.from >= (b + 1) * BLOCK) continue;
        if (s.from <= b * BLOCK) s.before += BLOCK - below(now, s.own);
        else
            for (int i = s.from; i < (b + 1) * BLOCK; i++) s.before += code_of(p.bias[i]) >= s.own;
        if (s.before >= s.keep) s.open = false, s.until = s.j;
    }
}

/* The keys [first, end) among which a key leaves, or at whose end its conversation ends; empty: not found yet. */
struct span {
    int first, end;
};

/* Returns how many of the keys [lo, hi) of a block have order code `least` or more. lo, hi: multiples of 4. */
__device__ inline int at_least(const unsigned *code, int lo, int hi, unsigned least)
{
    int n = 0;
    for (int i = lo; i < hi; i += 4) {
        const uint4 r = *reinterpret_cast<const uint4 *>(code + i);
        n += (r.x >= least) + (r.y >= least) + (r.z >= least) + (r.w >= least);
    }
    return n;
}

/* Returns the first key of the block after key `own` that begins a conversation, or n. begin: bit i % 32 of word i / 32
 * says that key i of the block does. */
__device__ inline int next_begin(const unsigned *begin, int own, int n)
{
    unsigned later = begin[own / 32] & ~(2u * (1u << own % 32) - 1);
    for (int word = own / 32; word < WARPS; later = ++word < WARPS ? begin[word] : 0)
        if (later) return min(word * 32 + __ffs((int)later) - 1, n);
    return n;
}

/* Counts the keys of the thread's own block, which has n keys from key `first` on. `begin`: as in next_begin(). */
__device__ inline span count_own(search &s, const unsigned *code, const unsigned *begin, int first, int n)
{
    const int own = (int)threadIdx.x, from = max(s.from - first, 0), end = own < n ? next_begin(begin, own, n) : n;
    const int warp = own / 32 * 32; /* the keys of this warp are counted one by one, the others four at a time */
    const unsigned above = s.own == ALL ? ALL : s.own + 1;
    int before = 0, after = 0;
    for (int i = warp; i < warp + 32; i++) {
        before += i >= from && i < own && code[i] >= s.own;
        after += i > own && i < end && code[i] > s.own;
    }
    if (from == 0) before += at_least(code, 0, warp, s.own);
    else
        for (int i = from; i < warp; i++) before += code[i] >= s.own;
    if (end == n) after += at_least(code, warp + 32, BLOCK, above); /* keys past the row have code 0 */
    else
        for (int i = warp + 32; i < end; i++) after += code[i] > s.own;
    s.before += before;
    if (s.open && s.before >= s.keep) s.open = false, s.until = s.j;
    if (s.open && (end < n || s.before + after >= s.keep)) return {s.j + 1, first + end};
    s.before += after;
    return {0, 0};
}

/* Counts the keys of the blocks after its own, up to the one in which the key leaves or its conversation ends. All
 * threads must call it. */
__device__ inline span count_later(search &s, bool seeks, const place &p, const workspace &w,
                                   const unsigned *sorted_of_list, unsigned (&sorted)[2][BLOCK], int S)
{
    span found = {0, 0};
    for (int b = p.block + 1; b < w.blocks; b++) {
        unsigned(&now)[BLOCK] = sorted[b % 2];
        now[threadIdx.x] = sorted_of_list[(size_t)b * BLOCK + threadIdx.x];
        if (!__syncthreads_or(seeks)) break;
        if (!seeks) continue;
        const int n = s.own == ALL ? 0 : BLOCK - below(now, s.own + 1), begin = w.begin[p.list * w.blocks + b];
        if (begin == INT_MAX && s.before + n < s.keep) s.before += n;
        else found = {b * BLOCK, min(begin, min((b + 1) * BLOCK, S))}, seeks = false;
    }
    return found;
}

/* Loads the biases of a span: lane l gets those of keys l, l + 32, ... of it. */
enum { EACH = BLOCK / 32 };
__device__ inline void load_span(float (&value)[EACH], const span &all, const float *bias)
{
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int i = all.first + e * 32 + (int)threadIdx.x % 32;
        value[e] = i < all.end ? bias[i] : -INFINITY;
    }
}
__device__ inline span span_of(const span &own, int lane)
{
    return {__shfl_sync(ALL, own.first, lane), __shfl_sync(ALL, own.end, lane)};
}

/* Finds the position in each lane's span at which its key leaves, or else the end of the span. The warp looks at one
 * span after the other, so that its loads are contiguous, and loads the next while it counts. */
__device__ inline void find_ends(search &s, const span &own, float own_bias, const float *bias)
{
    const int lane = (int)threadIdx.x % 32;
    unsigned left = __ballot_sync(ALL, s.open && own.end > 0);
    float next[EACH];
    if (left) load_span(next, span_of(own, __ffs((int)left) - 1), bias);
    while (left) {
        const int of = __ffs((int)left) - 1;
        const span all = span_of(own, of);
        const float least = __shfl_sync(ALL, own_bias, of);
        int need = s.keep - __shfl_sync(ALL, s.before, of), until = all.end;
        unsigned better[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) better[e] = __ballot_sync(ALL, next[e] > least);
        left &= left - 1;
        if (left) load_span(next, span_of(own, __ffs((int)left) - 1), bias);
#pragma unroll
        for (int e = 0; e < EACH; e++) { /* the need-th of the set bits */
            const int earlier = __popc(better[e] & ((1u << lane) - 1)), n = __popc(better[e]);
            const unsigned hit = __ballot_sync(ALL, (better[e] >> lane & 1) && earlier == need - 1);
            if (hit) until = all.first + e * 32 + __ffs((int)hit) - 1;
            need -= n;
        }
        if (lane == of) s.until = until;
    }
}

__global__ __launch_bounds__(THREADS) void leave_kernel(const pb_dynmask_keys_build_args a, const workspace w)
{
    __shared__ alignas(16) unsigned code[BLOCK];
    __shared__ unsigned sorted[2][BLOCK], begin[WARPS];
    const place p = place_of(a, w.blocks);
    const unsigned *sorted_of_list = w.sorted + p.list * w.blocks * BLOCK;
    const int first = p.block * BLOCK, t = (int)threadIdx.x;
    const bool exists = p.j < a.S;
    const float bias = exists ? p.bias[p.j] : -INFINITY;
    search s = {p.j, p.start && exists ? p.start[p.j] : 0, a.keep, 0, own_code_of(bias), bias != -INFINITY, p.j};
    const unsigned starts = __ballot_sync(ALL, exists && begins(p.start, p.j));
    code[t] = exists ? code_of(bias) : 0;
    if (t % 32 == 0) begin[t / 32] = starts;
    __syncthreads();
    count_earlier(s, p, sorted_of_list, sorted, (p.start ? p.start[first] : 0) / BLOCK);
    span end = count_own(s, code, begin, first, min((int)BLOCK, a.S - first));
    __syncthreads(); /* `sorted` is written again */
    const span later = count_later(s, s.open && !end.end, p, w, sorted_of_list, sorted, a.S);
    if (!end.end) end = later;
    if (s.open) s.until = a.S; /* where no span is found */
    find_ends(s, end, bias, p.bias);
    /* In union mode a key is in the list only if it stays to the end of its conversation. */
    if (!a.exact && s.until > p.j && s.until < a.S && !begins(p.start, s.until)) s.until = p.j;
    if (exists) w.until[p.list * a.S + p.j] = s.until;
    const int kept = __syncthreads_count(exists && s.until > p.j);
    if (t == 0) w.kept[blockIdx.x] = kept;
}

/* Returns the sum of `mine` over the threads before this one; *sum: over all threads. */
__device__ inline int sum_before(bool mine, int (&warp)[WARPS], int *sum)
{
    const int lane = (int)threadIdx.x % 32, wid = (int)threadIdx.x / 32;
    const unsigned bits = __ballot_sync(ALL, mine);
    int before = __popc(bits & ((1u << lane) - 1));
    if (lane == 0) warp[wid] = __popc(bits);
    __syncthreads();
    *sum = 0;
    for (int i = 0; i < WARPS; i++) {
        if (i < wid) before += warp[i];
        *sum += warp[i];
    }
    return before;
}

/* Adds the numbers of all threads to `total`, in shared memory. */
__device__ inline void add_to(int (&total)[2], int earlier, int all)
{
    earlier = (int)__reduce_add_sync(ALL, (unsigned)earlier), all = (int)__reduce_add_sync(ALL, (unsigned)all);
    if (threadIdx.x % 32 == 0) atomicAdd(&total[0], earlier), atomicAdd(&total[1], all);
}

/* Writes the unused slots: this CTA is number `part` of `parts`, and the list has n keys. */
__device__ inline void write_unused(int32_t *list, int32_t *until, int n, int L, int part, int parts)
{
    for (int l = part * THREADS + (int)threadIdx.x; l < L; l += parts * THREADS)
        if (l >= n) list[l] = -1, until[l] = 0;
}

/* Writes the kept keys of a block. With NaN, more keys than the list has room for may be kept: the last are dropped. */
__global__ __launch_bounds__(THREADS) void compact_kernel(const pb_dynmask_keys_build_args a, const workspace w)
{
    __shared__ int warp[WARPS], total[2];
    const place p = place_of(a, w.blocks);
    const int32_t *kept = w.kept + p.list * w.blocks;
    const int to = p.j < a.S ? w.until[p.list * a.S + p.j] : 0;
    int32_t *list = a.list + p.list * a.L, *until = a.until + p.list * a.L;
    int earlier = 0, all = 0, of_block;
    if (threadIdx.x < 2) total[threadIdx.x] = 0;
    __syncthreads();
    for (int b = (int)threadIdx.x; b < w.blocks; b += THREADS) {
        all += kept[b];
        if (b < p.block) earlier += kept[b];
    }
    add_to(total, earlier, all);
    const int at = sum_before(to > p.j, warp, &of_block) + total[0]; /* sum_before() synchronises */
    if (to > p.j && at < a.L) list[at] = p.j, until[at] = to;
    write_unused(list, until, total[1], a.L, p.block, w.blocks);
}

/* Writes a block of the keys with a bias above -inf. */
__global__ __launch_bounds__(THREADS) void all_kernel(const pb_dynmask_keys_build_args a, int blocks)
{
    __shared__ int warp[WARPS], total[2];
    const place p = place_of(a, blocks);
    int32_t *list = a.list + p.list * a.L, *until = a.until + p.list * a.L;
    int earlier = 0, all = 0, of_block;
    if (threadIdx.x < 2) total[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (int j = (int)threadIdx.x; j < a.S; j += BLOCK) {
        const bool kept = p.bias[j] != -INFINITY;
        all += kept, earlier += kept && j < p.block * BLOCK;
    }
    add_to(total, earlier, all);
    const bool kept = p.j < a.S && p.bias[p.j] != -INFINITY;
    const int at = sum_before(kept, warp, &of_block) + total[0]; /* sum_before() synchronises */
    if (kept) list[at] = p.j, until[at] = a.S;
    write_unused(list, until, total[1], a.L, p.block, blocks);
}

__global__ __launch_bounds__(TOPK_THREADS) void radix_kernel(const pb_dynmask_keys_build_args a)
{
    __shared__ topk_smem sm;
    const size_t r = blockIdx.x;
    const int most = min(a.keep, a.S);
    int32_t *list = a.list + r * a.L, *until = a.until + r * a.L;
    topk_row(sm, a.bias + r * a.S, 0, a.S, most, list);
    __syncthreads();
    for (int l = threadIdx.x; l < a.L; l += TOPK_THREADS) {
        if (l >= most) list[l] = -1;
        until[l] = list[l] < 0 ? 0 : a.S;
    }
}

pb_status build_radix(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args a = *(const pb_dynmask_keys_build_args *)args;
    radix_kernel<<<(unsigned)(a.B * a.K), TOPK_THREADS, 0, pb_cuda_stream(ctx)>>>(a);
    return pb_cuda_launched(ctx, "dynmask_keys_radix");
}
bool radix_takes(const void *args)
{
    const pb_dynmask_keys_build_args *a = (const pb_dynmask_keys_build_args *)args;
    return !a->exact && !a->start;
}

pb_status build_all(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args a = *(const pb_dynmask_keys_build_args *)args;
    const int blocks = blocks_of(a);
    all_kernel<<<(unsigned)(a.B * a.K * blocks), THREADS, 0, pb_cuda_stream(ctx)>>>(a, blocks);
    return pb_cuda_launched(ctx, "dynmask_keys_all");
}
bool all_takes(const void *args)
{
    const pb_dynmask_keys_build_args *a = (const pb_dynmask_keys_build_args *)args;
    return a->keep >= a->S && !a->start;
}

pb_status build_blocks(pb_ctx *ctx, const void *args)
{
    const pb_dynmask_keys_build_args a = *(const pb_dynmask_keys_build_args *)args;
    const workspace w = workspace_at(ctx->scratch, a);
    const unsigned ctas = (unsigned)(a.B * a.K * w.blocks);
    sort_kernel<<<ctas, THREADS, 0, pb_cuda_stream(ctx)>>>(a, w);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_keys_sort"));
    leave_kernel<<<ctas, THREADS, 0, pb_cuda_stream(ctx)>>>(a, w);
    PB_TRY(pb_cuda_launched(ctx, "dynmask_keys_leave"));
    compact_kernel<<<ctas, THREADS, 0, pb_cuda_stream(ctx)>>>(a, w);
    return pb_cuda_launched(ctx, "dynmask_keys_compact");
}

} // namespace

extern "C" {
extern const pb_impl pb_dynmask_keys_build_cuda[] = {
    {.name = "all", .run = build_all, .accepts = all_takes},
    {.name = "radix", .run = build_radix, .accepts = radix_takes},
    {.name = "blocks", .run = build_blocks, .workspace = workspace_bytes},
    {0},
};
}
