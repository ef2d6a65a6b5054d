/* units.h - divides the weights of a model into units, which are gathered as wholes, and the units into slices, one per
 * rank (--shard parameters); a pure function.
 *
 * Unit s holds the parameters of stage s of the backward pass (pb_model.order), trained or not: unit 0 the last norm
 * and an untied head, unit 1 the last layer, unit L the first layer, unit L+1 the embedding. In memory a unit is
 *
 *     frozen tensors, each at a multiple of PB_UNIT_ALIGN bytes: w, or the NF4 codes and then their scales
 *     trained tensors of the model's dtype: the unit's bucket of the vector of gradients (buckets.h), in its layout
 *
 * The frozen tensors are divided as bytes, in equal numbers of PB_UNIT_ALIGN bytes; the last ranks may get less. The
 * slices of the trained tensors are those of the bucket (slices.h), so that each rank has the optimizer's state, the
 * gradients and the weights of the same elements. The trained f32 vectors of a bf16 model are in no unit: every rank
 * keeps all of them. */
#ifndef PB_UNITS_H
#define PB_UNITS_H
#include "trainer/parallel/slices.h"

enum { PB_UNIT_ALIGN = 256, PB_UNIT_WORD = 4 }; /* frozen bytes travel as words of 4 bytes */

typedef struct pb_unit {
    size_t frozen; /* bytes of the frozen tensors, a multiple of PB_UNIT_ALIGN; the trained ones follow */
    size_t size;   /* bytes of the unit */
    size_t own;    /* where this rank's slice of the frozen tensors begins in its own memory, in bytes */
    int bucket;    /* of the trained tensors; -1: none */
} pb_unit;

typedef struct pb_units {
    int n, ranks, rank;
    pb_unit *unit;  /* [n] n = L + 2 */
    size_t *place;  /* [model.n] byte of the unit where each parameter begins; unused for vectors in no unit */
    size_t *count;  /* [n][ranks] words of each rank's slice of the frozen tensors */
    size_t own;     /* bytes of this rank's slices of all frozen tensors */
    size_t trained; /* elements of this rank's slices of all trained tensors in units */
} pb_units;

/* The buckets end after every stage (PB_ENDS_AFTER_EVERY_STAGE), and s are their slices. The caller passes *out to
 * pb_units_free. ENOMEM. */
pb_status pb_units_make(const pb_model *m, const pb_buckets *b, const pb_slices *s, pb_units *out);
void pb_units_free(pb_units *u); /* {0} is allowed */
/* True if a parameter is in no unit: a trained f32 vector of a bf16 model. */
static inline bool pb_in_no_unit(const pb_model *m, const pb_param *p) { return p->trained && p->at >= m->wide; }
/* Bytes of a frozen tensor: w; or NF4 codes, and after pb_nf4_codes(p) bytes its scales. */
size_t pb_frozen_bytes(const pb_model *m, const pb_param *p);
size_t pb_nf4_codes(const pb_param *p); /* a multiple of PB_UNIT_ALIGN */
/* The scales of a tensor whose scales are at `at`: absmax; or, with double quantisation, absmax_q, absmax2 and
 * offset. */
pb_nf4_scales pb_nf4_scales_at(const pb_model *m, const pb_param *p, unsigned char *at);
/* Where the frozen slice of a rank begins in its unit, in bytes. */
size_t pb_unit_slice_at(const pb_units *u, int unit, int rank);
#endif
