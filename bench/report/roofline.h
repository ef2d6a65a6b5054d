/* roofline.h - `bench report --roofline RUN`: what bounds each op, from the rows of a run with times and, if there are
 * any, of runs with counters (--counters) of the same cases.
 *
 *     least time   max(bytes / copy_rate, FLOPs / matmul_rate)    by the op's cost function; ceilings of the run
 *     share        least time / kernel_time
 *     bound by     memory or arithmetic: which of the two gives the least time; at a share below one half neither does,
 *                  and what warps wait for, if group STALL was counted, says more
 *
 * An f32 op is compared with matmul_f32_rate where the run has it, as roofline_fraction is. Bytes and FLOPs of the cost
 * function are what the op must move and compute; counted ones are what it did (metrics dram_bytes or the sum of
 * dram_read_bytes and dram_write_bytes, and tensor_bf16_flops). */
#ifndef PB_ROOFLINE_H
#define PB_ROOFLINE_H
#include <stdio.h>

#include "bench/rows/rows.h"
#include "cli/words.h"

typedef struct pb_roofline_line {
    double seconds, bytes, flops;        /* of one call; bytes and flops by the cost function */
    double counted_bytes, counted_flops; /* NaN: not counted */
    double share;                        /* NaN: the run has no ceilings */
    bool arithmetic;                     /* FLOPs give the least time, else bytes */
    const char *waits; /* the metric stall_* with the largest share but stall_none; NULL: not counted */
    double waiting;    /* its share of the warps' cycles */
} pb_roofline_line;

/* Makes the line of a case of suite kernels. sets[0] has the times and ceilings, sets[1] to sets[n - 1] the counters,
 * of which the first with a value counts. False: sets[0] has no kernel_time of this case, or its op is not known. */
bool pb_roofline_of(const pb_series_set *const *sets, int n, const char *key, pb_roofline_line *out);

/* Prints the table of the cases of suite kernels, lowest share first. run: a run folder or CSV file, which must have
 * been measured with ceilings; counted: further ones. EINVAL: a run has no times, or no ceilings; the errors of
 * pb_table_read(). */
pb_status pb_roofline(const char *run, const pb_words *counted, bool markdown, FILE *out);
#endif
