/* oracle_model.c - a plain implementation of a model in double precision, after the formulas of the papers: embedding,
 * norms, products with biases and adapters, RoPE, attention, SwiGLU, head and loss. */
#include "tests/trainer/oracle_model.h"

#include "tests/test.h"

static double *room(size_t n)
{
    double *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* ---- copying the weights of the model under test ------------------------------------------------------ */

/* The NF4 levels of Dettmers et al. 2023, arXiv:2305.14314, appendix E. */
static const double nf4[16] = {-1.0,
                               -0.6961928009986877,
                               -0.5250730514526367,
                               -0.39491748809814453,
                               -0.28444138169288635,
                               -0.18477343022823334,
                               -0.09105003625154495,
                               0.0,
                               0.07958029955625534,
                               0.16093020141124725,
                               0.24611230194568634,
                               0.33791524171829224,
                               0.44070982933044434,
                               0.5626170039176941,
                               0.7229568362236023,
                               1.0};

/* Copies the scales of a quantised parameter, in f32: plain, or from their 8-bit codes. The caller frees them. */
static float *scales_of(const pb_model *m, const pb_param *p)
{
    const pb_nf4_scales *s = &p->scales;
    const size_t blocks = (pb_param_n(p) + (size_t)s->block - 1) / (size_t)s->block, groups = (blocks + 255) / 256;
    if (s->absmax) return test_fetch(m->ctx, s->absmax, blocks * sizeof(float));
    float *out = malloc(blocks * sizeof *out), *code = test_fetch(m->ctx, s->code, 256 * sizeof *code);
    float *group = test_fetch(m->ctx, s->absmax2, groups * sizeof *group), *offset = test_fetch(m->ctx, s->offset, 4);
    uint8_t *q = test_fetch(m->ctx, s->absmax_q, blocks);
    assert_non_null(out);
    for (size_t j = 0; j < blocks; j++) {
        const float product = code[q[j]] * group[j / 256];
        out[j] = product + *offset;
    }
    free(code), free(group), free(offset), free(q);
    return out;
}

/* Copies the values of a parameter as double, from any dtype and any device. */
static void values(const pb_model *m, const pb_param *p, double *out)
{
    const size_t n = pb_param_n(p), block = p->q ? (size_t)p->scales.block : 1;
    unsigned char *bytes = test_fetch(m->ctx, p->q ? p->q : p->w, p->q ? (n + 1) / 2 : n * pb_dtype_size(p->dtype));
    float *absmax = p->q ? scales_of(m, p) : NULL;
    for (size_t i = 0; i < n; i++) {
        const unsigned byte = p->q ? bytes[i / 2] : 0, code = i % 2 ? byte % 16 : byte / 16;
        out[i] = p->q ? nf4[code] * (double)absmax[i / block] : pb_load(bytes, i, p->dtype);
    }
    free(bytes);
    free(absmax);
}

oracle oracle_open(const pb_model *m)
{
    oracle o = {.m = m, .w = calloc((size_t)m->n, sizeof(double *)), .eps = (double)m->g.eps, .theta = m->g.theta};
    assert_non_null(o.w);
    for (int i = 0; i < m->n; i++) {
        const size_t n = pb_param_n(&m->params[i]);
        o.w[i] = room(n);
        values(m, &m->params[i], o.w[i]);
    }
    return o;
}

void oracle_close(oracle *o)
{
    for (int i = 0; i < o->m->n; i++) free(o->w[i]);
    free(o->w);
}

double *oracle_param(const oracle *o, const pb_param *p) { return p ? o->w[p - o->m->params] : NULL; }

/* ---- operations of a layer ---------------------------------------------------------------------------- */

/* Computes y [n,D] = gain x / sqrt(mean(x^2) + eps) for each row; y may be x. */
static void norm(const oracle *o, const double *x, const double *gain, double *y, int n, int D)
{
    for (int t = 0; t < n; t++) {
        double sum = 0;
        for (int i = 0; i < D; i++) sum += x[t * D + i] * x[t * D + i];
        for (int i = 0; i < D; i++) y[t * D + i] = gain[i] * x[t * D + i] / sqrt(sum / D + o->eps);
    }
}

/* y [n,N] = x [n,K] w^T + bias. */
static void product(const double *x, const double *w, const double *bias, double *y, int n, int N, int K)
{
    for (int t = 0; t < n; t++)
        for (int i = 0; i < N; i++) {
            double sum = bias ? bias[i] : 0;
            for (int k = 0; k < K; k++) sum += x[t * K + k] * w[i * K + k];
            y[t * N + i] = sum;
        }
}

/* Adds the adapter's product alpha/R B A x to those columns of y [n,N] that belong to `target`, such as q in qkv. */
static void adapt(const oracle *o, int layer, pb_target target, const double *x, double *y, int n, int N)
{
    const pb_param *a = o->m->lora_a[layer * PB_NTARGETS + target], *b = o->m->lora_b[layer * PB_NTARGETS + target];
    const double *A = oracle_param(o, a), *Bm = oracle_param(o, b);
    if (!a) return;
    const int R = (int)a->rows, K = (int)a->cols, out = (int)b->rows;
    int in, rows, first;
    pb_target_shape(&o->m->g, target, &in, &rows, &first);
    double *xa = room((size_t)n * (size_t)R);
    product(x, A, NULL, xa, n, R, K);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < out; i++)
            for (int r = 0; r < R; r++)
                y[t * N + first + i] += (double)o->m->cfg.alpha / R * Bm[i * R + r] * xa[t * R + r];
    free(xa);
}

