/* ceilings.h - the ceilings with which `bench analyze` compares the rates of ops. Private to bench/analyze. */
#ifndef PB_ANALYZE_CEILINGS_H
#define PB_ANALYZE_CEILINGS_H
#include <stdbool.h>

#include "os/status.h"

typedef struct pb_ceilings {
    double copy,
        matmul; /* copy_rate, B/s, and matmul_rate, FLOP/s, of suite ceiling: medians over the processes; 0: none */
    char machine[128]; /* machine id of the run */
} pb_ceilings;

/* Reads the ceilings of a run, which every suite measures, or of a stored baseline. gpu: the traces have work of a GPU.
 * EINVAL: the run lacks a ceiling, or was measured on a CPU and the traces are of a GPU, or the reverse; the errors of
 * pb_table_read(). */
pb_status pb_ceilings_read(const char *run, bool gpu, pb_ceilings *out);
/* The least time of this work at the ceilings divided by `seconds`: roofline_fraction of suite kernels, but that every
 * op is compared with matmul_rate, whatever its dtype. Above 1 where data stay in a cache. 0: not known. */
double pb_ceilings_share(const pb_ceilings *c, double flops, double bytes, double seconds);
#endif
