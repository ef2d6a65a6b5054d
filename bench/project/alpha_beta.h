/* alpha_beta.h - the alpha-beta model of a collective: its formula, and its fit to measured times; pure functions.
 *
 * A message of m bytes takes alpha + m / beta: alpha is the latency of a message in seconds, beta the bandwidth of a
 * rank in bytes/s (R. W. Hockney, The communication challenge for MPP, Parallel Computing 20, 1994). With g ranks on
 * each of h hosts a collective of S bytes takes
 *
 *     t(S, g, h) = alpha_in in_steps + S in_bytes / beta_in  +  alpha_out out_steps + S out_bytes / beta_out
 *
 * where `in` is the link between ranks of one host and `out` the link between hosts; collectives.def has the terms.
 * alpha_out and beta_out are those of one rank: g ranks of a host together send g beta_out bytes/s to other hosts.
 *
 * On one host (h = 1) this is the ring over g ranks. All-reduce: 2(g-1) steps and 2(g-1)/g S bytes; reduce-scatter and
 * all-gather: half of that; all-to-all: g-1 exchanges of S/g bytes each (R. Thakur, R. Rabenseifner, W. Gropp,
 * Optimization of collective communication operations in MPICH, IJHPCA 19, 2005, section 4). Broadcast: a pipelined
 * chain of g-1 steps that passes S bytes on. in_bytes is then the factor between algorithm and bus bandwidth of
 * nccl-tests (https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md), so beta_in is a bus bandwidth.
 *
 * On several hosts (h > 1) reductions and gathers have two levels: inside the host, then each rank with the ranks of
 * equal number on the other hosts, S/g bytes each, as a ring over h hosts. All-to-all exchanges with each rank
 * directly. A broadcast passes over one rank of each host. A library that chooses a tree between many hosts needs
 * fewer steps (about 2 log2 h) than the ring, so the time of a small all-reduce is then overestimated.
 *
 * S is counted as nccl-tests counts it: all-reduce and broadcast: the buffer of a rank; reduce-scatter: the input of a
 * rank; all-gather: the output of a rank; all-to-all: all that one rank sends, with the block to itself. */
#ifndef PB_ALPHA_BETA_H
#define PB_ALPHA_BETA_H
#include "os/status.h"

typedef enum pb_collective {
#define COLLECTIVE(name, nccl_tests, in_steps, in_bytes, out_steps, out_bytes) PB_COLLECTIVE_##name,
#include "bench/project/collectives.def"
#undef COLLECTIVE
    PB_NCOLLECTIVES
} pb_collective;

/* The name of a case in suite comm, such as "all_reduce". */
const char *pb_collective_name(pb_collective c);
/* The collective with this name in suite comm or in nccl-tests; PB_NCOLLECTIVES: none. */
pb_collective pb_collective_find(const char *name);

typedef enum pb_link { PB_LINK_IN, PB_LINK_OUT, PB_NLINKS } pb_link; /* inside a host, between hosts */

/* Where the ranks of a collective are: `each` ranks on each of `hosts` hosts; both at least 1. */
typedef struct pb_place {
    int hosts, each;
} pb_place;

/* The model of a link. */
typedef struct pb_alpha_beta {
    double alpha;            /* seconds per step, >= 0 */
    double seconds_per_byte; /* 1 / beta, >= 0 */
} pb_alpha_beta;

/* A measured time, in the terms of one link: seconds = known + alpha steps + bytes seconds_per_byte. */
typedef struct pb_ab_point {
    double seconds;      /* measured, > 0 */
    double known;        /* the part of it that is not of this link */
    double steps, bytes; /* as the formula counts them */
} pb_ab_point;

/* steps and bytes of a collective of S bytes on one link; seconds and known are 0. */
pb_ab_point pb_ab_terms(pb_collective c, double bytes, pb_place place, pb_link link);
double pb_ab_seconds(const pb_alpha_beta *m, const pb_ab_point *terms);

/* Fits alpha and 1 / beta to n points: the least squares of relative errors,
 *     minimise the sum over i of ((known_i + alpha steps_i + bytes_i / beta - seconds_i) / seconds_i)^2
 *     with alpha >= 0 and 1/beta >= 0,
 * so a point of 10 us counts as much as one of 10 ms. Solved in closed form: the normal equations, or, where these make
 * one of the two negative, the better of the two fits with one of them 0. EINVAL: fewer than 2 points, or steps and
 * bytes are in one ratio in all points, so that alpha and beta cannot be told apart. */
pb_status pb_ab_fit(const pb_ab_point *p, int n, pb_alpha_beta *out);
#endif
