/* hf_names.c - lists the tensors of a model under transformers' names and those of GGUF files, from a table of these
 * names. */
#include "trainer/hf/hf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = -1 };

/* The names of tensors in the files. A tensor holds a whole parameter, or the rows of one target of a parameter, such
 * as q in qkv. */
static const struct {
    int param, target;
    const char *name; /* for parameters of layers: the part after "model.layers.N." */
    /* Name in GGUF files; for parameters of layers: the part after "blk.N."; NULL: no GGUF file has this tensor. */
    const char *gguf;
} places[] = {
    {PB_P_embed, WHOLE, "model.embed_tokens.weight", "token_embd.weight"},
    {PB_P_norm, WHOLE, "model.norm.weight", "output_norm.weight"},
    {PB_P_head, WHOLE, "lm_head.weight", "output.weight"},
    {PB_P_norm1, WHOLE, "input_layernorm.weight", "attn_norm.weight"},
    {PB_P_residual1, WHOLE, "input_residual", NULL},
    {PB_P_qkv, PB_TARGET_Q, "self_attn.q_proj.weight", "attn_q.weight"},
    {PB_P_qkv, PB_TARGET_K, "self_attn.k_proj.weight", "attn_k.weight"},
    {PB_P_qkv, PB_TARGET_V, "self_attn.v_proj.weight", "attn_v.weight"},
    {PB_P_qkv_bias, PB_TARGET_Q, "self_attn.q_proj.bias", "attn_q.bias"},
    {PB_P_qkv_bias, PB_TARGET_K, "self_attn.k_proj.bias", "attn_k.bias"},
    {PB_P_qkv_bias, PB_TARGET_V, "self_attn.v_proj.bias", "attn_v.bias"},
    {PB_P_q_norm, WHOLE, "self_attn.q_norm.weight", "attn_q_norm.weight"},
    {PB_P_k_norm, WHOLE, "self_attn.k_norm.weight", "attn_k_norm.weight"},
    {PB_P_dt, WHOLE, "self_attn.dt_proj.weight", NULL},
    {PB_P_dt_bias, WHOLE, "self_attn.dt_proj.bias", NULL},
    {PB_P_dt_a, WHOLE, "self_attn.A", NULL},
    {PB_P_o, PB_TARGET_O, "self_attn.o_proj.weight", "attn_output.weight"},
    {PB_P_o_bias, PB_TARGET_O, "self_attn.o_proj.bias", "attn_output.bias"},
    {PB_P_residual2, WHOLE, "post_attention_residual", NULL},
    {PB_P_norm2, WHOLE, "post_attention_layernorm.weight", "ffn_norm.weight"},
    {PB_P_gate_up, PB_TARGET_GATE, "mlp.gate_proj.weight", "ffn_gate.weight"},
    {PB_P_gate_up, PB_TARGET_UP, "mlp.up_proj.weight", "ffn_up.weight"},
    {PB_P_down, PB_TARGET_DOWN, "mlp.down_proj.weight", "ffn_down.weight"},
};
enum { NPLACES = sizeof places / sizeof *places };

static void place(const pb_geometry *g, pb_param *p, int i, pb_hf_tensor *t)
{
    const bool vector = p->kind == PB_KIND_GAIN || p->kind == PB_KIND_BIAS;
    int in, rows = (int)(vector ? p->cols : p->rows), offset = 0;
    if (places[i].target != WHOLE) pb_target_shape(g, (pb_target)places[i].target, &in, &rows, &offset);
    const size_t each = vector ? 1 : p->cols;
    *t = (pb_hf_tensor){.p = p, .target = places[i].target, .first = (size_t)offset * each, .n = (size_t)rows * each};
    t->dims = vector ? 1 : 2;
    t->shape[0] = (size_t)rows;
    t->shape[1] = each;
    if (p->layer < 0) snprintf(t->name, sizeof t->name, "%s", places[i].name);
    else snprintf(t->name, sizeof t->name, "model.layers.%d.%s", p->layer, places[i].name);
    if (!places[i].gguf) *t->gguf = 0;
    else if (p->layer < 0) snprintf(t->gguf, sizeof t->gguf, "%s", places[i].gguf);
    else snprintf(t->gguf, sizeof t->gguf, "blk.%d.%s", p->layer, places[i].gguf);
}

pb_status pb_hf_tensors(const pb_model *m, pb_hf_list *out)
{
    pb_hf_list l = {.at = calloc(((size_t)m->g.L + 1) * NPLACES, sizeof *l.at)};
    if (!l.at) return pb_fail(PB_ENOMEM, "no memory for the list of tensors");
    for (int layer = -1; layer < m->g.L; layer++)
        for (int i = 0; i < NPLACES; i++) {
            const int id = places[i].param;
            pb_param *p = layer < 0 ? m->outer[id] : pb_layer_param(m, layer, id);
            if (p) place(&m->g, p, i, &l.at[l.n++]);
        }
    *out = l;
    return PB_OK;
}

const char *pb_hf_module(pb_target t, char out[32])
{
    int i = 0;
    while (places[i].target != (int)t) i++;
    snprintf(out, 32, "%.*s", (int)(strrchr(places[i].name, '.') - places[i].name), places[i].name);
    return out;
}

pb_status pb_hf_check(const pb_hf_tensor *want, const pb_st_tensor *have)
{
    char has[120], needs[120];
    if (have->dims != want->dims || memcmp(have->shape, want->shape, (size_t)want->dims * sizeof *want->shape) != 0)
        return pb_fail(PB_EINVAL, "%s: tensor %.150s has shape %s, but the model needs %s", have->file, have->name,
                       pb_st_shape_text(have->shape, have->dims, has, sizeof has),
                       pb_st_shape_text(want->shape, want->dims, needs, sizeof needs));
    if (!pb_st_can_convert(have->dtype, PB_F32))
        return pb_fail(PB_EFORMAT, "%s: tensor %.150s has type %s: need F32, F16 or BF16", have->file, have->name,
                       pb_st_dtype_name(have->dtype));
    return PB_OK;
}
