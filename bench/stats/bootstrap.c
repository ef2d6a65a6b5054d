/* bootstrap.c - the BCa bootstrap interval. The resampling seed is derived from the data, so results are
 * reproducible. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
#include "kernels/engine/bind.h"

uint64_t pb_seed_of(const double *x, int n)
{
    uint64_t h = 14695981039346656037u, bits;
    for (int i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the p-quantile of sorted values, interpolated linearly between neighbours (Hyndman and Fan 1996, type 7). */
static double quantile(const double *sorted, int n, double p)
{
    double at = p * (n - 1);
    int i = (int)at;
    return i >= n - 1 ? sorted[n - 1] : sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]);
}

/* Computes BCa's acceleration by the jackknife: sum (m - v_i)^3 / (6 (sum (m - v_i)^2)^1.5), where v_i is the statistic
 * without value i, and m the mean of all v_i. */
static double acceleration(const double *x, int n, pb_statistic f, double *work, double *left_out)
{
    double mean = 0, cubes = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0, to = 0; k < n; k++)
            if (k != i) work[to++] = x[k];
        left_out[i] = f(work, n - 1);
        mean += left_out[i] / n;
    }
    for (int i = 0; i < n; i++) {
        double d = mean - left_out[i];
        squares += d * d;
        cubes += d * d * d;
    }
    return squares > 0 ? cubes / (6 * squares * sqrt(squares)) : 0;
}

/* Returns the level of the quantile of the sorted resamples at which the BCa interval ends. z: the normal quantile of
 * that end without correction, negative for the lower end. */
static double adjusted_level(double bias, double accel, double z)
{
    double shifted = bias + z, shrink = 1 - accel * shifted;
    if (!(shrink > 0)) return z < 0 ? 0 : 1; /* the correction diverges: use the extreme resample */
    return pb_normal_tail(-(bias + shifted / shrink));
}

static pb_interval interval_of(const double *x, int n, pb_statistic f, int resamples, double alpha, double *work,
                               double *values)
{
    const uint64_t seed = pb_seed_of(x, n);
    memcpy(work, x, (size_t)n * sizeof *x);
    double seen = f(work, n), below = 0;
    double accel = acceleration(x, n, f, work, values);
    for (int r = 0; r < resamples; r++) {
        for (int i = 0; i < n; i++) work[i] = x[(int)(n * pb_uniform(seed, (uint64_t)r * (uint64_t)n + (uint64_t)i))];
        values[r] = f(work, n);
        below += values[r] < seen ? 1 : values[r] > seen ? 0 : 0.5;
    }
    qsort(values, (size_t)resamples, sizeof *values, ascending);
    /* If all resamples are on one side of `seen`, the bias correction would be infinite. So the share is kept half a
     * resample away from 0 and 1. */
    double share = fmin(fmax(below, 0.5), resamples - 0.5) / resamples, bias = -pb_normal_quantile(share);
    double z = pb_normal_quantile(alpha / 2);
    return (pb_interval){quantile(values, resamples, adjusted_level(bias, accel, -z)),
                         quantile(values, resamples, adjusted_level(bias, accel, z))};
}

pb_status pb_bootstrap(const double *x, int n, pb_statistic f, int resamples, double alpha, pb_interval *out)
{
    if (resamples < 100) return pb_fail(PB_EINVAL, "bootstrap: %d resamples, need 100 or more", resamples);
    if (!(alpha > 0 && alpha < 1)) return pb_fail(PB_EINVAL, "bootstrap: alpha=%g, need 0 < alpha < 1", alpha);
    const pb_sample s = pb_sample_of(x, n);
    if (!isfinite(s.sd)) {
        *out = (pb_interval){-HUGE_VAL, HUGE_VAL};
        return PB_OK;
    }
    double *work = malloc((size_t)n * sizeof *work);
    double *values = malloc((size_t)(n > resamples ? n : resamples) * sizeof *values);
    if (work && values) *out = interval_of(x, n, f, resamples, alpha, work, values);
    pb_status status = work && values ? PB_OK : pb_fail(PB_ENOMEM, "bootstrap: out of memory for %d values", n);
    free(work);
    free(values);
    return status;
}
