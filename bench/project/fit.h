/* fit.h - fits the models to measured collectives and steps, and checks them on measured points that were kept out.
 *
 * Points that are kept out of a fit, so that they can check it:
 *   sizes   of a link's collectives, in order of their bytes, sizes number 2, 5, 8, ..., if there are at least three
 *   ranks   the largest number of ranks, because projections go to more ranks, and so does this check. Of a collective
 *           if at least three numbers were measured, of a step if at least two
 * The error of a point is |model - measured| / measured. A fit is accurate if points were kept out, and the largest of
 * their errors is at most PB_PROJECT_ERROR. */
#ifndef PB_PROJECT_FIT_H
#define PB_PROJECT_FIT_H
#include "bench/project/measured.h"
#include "bench/project/step_model.h"

#define PB_PROJECT_ERROR 0.1
enum {
    PB_KEPT_OUT_EVERY = 3,    /* of this many sizes one is kept out */
    PB_FEWEST_RANKS = 3,      /* numbers of ranks of a collective of which one is kept out */
    PB_FEWEST_STEP_RANKS = 2, /* and of a step, whose compute one number of ranks determines */
};

typedef struct pb_accuracy {
    int fitted, kept_out; /* points */
    double median, max;   /* error of the points that were kept out; NaN: none was */
} pb_accuracy;
bool pb_accurate(const pb_accuracy *a);

typedef enum pb_basis { PB_BASIS_NONE, PB_BASIS_FITTED, PB_BASIS_GIVEN } pb_basis;

typedef struct pb_fit {
    pb_curve *curve; /* borrowed; its points get kept_out and model */
    int host_ranks;  /* the ranks of a full host */
    struct pb_link_fit {
        pb_basis basis; /* none: neither measured nor given; `accuracy` is only of a fitted link */
        pb_alpha_beta model;
        pb_accuracy accuracy;
    } link[PB_NLINKS];
} pb_fit;

/* Fits both links of a curve of a collective. host_ranks: 0: the largest number of ranks measured on one host.
 * network: the link between hosts; NULL: fitted to measured points of several hosts, if there are any. EINVAL: no
 * points of one host, too few sizes, or more ranks were measured on one host than host_ranks. ENOMEM. */
pb_status pb_fit_make(pb_curve *f, int host_ranks, const pb_alpha_beta *network, pb_fit *out);
/* The place of this many ranks on full hosts. EINVAL: more than one host, but not a multiple of its ranks; or the link
 * between hosts is neither measured nor given. */
pb_status pb_fit_place(const pb_fit *f, int ranks, pb_place *out);
/* The time of a collective of so many bytes. */
double pb_fit_seconds(const pb_fit *f, double bytes, pb_place place);
/* True if every link that this place uses is accurate or given. */
bool pb_fit_accurate(const pb_fit *f, pb_place place);

typedef struct pb_step_fit {
    pb_curve *curve;      /* borrowed; its points get kept_out and model */
    const pb_fit *reduce; /* borrowed: all-reduce in the type of the gradients */
    double *bytes;        /* [buckets], owned: the buckets of gradients, in the order in which they are reduced */
    int buckets;
    double tokens;              /* of a step, per rank */
    double one;                 /* measured step_time of one rank */
    double backward;            /* measured backward_time of one rank */
    double compute, contention; /* fitted: step_model.h */
    int contended;              /* the measured steps to which contention is fitted; 0: it is taken as 0 */
    pb_accuracy accuracy;
} pb_step_fit;

/* Prepares the fit of a step. `bytes`, `buckets` and `tokens` are those of pb_step_buckets(); out->bytes owns `bytes`,
 * also after a failure: call pb_step_fit_free() in every case. EINVAL: no step of one rank was measured, or a step of
 * several hosts and no network; ENOMEM. */
pb_status pb_step_fit_make(pb_curve *f, const pb_fit *reduce, double *bytes, int buckets, double tokens,
                           pb_step_fit *out);
/* Fits n prepared cases of one machine. K: the number of ranks that is kept out of a case. Its contention is fitted to
 * the points of all n cases with 1 < ranks < K (all points on several ranks, if nothing is kept out); where no such
 * point exists, to the points of the other cases on K ranks. Then its compute is fitted to its own points that are not
 * kept out. So neither is fitted to the points that check the case. ENOMEM. */
pb_status pb_step_fit_all(pb_step_fit *f, int n);
void pb_step_fit_free(pb_step_fit *f);
/* The collectives of a step on the ranks of this place. ENOMEM. */
pb_status pb_step_fit_comm(const pb_step_fit *f, pb_place place, pb_step_comm *out);

/* The sizes of the buckets of gradients of a case of suite throughput, as the trainer reduces them (*bytes: an array of
 * *n, which the caller frees; 0 if nothing is trained), and the tokens of a step per rank. EINVAL: the case names an
 * unknown model, or a setting that the model does not cover: sharded gradients, several micro-batches. ENOMEM. */
pb_status pb_step_buckets(const pb_case *c, double **bytes, int *n, double *tokens);
#endif