/* Rotates element i of the first half of a head with element i of the second half (GPT-NeoX order). */
static void rotate(const oracle *o, double *x, int pos, int d)
{
    for (int i = 0; i < d / 2; i++) {
        const double angle = pos * pow(o->theta, -2.0 * i / d), re = x[i], im = x[i + d / 2];
        x[i] = re * cos(angle) - im * sin(angle);
        x[i + d / 2] = re * sin(angle) + im * cos(angle);
    }
}

/* Computes attention of one query to tokens 0..upto. k, v: keys and values of the query's head; tokens are ld elements
 * apart. */
static void attend(const double *q, const double *k, const double *v, size_t ld, int upto, int d, double *out)
{
    double *p = room((size_t)upto + 1), most = -INFINITY, sum = 0;
    for (int t = 0; t <= upto; t++) {
        for (int i = 0; i < d; i++) p[t] += q[i] * k[(size_t)t * ld + (size_t)i] / sqrt(d);
        most = fmax(most, p[t]);
    }
    for (int t = 0; t <= upto; t++) sum += p[t] = exp(p[t] - most);
    for (int i = 0; i < d; i++) {
        out[i] = 0;
        for (int t = 0; t <= upto; t++) out[i] += p[t] / sum * v[(size_t)t * ld + (size_t)i];
    }
    free(p);
}

/* ---- computing one layer ------------------------------------------------------------------------------ */

static double *weight(const oracle *o, int layer, int id) { return oracle_param(o, pb_layer_param(o->m, layer, id)); }

static void attention(const oracle *o, int layer, const double *x, double *y, int B, int S)
{
    const pb_geometry *g = &o->m->g;
    const int n = B * S, W = (g->H + 2 * g->K) * g->d, d = g->d, Q = g->H * d;
    double *qkv = room((size_t)n * (size_t)W), *out = room((size_t)n * (size_t)Q);
    product(x, weight(o, layer, PB_P_qkv), weight(o, layer, PB_P_qkv_bias), qkv, n, W, g->D);
    for (int t = PB_TARGET_Q; t <= PB_TARGET_V; t++) adapt(o, layer, (pb_target)t, x, qkv, n, W);
    for (int t = 0; t < n; t++)
        for (int h = 0; h < g->H + g->K; h++) {
            double *head = qkv + (size_t)t * (size_t)W + h * d;
            if (g->qk_norm) norm(o, head, weight(o, layer, h < g->H ? PB_P_q_norm : PB_P_k_norm), head, 1, d);
            rotate(o, head, t % S, d);
        }
    for (int t = 0; t < n; t++)
        for (int h = 0; h < g->H; h++) {
            const double *row = qkv + (size_t)(t - t % S) * (size_t)W, *k = row + Q + h / (g->H / g->K) * d;
            attend(qkv + (size_t)t * (size_t)W + h * d, k, k + g->K * d, (size_t)W, t % S, d,
                   out + (size_t)t * (size_t)Q + h * d);
        }
    product(out, weight(o, layer, PB_P_o), weight(o, layer, PB_P_o_bias), y, n, g->D, Q);
    adapt(o, layer, PB_TARGET_O, out, y, n, g->D);
    free(qkv), free(out);
}

