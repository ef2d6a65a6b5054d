/* step_model.h - the time of a data parallel step as a function of the number of ranks; pure functions.
 *
 *     t_step(N) = compute + exposed(N)
 *
 * compute: what a step takes without waiting for collectives; it does not depend on N, because each rank has the same
 * micro-batches (weak scaling). exposed(N): what the step waits for the reduction of gradients. The backward pass
 * takes T seconds and completes gradients at a constant rate, so bucket i of n, of s_i bytes, is complete at
 *     ready_i = T (s_1 + ... + s_i) / (s_1 + ... + s_n)
 * Buckets are reduced one after the other, next to the backward pass, each in t(s_i, N) seconds (alpha_beta.h):
 *     end_i = max(ready_i, end_{i-1}) + t(s_i, N),   end_0 = 0
 *     exposed(N) = end_n - T
 * (the schedule of PyTorch DDP: S. Li et al., arXiv:2006.15704, sections 3.2.3 and 4.2). The model assumes that a
 * collective does not slow down the kernels next to it; where it does, kept-out numbers of ranks show it. */
#ifndef PB_STEP_MODEL_H
#define PB_STEP_MODEL_H

/* Returns exposed(N) >= 0. seconds[n]: t(s_i, N); bytes[n]: s_i > 0; n >= 0. backward: T. */
double pb_exposed(const double *bytes, const double *seconds, int n, double backward);

/* A step: its measured time, and its exposed communication according to the model, both in seconds. */
typedef struct pb_step_point {
    double seconds, exposed;
} pb_step_point;

/* The compute time that minimises the sum over n >= 1 points of ((compute + exposed_i - seconds_i) / seconds_i)^2; 0 if
 * the best one is negative. */
double pb_step_compute(const pb_step_point *p, int n);
#endif
