/* geometry.c - finds a built-in model geometry (model.def) by name, and computes sizes that depend on the geometry: the
 * widths of each adapter target, and the alignment of packed conversations. */
#include <stdio.h>
#include <string.h>

#include "trainer/model/model.h"

/* The fields that all families with grouped-query attention have. */
#define DECODER(n, f, v, dim, layers, h, k, head, mlp, e, t, tie, pos)                                                 \
    .name = (n), .family = PB_FAMILY_##f, .V = (v), .D = (dim), .L = (layers), .H = (h), .K = (k), .d = (head),        \
    .I = (mlp), .eps = (e), .theta = (t), .tied = (tie), .max_pos = (pos)
#define GEOMETRY(n, f, v, dim, layers, h, k, head, mlp, e, t, tie, b, qkn, pos)                                        \
    {DECODER(n, f, v, dim, layers, h, k, head, mlp, e, t, tie, pos), .bias = (b), .qk_norm = (qkn)},
#define GEOMETRY_LLAMA3(n, v, dim, layers, h, k, head, mlp, e, t, tie, scale, pos)                                     \
    {DECODER(n, LLAMA, v, dim, layers, h, k, head, mlp, e, t, tie, pos),                                               \
     .rope = {.kind = PB_ROPE_LLAMA3, .factor = (scale), .original_len = 8192, .low_freq = 1, .high_freq = 4}},
#define GEOMETRY_DOGE(n, v, dim, layers, h, k, head, mlp, e, t, tie, most, pos)                                        \
    {DECODER(n, DOGE, v, dim, layers, h, k, head, mlp, e, t, tie, pos), .qk_norm = true, .keep = (most)},
#define GEOMETRY_V4(n, vocab, dim, layers, h, head, mlp, e, t, qr, or, gr, rd, win, hi, di, top, tc, len, ratios, pos) \
    {.name = (n),                                                                                                      \
     .family = PB_FAMILY_V4,                                                                                           \
     .V = (vocab),                                                                                                     \
     .D = (dim),                                                                                                       \
     .L = (layers),                                                                                                    \
     .H = (h),                                                                                                         \
     .K = 1,                                                                                                           \
     .d = (head),                                                                                                      \
     .I = (mlp),                                                                                                       \
     .eps = (e),                                                                                                       \
     .theta = (t),                                                                                                     \
     .max_pos = (pos),                                                                                                 \
     .v4 = &(const pb_v4_geometry){.q_rank = (qr),                                                                     \
                                   .o_rank = (or),                                                                     \
                                   .groups = (gr),                                                                     \
                                   .rope = (rd),                                                                       \
                                   .window = (win),                                                                    \
                                   .index_H = (hi),                                                                    \
                                   .index_d = (di),                                                                    \
                                   .topk = (top),                                                                      \
                                   .compress_theta = (tc),                                                             \
                                   .compress_rope = {.kind = PB_ROPE_YARN,                                             \
                                                     .factor = 16,                                                     \
                                                     .original_len = (len),                                            \
                                                     .beta_fast = 32,                                                  \
                                                     .beta_slow = 1,                                                   \
                                                     .attention = 1,                                                   \
                                                     .truncate = true},                                                \
                                   .ratio = ratios}},
#define RATIOS(...)                                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

const pb_geometry pb_geometries[] = {
#include "trainer/model/model.def"
    {0},
};

int pb_sample_align(const pb_geometry *g)
{
    int most = 1;
    for (int i = 0; g->v4 && i < g->L; i++)
        if (g->v4->ratio[i] > most) most = g->v4->ratio[i];
    return most;
}

pb_status pb_geometry_find(const char *name, const pb_geometry **out)
{
    char all[256] = "";
    size_t len = 0;
    for (const pb_geometry *g = pb_geometries; g->name; g++) {
        if (strcmp(g->name, name) == 0) {
            *out = g;
            return PB_OK;
        }
        len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", len ? ", " : "", g->name);
    }
    return pb_fail(PB_EINVAL, "model '%s' is not one of %s", name, all);
}

void pb_target_shape(const pb_geometry *g, pb_target t, int *in, int *out, int *offset)
{
    const int q = g->H * g->d, kv = g->K * g->d;
    const struct {
        int in, out, offset;
    } shape[PB_NTARGETS] = {
        [PB_TARGET_Q] = {g->D, q, 0},       [PB_TARGET_K] = {g->D, kv, q},      [PB_TARGET_V] = {g->D, kv, q + kv},
        [PB_TARGET_O] = {q, g->D, 0},       [PB_TARGET_GATE] = {g->D, g->I, 0}, [PB_TARGET_UP] = {g->D, g->I, g->I},
        [PB_TARGET_DOWN] = {g->I, g->D, 0},
    };
    *in = shape[t].in;
    *out = shape[t].out;
    *offset = shape[t].offset;
}