static void mlp(const oracle *o, int layer, const double *x, double *y, int n)
{
    const int D = o->m->g.D, I = o->m->g.I;
    double *gu = room((size_t)n * 2 * (size_t)I), *act = room((size_t)n * (size_t)I);
    product(x, weight(o, layer, PB_P_gate_up), NULL, gu, n, 2 * I, D);
    adapt(o, layer, PB_TARGET_GATE, x, gu, n, 2 * I);
    adapt(o, layer, PB_TARGET_UP, x, gu, n, 2 * I);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < I; i++) {
            const double gate = gu[t * 2 * I + i], up = gu[t * 2 * I + I + i];
            act[t * I + i] = gate / (1 + exp(-gate)) * up;
        }
    product(act, weight(o, layer, PB_P_down), NULL, y, n, D, I);
    adapt(o, layer, PB_TARGET_DOWN, act, y, n, D);
    free(gu), free(act);
}

/* ---- computing the whole model ------------------------------------------------------------------------ */

void oracle_logits(const oracle *o, const int32_t *ids, int B, int S, double *logits)
{
    const pb_geometry *g = &o->m->g;
    const int n = B * S, D = g->D;
    const size_t all = (size_t)n * (size_t)D;
    const double *embed = oracle_param(o, o->m->outer[PB_P_embed]), *head = oracle_param(o, o->m->outer[PB_P_head]);
    double *h = room(all), *x = room(all), *y = room(all);
    for (size_t i = 0; i < all; i++) h[i] = embed[(size_t)ids[i / (size_t)D] * (size_t)D + i % (size_t)D];
    for (int layer = 0; layer < g->L; layer++) {
        norm(o, h, weight(o, layer, PB_P_norm1), x, n, D);
        attention(o, layer, x, y, B, S);
        for (size_t i = 0; i < all; i++) h[i] += y[i];
        norm(o, h, weight(o, layer, PB_P_norm2), x, n, D);
        mlp(o, layer, x, y, n);
        for (size_t i = 0; i < all; i++) h[i] += y[i];
    }
    norm(o, h, oracle_param(o, o->m->outer[PB_P_norm]), x, n, D);
    product(x, head ? head : embed, NULL, logits, n, g->V, D);
    free(h), free(x), free(y);
}

double oracle_cross_entropy(const double *logits, const int32_t *targets, const float *mask, size_t n, int V)
{
    double total = 0, count = 0;
    for (size_t t = 0; t < n; t++) {
        const double *row = logits + t * (size_t)V;
        double most = -INFINITY, sum = 0;
        if (mask[t] == 0) continue;
        for (int v = 0; v < V; v++) most = fmax(most, row[v]);
        for (int v = 0; v < V; v++) sum += exp(row[v] - most);
        total += most + log(sum) - row[targets[t]];
        count++;
    }
    return total / count;
}

double oracle_loss(const oracle *o, const pb_batch *b, int B, int S)
{
    const size_t n = (size_t)B * (size_t)S;
    double *logits = room(n * (size_t)o->m->g.V);
    oracle_logits(o, b->ids, B, S, logits);
    const double loss = oracle_cross_entropy(logits, b->targets, b->mask, n, o->m->g.V);
    free(logits);
    return loss;
}
