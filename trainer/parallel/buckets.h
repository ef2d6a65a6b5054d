/* buckets.h - divides a model's vector of gradients (pb_model.order) into buckets, which are reduced over the ranks one
 * after the other during the backward pass; a pure function. */
#ifndef PB_BUCKETS_H
#define PB_BUCKETS_H
#include "trainer/model/model.h"

enum { PB_BUCKET_BYTES = 25 << 20 }; /* PyTorch DDP's bucket_cap_mb, arXiv:2006.15704 section 4.2 */

typedef struct pb_bucket {
    size_t at, n; /* elements at .. at+n-1 of the vector of gradients, with the gaps between tensors */
    int stage;    /* stage of the backward pass after which all its gradients are complete */
} pb_bucket;

typedef struct pb_buckets {
    pb_bucket *bucket; /* [n] in the order of the vector; no element is in two buckets, and every gradient is in one */
    int n;
} pb_buckets;

/* Where a bucket may end. */
typedef enum pb_bucket_ends {
    PB_ENDS_AFTER_TENSORS, /* after any tensor */
    /* Only where a stage does, and before a tied embedding: then all gradients of a bucket below pb_model.wide are
     * computed after all those of the bucket before it, except those of a tied embedding, which are alone in their
     * bucket. */
    PB_ENDS_AFTER_STAGES,
    PB_ENDS_AFTER_EVERY_STAGE /* as before, and below pb_model.wide each stage is one bucket, however small */
} pb_bucket_ends;

/* Whole tensors are added to a bucket until it has at least `least` elements. Buckets do not span pb_model.wide. The
 * caller frees out->bucket. ENOMEM. */
pb_status pb_buckets_make(const pb_model *m, size_t least, pb_bucket_ends ends, pb_buckets *out);
#endif
