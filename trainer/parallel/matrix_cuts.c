/* matrix_cuts.c - divides a tensor that NorMuon trains into the blocks that are orthogonalised alone. */
#include "trainer/parallel/matrix_cuts.h"

/* Returns the tensor's line in model.def; -1: it is part of an adapter. */
static int id_of(const pb_model *m, const pb_param *p)
{
    for (int id = 0; p->layer >= 0 && id < PB_NPARAMS; id++)
        if (pb_layer_param(m, p->layer, id) == p) return id;
    return -1;
}

void pb_matrix_cuts(const pb_model *m, const pb_param *p, bool per_head, pb_matrix_cut out[PB_MATRIX_CUTS])
{
    const pb_geometry *g = &m->g;
    const pb_v4_geometry *v = g->v4;
    const int ratio = pb_ratio(g, p->layer);
    const size_t C = (size_t)pb_v4_columns(ratio, g->d), d = (size_t)g->d, H = (size_t)g->H, K = (size_t)g->K;
    pb_matrix_cut c[PB_MATRIX_CUTS] = {{p->rows, 1}};
    switch (id_of(m, p)) {
    case PB_P_qkv:
        if (per_head) c[0] = (pb_matrix_cut){d, H + 2 * K};
        else c[0] = (pb_matrix_cut){H * d, 1}, c[1] = (pb_matrix_cut){K * d, 2};
        break;
    case PB_P_gate_up: c[0] = (pb_matrix_cut){(size_t)g->I, 2}; break;
    case PB_P_q_b: c[0] = per_head ? (pb_matrix_cut){d, H} : c[0]; break;
    case PB_P_latent:
        c[0] = (pb_matrix_cut){(size_t)v->q_rank, 1}, c[1] = (pb_matrix_cut){d, 1}, c[2] = (pb_matrix_cut){C, 2};
        break;
    case PB_P_index_q: c[0] = per_head ? (pb_matrix_cut){(size_t)v->index_d, (size_t)v->index_H} : c[0]; break;
    case PB_P_index_in:
        c[0] = (pb_matrix_cut){(size_t)pb_v4_columns(ratio, v->index_d), 2};
        c[1] = (pb_matrix_cut){(size_t)v->index_H, 1};
        break;
    case PB_P_o_a: c[0] = (pb_matrix_cut){(size_t)v->o_rank, (size_t)v->groups}; break;
    default: break;
    }
    for (int i = 0; i < PB_MATRIX_CUTS; i++) out[i] = c[i];
}
