/* step_model.h - the time of a data parallel step as a function of the number of ranks; pure functions.
 *
 *     t_step(N) = compute + wait(N) + contention hidden(N)
 *
 * compute: what a step takes without collectives; it does not depend on N, because each rank has the same
 * micro-batches (weak scaling). wait(N): what the step waits for the reduction of gradients. The backward pass
 * takes T seconds and completes gradients at a constant rate, so bucket i of n, of s_i bytes, is complete at
 *     ready_i = T (s_1 + ... + s_i) / (s_1 + ... + s_n)
 * Buckets are reduced one after the other, next to the backward pass, each in t(s_i, N) seconds (alpha_beta.h):
 *     end_i = max(ready_i, end_{i-1}) + t(s_i, N),   end_0 = 0
 *     wait(N) = end_n - T
 *     hidden(N) = t(s_1, N) + ... + t(s_n, N) - wait(N)
 * (the schedule of PyTorch DDP: S. Li et al., arXiv:2006.15704, sections 3.2.3 and 4.2). A collective that runs next to
 * kernels slows them down, because it holds SMs and uses memory bandwidth: each second of hidden collectives lengthens
 * the step by `contention` seconds. 0: not at all; 1: as much as if nothing were hidden. The metric
 * exposed_communication_time of suite throughput, the step minus the same step without its collectives, contains both
 * wait(N) and contention hidden(N). */
#ifndef PB_STEP_MODEL_H
#define PB_STEP_MODEL_H

/* The collectives of a step on N ranks, in seconds: both >= 0. */
typedef struct pb_step_comm {
    double wait, hidden;
} pb_step_comm;

/* seconds[n]: t(s_i, N); bytes[n]: s_i > 0; n >= 0. backward: T. */
pb_step_comm pb_step_schedule(const double *bytes, const double *seconds, int n, double backward);

/* A measured step, in seconds. */
typedef struct pb_step_point {
    double seconds, one; /* measured: the step, and the same step on one rank */
    pb_step_comm comm;   /* of the model */
} pb_step_point;

/* The contention >= 0 that minimises the sum over n points of ((one + wait + contention hidden - seconds) /
 * seconds)^2. 0 if n is 0 or nothing is hidden. */
double pb_step_contention(const pb_step_point *p, int n);

/* The compute time >= 0 that minimises the sum over n >= 1 points of ((compute + wait + contention hidden - seconds)
 * / seconds)^2; `one` is not used. */
double pb_step_compute(const pb_step_point *p, int n, double contention);
#endif
