/* cuda_blas.cu - computes the matrix products of gemm.h (pb_gemm) with cuBLASLt. The algorithm for a shape is looked up
 * once and kept in a table. */
#include "kernels/cuda/cuda_blas.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/blas_choice.h"
#include "kernels/cuda/cuda.cuh"

enum { SLOTS = 1024, PROBES = 8 };
static const size_t workspace_bytes = (size_t)32 << 20; /* the size that NVIDIA recommends for Hopper */
/* An f32 product with a longer K is divided into calls that add to C: a single running sum of 50,000 terms would lose
 * more than the tolerance of 1e-6 allows. */
static const int f32_piece = 2048;

/* Everything that the choice of an algorithm depends on. Shapes are compared as bytes, so the struct is zeroed before
 * it is filled. */
struct shape {
    size_t lda, ldb, ldc, step_a, step_b, step_c;
    int M, N, K, batch;
    int sms;                                        /* the SMs that the product may use; 0: all */
    unsigned align_a, align_b, align_c, align_bias; /* bytes, powers of two; align_bias 0: no bias */
    pb_dtype ab, c;
    unsigned char trans_a, trans_b, accumulate;
};

struct slot {
    shape key;
    cublasLtMatmulAlgo_t algo;
    unsigned char used, fits; /* fits 0: the library has no algorithm for this shape */
};

struct pb_cuda_blas {
    cublasLtHandle_t handle;
    void *workspace;
    slot slots[SLOTS];
};

/* The descriptors of one call. cuBLASLt is column-major, so it computes C^T = B^T A^T with A and B exchanged. */
struct call {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c;
};

static pb_status blas_failed(cublasStatus_t s, const char *call)
{
    return pb_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? PB_ENOMEM : PB_EDEVICE, "cuda: %s failed: %s", call,
                   cublasLtGetStatusString(s));
}
#define BLAS_TRY(expr)                                                                                                 \
    do {                                                                                                               \
        const cublasStatus_t blas_s_ = (expr);                                                                         \
        if (blas_s_ != CUBLAS_STATUS_SUCCESS) return blas_failed(blas_s_, #expr);                                      \
    } while (0)

pb_status pb_cuda_blas_open(pb_cuda_blas **out)
{
    pb_cuda_blas *b = (pb_cuda_blas *)calloc(1, sizeof *b);
    if (!b) return pb_fail(PB_ENOMEM, "cuda: no host memory for the table of cuBLASLt plans");
    *out = b; /* the caller closes *out also after a failure */
    BLAS_TRY(cublasLtCreate(&b->handle));
    return pb_cuda_malloc(workspace_bytes, &b->workspace);
}

size_t pb_cuda_blas_version(void) { return cublasLtGetVersion(); }

void pb_cuda_blas_close(pb_cuda_blas *b)
{
    if (!b) return;
    if (b->handle) (void)cublasLtDestroy(b->handle);
    (void)cudaFree(b->workspace);
    free(b);
}

static cudaDataType_t type_of(pb_dtype t) { return t == PB_F32 ? CUDA_R_32F : CUDA_R_16BF; }

/* Returns the largest power of two, at most 256, that divides both the address p and `step`, the bytes between
 * two matrices of a batch. */
static unsigned alignment_of(const void *p, size_t step)
{
    const uintptr_t bits = (uintptr_t)p | step, lowest = bits & (~bits + 1);
    return lowest == 0 || lowest > 256 ? 256 : (unsigned)lowest;
}

/* The terms that are added to a product: E times beta, which may be C itself, and a bias of C's type. */
struct addends {
    const void *e, *bias;
    float beta;
};
static addends of_gemm(const pb_gemm *g, const void *bias) { return {g->c, bias, g->accumulate ? 1.0f : 0.0f}; }

/* sms: the number of SMs that the product may use; 0: all */
static shape shape_of(const pb_gemm *g, const addends *add, const pb_gemm_batch *batch, int sms)
{
    const size_t ab = pb_dtype_size(g->a.dtype), c = pb_dtype_size(g->c_dtype);
    shape s;
    memset(&s, 0, sizeof s);
    s.lda = g->a.ld, s.ldb = g->b.ld, s.ldc = g->ldc;
    s.M = g->M, s.N = g->N, s.K = g->K;
    s.sms = sms;
    s.batch = batch->n, s.step_a = batch->a, s.step_b = batch->b, s.step_c = batch->c;
    s.align_a = alignment_of(g->a.p, batch->a * ab), s.align_b = alignment_of(g->b.p, batch->b * ab);
    s.align_c = alignment_of(g->c, batch->c * c);
    const unsigned align_e = alignment_of(add->e, batch->c * c);
    if (align_e < s.align_c) s.align_c = align_e;
    s.ab = g->a.dtype, s.c = g->c_dtype;
    s.trans_a = g->a.trans, s.trans_b = g->b.trans, s.accumulate = add->beta != 0;
    s.align_bias = add->bias ? alignment_of(add->bias, 0) : 0;
    return s;
}

static cublasStatus_t layout(cublasLtMatrixLayoutOpaque_t *l, pb_dtype t, int rows, int cols, bool swapped, size_t ld)
{
    return cublasLtMatrixLayoutInit(l, type_of(t), (uint64_t)(swapped ? cols : rows), (uint64_t)(swapped ? rows : cols),
                                    (int64_t)ld);
}

static cublasStatus_t strided(cublasLtMatrixLayoutOpaque_t *l, int batch, size_t step)
{
    const int64_t offset = (int64_t)step;
    const int32_t n = batch;
    const cublasStatus_t s = cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    return cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset);
}

