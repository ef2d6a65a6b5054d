/* exact_key.h - under which conditions the exact counters (EXACT in metrics.def) of two runs are comparable.
 *
 * An exact counter follows from the code, the case, and what code is selected on a machine. An exact key names the
 * latter; values of one case, metric and bench_version are compared where the exact keys are equal, on any machine:
 *
 *   depends   exact key on a CPU                          on a GPU
 *   nothing   cpu                                         cuda NVIDIA_H200 132sm cc=90 cublaslt=130100
 *   isa       cpu isa=avx512 openblas=0.3.21              the same
 *   threads   cpu isa=avx512 openblas=0.3.21 threads=2    the same
 *
 * On a CPU the same ops are called for every instruction set and number of threads; only their implementations and
 * their scratch memory differ. On a GPU the kernels of an op depend on the GPU, and the products that cuBLASLt takes on
 * its version. */
#ifndef PB_EXACT_KEY_H
#define PB_EXACT_KEY_H
#include "bench/rows/rows.h"

enum { PB_EXACT_KEYS = PB_EXACT_ON_THREADS + 1, PB_EXACT_KEY_TEXT = 160 };

typedef struct pb_exact_key {
    char text[PB_EXACT_KEYS][PB_EXACT_KEY_TEXT]; /* by pb_exact_depends; "": unknown */
} pb_exact_key;

/* The exact keys of a run, from the fingerprint in run.json (fingerprint.h). `results` is the run folder or its
 * results.csv. Without a run.json, as for a single CSV file or a stored baseline, only the key "cpu" is known, from a
 * machine_id that begins with cpu-. */
void pb_exact_key_of(const char *results, const char *machine_id, pb_exact_key *out);
/* The key of `key` that counts for this metric. NULL: the metric is not an exact counter, or the key is unknown. */
const char *pb_exact_key_for(const pb_exact_key *key, const char *metric);
/* True if the values of the metric are comparable under both keys. */
bool pb_exact_keys_agree(const pb_exact_key *a, const pb_exact_key *b, const char *metric);
#endif
