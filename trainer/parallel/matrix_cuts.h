/* matrix_cuts.h - divides a tensor that NorMuon trains into the blocks that are orthogonalised alone
 * (trainer/step/normuon_config.h has the rule), and says what a block costs; pure functions. */
#ifndef PB_MATRIX_CUTS_H
#define PB_MATRIX_CUTS_H
#include "trainer/model/model.h"

/* `times` blocks of `rows` rows each, with all columns of the tensor. */
typedef struct pb_matrix_cut {
    size_t rows, times;
} pb_matrix_cut;
enum { PB_MATRIX_CUTS = 3 };

/* Fills out with the blocks of a tensor, in the order of its rows; cuts that are not needed have rows 0. */
void pb_matrix_cuts(const pb_model *m, const pb_param *p, bool per_head, pb_matrix_cut out[PB_MATRIX_CUTS]);

/* The multiply-adds of one Newton-Schulz step of a block, with m the smaller and n the larger side: 2 m^2 n + m^3. */
static inline uint64_t pb_matrix_cost(size_t rows, size_t cols)
{
    const uint64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    return 2 * m * m * n + m * m * m;
}
/* Cost of an element that AdamW trains, in the same unit: on an H200 its 28 bytes of memory traffic take 7 ps, as
 * long as 420 multiply-adds of each of 5 steps at 600 TFLOP/s. */
enum { PB_ADAMW_COST = 420 };
#endif