#define SET(desc, what, value) BLAS_TRY(cublasLtMatmulDescSetAttribute(desc, what, &(value), sizeof(value)))

/* Fills the descriptors of a call. They are on the stack: nothing is allocated, so the call can be recorded into a
 * graph. */
static pb_status describe(const shape *s, const void *bias, call *k)
{
    const cublasOperation_t a = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, b = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    BLAS_TRY(cublasLtMatmulDescInit(&k->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(&k->desc, CUBLASLT_MATMUL_DESC_TRANSA, a);
    SET(&k->desc, CUBLASLT_MATMUL_DESC_TRANSB, b);
    if (bias) {
        SET(&k->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
        SET(&k->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (s->sms) SET(&k->desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, s->sms);
    BLAS_TRY(layout(&k->a, s->ab, s->N, s->K, s->trans_b, s->ldb));
    BLAS_TRY(layout(&k->b, s->ab, s->K, s->M, s->trans_a, s->lda));
    BLAS_TRY(layout(&k->c, s->c, s->N, s->M, false, s->ldc));
    if (s->batch == 1) return PB_OK;
    BLAS_TRY(strided(&k->a, s->batch, s->step_b));
    BLAS_TRY(strided(&k->b, s->batch, s->step_a));
    BLAS_TRY(strided(&k->c, s->batch, s->step_c));
    return PB_OK;
}

#define PREFER(what, value) BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(&p, what, &(value), sizeof(value)))

/* The tiles that blas_choice.h has rates for: the first number is along cuBLASLt's rows, which are our columns. */
static const struct {
    int id, cols, rows;
} tiles[] = {
    {CUBLASLT_MATMUL_TILE_96x128, 96, 128},   {CUBLASLT_MATMUL_TILE_112x128, 112, 128},
    {CUBLASLT_MATMUL_TILE_128x128, 128, 128}, {CUBLASLT_MATMUL_TILE_144x128, 144, 128},
    {CUBLASLT_MATMUL_TILE_128x160, 128, 160}, {CUBLASLT_MATMUL_TILE_168x128, 168, 128},
    {CUBLASLT_MATMUL_TILE_176x128, 176, 128},
};

template <typename T> static T config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what)
{
    T value = 0;
    size_t written;
    (void)cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

/* In cuBLASLt 13.0 algorithm 66 has the kernels for Hopper, and bit 2 of its custom option selects the cooperative
 * schedule. The documentation does not say so: it was read off the names of the kernels that ran, which then contain
 * "coop". If another version uses the bit otherwise, a slower kernel may be taken, with the same result. */
static pb_blas_offer offer_of(const cublasLtMatmulAlgo_t *algo)
{
    enum { HOPPER = 66, COOPERATIVE = 4 };
    pb_blas_offer o = {0, 0, false, config<int>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) != 1};
    const int tile = config<int>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
    if (config<int>(algo, CUBLASLT_ALGO_CONFIG_ID) != HOPPER) return o;
    o.ping_pong = !(config<int>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) & COOPERATIVE);
    for (const auto &t : tiles)
        if (t.id == tile) o.rows = t.rows, o.cols = t.cols;
    return o;
}

/* Asks the heuristic for algorithms and takes one (blas_choice.h). Split-K is allowed only with f32 partial sums in the
 * workspace, which are added in a fixed order (deterministic). */
static pb_status choose(pb_cuda_blas *blas, call *k, int sms, slot *to)
{
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreferenceOpaque_t p;
    enum { OFFERS = 8 }; /* it never offered more, however many were asked for */
    cublasLtMatmulHeuristicResult_t found[OFFERS];
    pb_blas_offer offers[OFFERS];
    int n = 0;
    BLAS_TRY(cublasLtMatmulPreferenceInit(&p));
    PREFER(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    PREFER(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, to->key.align_b);
    PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, to->key.align_a);
    PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, to->key.align_c);
    PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, to->key.align_c);
    const cublasStatus_t s =
        cublasLtMatmulAlgoGetHeuristic(blas->handle, &k->desc, &k->a, &k->b, &k->c, &k->c, &p, OFFERS, found, &n);
    to->fits = s == CUBLAS_STATUS_SUCCESS && n > 0 && found[0].state == CUBLAS_STATUS_SUCCESS;
    if (!to->fits) return PB_OK;
    for (int i = 0; i < n; i++) offers[i] = offer_of(&found[i].algo);
    const int take = to->key.batch == 1 ? pb_blas_choice(offers, n, to->key.M, to->key.N, to->key.K, sms) : 0;
    to->algo = found[take].algo;
    return PB_OK;
}

static size_t hash(const shape *s)
{
    const unsigned char *p = (const unsigned char *)s;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ p[i]) * 1099511628211u;
    return (size_t)(h >> 20);
}

