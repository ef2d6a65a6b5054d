/* fit_check.c - selects the measured points that are kept out of a fit, and compares the model with them. */
#include "bench/project/fit_check.h"

#include <math.h>
#include <stdlib.h>

#include "bench/stats/stats.h"

static int sizes_of(const pb_timed *t, int n)
{
    int sizes = n > 0;
    for (int i = 1; i < n; i++) sizes += t[i].bytes != t[i - 1].bytes;
    return sizes;
}

/* The largest number of ranks, or 0 if fewer than `fewest` numbers of ranks were measured, which is 2 or 3. */
static int largest_of(const pb_timed *t, int n, int fewest)
{
    int least = pb_place_ranks(t->place), most = least;
    for (int i = 1; i < n; i++) {
        const int ranks = pb_place_ranks(t[i].place);
        if (ranks < least) least = ranks;
        if (ranks > most) most = ranks;
    }
    int numbers = 1 + (least < most);
    for (int i = 0; i < n; i++) {
        const int ranks = pb_place_ranks(t[i].place);
        if (ranks != least && ranks != most) numbers = 3; /* or more */
    }
    return numbers >= fewest ? most : 0;
}

void pb_keep_out(pb_timed *t, int n, int fewest)
{
    if (!n) return;
    const int largest = largest_of(t, n, fewest);
    const bool by_size = sizes_of(t, n) >= PB_KEPT_OUT_EVERY;
    for (int i = 0, size = 0; i < n; i++) {
        size += i && t[i].bytes != t[i - 1].bytes;
        t[i].kept_out = pb_place_ranks(t[i].place) == largest || (by_size && size % PB_KEPT_OUT_EVERY == 1);
    }
}

pb_status pb_check_points(const pb_timed *t, int n, pb_accuracy *out)
{
    *out = (pb_accuracy){.median = (double)NAN, .max = (double)NAN};
    double *error = calloc((size_t)n + 1, sizeof *error);
    if (!error) return pb_fail(PB_ENOMEM, "project: out of memory");
    for (int i = 0; i < n; i++)
        if (t[i].kept_out) error[out->kept_out++] = fabs(t[i].model - t[i].seconds) / t[i].seconds;
    out->fitted = n - out->kept_out;
    if (out->kept_out) out->max = 0;
    for (int i = 0; i < out->kept_out; i++) out->max = pb_max_or_nan(out->max, error[i]);
    if (out->kept_out) out->median = pb_median(error, out->kept_out);
    free(error);
    return PB_OK;
}