/* Returns the slot of this shape in a hash table with linear probing. If other shapes hold all PROBES slots, the first
 * slot is overwritten, and its old shape is looked up again when it is next used. */
static slot *slot_of(pb_cuda_blas *blas, const shape *key)
{
    const size_t home = hash(key);
    for (size_t i = 0; i < PROBES; i++) {
        slot *s = &blas->slots[(home + i) % SLOTS];
        if (!s->used || memcmp(&s->key, key, sizeof *key) == 0) return s;
    }
    slot *s = &blas->slots[home % SLOTS];
    s->used = 0;
    return s;
}

static bool takes(const pb_gemm *g)
{
    return g->K > 0 && !g->a.nf4 && !g->b.nf4 && g->a.dtype == g->b.dtype &&
           (g->a.dtype == PB_BF16 || g->c_dtype == PB_F32);
}

/* Makes one call of the library; *taken = false: the library has no algorithm, and nothing was enqueued. */
static pb_status product(pb_ctx *ctx, const pb_gemm *g, const addends *add, const pb_gemm_batch *batch, bool *taken)
{
    pb_cuda_blas *blas = pb_cuda_blas_of(ctx);
    const int sms = pb_cuda_free_sms(ctx);
    const shape key = shape_of(g, add, batch, sms == pb_cuda_device_of(ctx)->sms ? 0 : sms);
    const float alpha = g->alpha;
    slot *s = slot_of(blas, &key);
    call k;
    PB_TRY(describe(&key, add->bias, &k));
    if (!s->used) {
        s->key = key;
        ctx->counts.searches++;
        PB_TRY(choose(blas, &k, sms, s));
        s->used = 1;
    }
    *taken = s->fits;
    if (!s->fits) return PB_OK;
    BLAS_TRY(cublasLtMatmul(blas->handle, &k.desc, &alpha, g->b.p, &k.a, g->a.p, &k.b, &add->beta, add->e, &k.c, g->c,
                            &k.c, &s->algo, blas->workspace, workspace_bytes, pb_cuda_stream(ctx)));
    return pb_cuda_launched(ctx, "cublasLtMatmul");
}

static const void *along_k(const pb_mat *m, bool k_is_row, int k)
{
    return (const char *)m->p + (k_is_row ? (size_t)k * m->ld : (size_t)k) * pb_dtype_size(m->dtype);
}

/* Returns the product over terms [from, from+n) of K. Every piece but the first adds to C. */
static pb_gemm piece_of(const pb_gemm *g, int from, int n)
{
    pb_gemm p = *g;
    p.a.p = along_k(&g->a, g->a.trans, from);
    p.b.p = along_k(&g->b, !g->b.trans, from);
    p.K = n;
    if (from) p.accumulate = true, p.bias = NULL;
    return p;
}

static __global__ void round_bias(const float *bias, int n, __nv_bfloat16 *out)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = __float2bfloat16_rn(bias[i]);
}

size_t pb_cuda_bias_room(const pb_gemm *g)
{
    return g->bias && g->c_dtype == PB_BF16 ? ((size_t)g->N * sizeof(__nv_bfloat16) + 255) / 256 * 256 : 0;
}

/* Enqueues the sum over K piece by piece: the first piece adds what `add` says, the others add to C. */
static pb_status pieces(pb_ctx *ctx, const pb_gemm *g, const addends *add, const pb_gemm_batch *batch)
{
    const int step = g->a.dtype == PB_F32 && g->K > f32_piece ? f32_piece : g->K;
    for (int from = 0; from < g->K; from += step) {
        const pb_gemm p = piece_of(g, from, g->K - from < step ? g->K - from : step);
        const addends now = from ? of_gemm(&p, NULL) : *add;
        bool taken = false;
        PB_TRY(product(ctx, &p, &now, batch, &taken));
        const pb_cuda_addend e = {now.beta != 0 ? now.e : NULL, now.beta};
        if (!taken) PB_TRY(pb_cuda_gemm_simt_add(ctx, &p, batch, &e));
    }
    return PB_OK;
}

pb_status pb_cuda_gemm_batch(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch)
{
    const addends add = of_gemm(g, NULL);
    if (g->M == 0 || g->N == 0) return PB_OK;
    return takes(g) ? pieces(ctx, g, &add, batch) : pb_cuda_gemm_simt_batch(ctx, g, batch);
}

pb_status pb_cuda_gemm_add(pb_ctx *ctx, const pb_gemm *g, const pb_gemm_batch *batch, const pb_cuda_addend *e)
{
    const addends add = {e->p, NULL, e->beta};
    if (!e->p) return pb_cuda_gemm_batch(ctx, g, batch);
    if (g->M == 0 || g->N == 0) return PB_OK;
    return takes(g) ? pieces(ctx, g, &add, batch) : pb_cuda_gemm_simt_add(ctx, g, batch, e);
}

pb_status pb_cuda_gemm(pb_ctx *ctx, const pb_gemm *g, void *room)
{
    const pb_gemm_batch one = {1, 0, 0, 0};
    const void *bias = g->bias;
    if (g->M == 0 || g->N == 0) return PB_OK;
    if (!takes(g)) return pb_cuda_gemm_simt(ctx, g);
    if (pb_cuda_bias_room(g)) {
        const unsigned threads = 256, blocks = ((unsigned)g->N + threads - 1) / threads;
        round_bias<<<blocks, threads, 0, pb_cuda_stream(ctx)>>>(g->bias, g->N, (__nv_bfloat16 *)room);
        PB_TRY(pb_cuda_launched(ctx, "round_bias"));
        bias = room;
    }
    const addends add = of_gemm(g, bias);
    return pieces(ctx, g, &add, &one);
}
