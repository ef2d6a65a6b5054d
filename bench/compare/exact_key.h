/* exact_key.h - under which conditions the exact counters (EXACT in metrics.def) of two runs are comparable.
 *
 * The value of an exact counter is determined by three things: the code, the case, and which implementations a machine
 * selects. An exact key describes the third. Values of one case, metric and bench_version are compared if their exact
 * keys are equal, even if the machines differ:
 *
 *   depends   exact key on a CPU                          on a GPU
 *   nothing   cpu                                         cuda NVIDIA_H200 132sm cc=90 cublaslt=130100
 *   isa       cpu isa=avx512 openblas=0.3.21              the same
 *   threads   cpu isa=avx512 openblas=0.3.21 threads=2    the same
 *   build     cpu isa=avx2 openblas=0.3.21 threads=1      none: instructions are counted on a CPU only
 *             libc=2.36 compiler=GNU_12.2.0 flags=1a2b3c4d counter=callgrind-3.19.0
 *   group     none: those of a CPU do not gate            cuda ... cublaslt=130100 counters=L2_of_GH100
 *   nvcc      none                                        cuda ... cublaslt=130100 nvcc=13.0.88
 *
 * flags is a hash of the compiler's flags; counter is what counted, for perf with the processor's model. Where nothing
 * counted instructions, or no metric group was counted, there is no key of that kind.
 *
 * On a CPU the same ops are called for every instruction set and number of threads; only their implementations and
 * their scratch memory differ. On a GPU the kernels of an op depend on the GPU, and the products that cuBLASLt takes on
 * its version. */
#ifndef PB_EXACT_KEY_H
#define PB_EXACT_KEY_H
#include "bench/rows/rows.h"

enum { PB_EXACT_KEYS = PB_EXACT_ON_NVCC + 1, PB_EXACT_KEY_TEXT = 240 };

typedef struct pb_exact_key {
    char text[PB_EXACT_KEYS][PB_EXACT_KEY_TEXT]; /* indexed by pb_exact_depends; "": unknown */
} pb_exact_key;

/* The exact keys of a run, from the fingerprint in run.json (fingerprint.h). `results` is the run folder or its
 * results.csv. Without a run.json, as for a single CSV file or a stored baseline, only the key "cpu" is known, from a
 * machine_id that begins with cpu-. */
void pb_exact_key_of(const char *results, const char *machine_id, pb_exact_key *out);
/* Returns the member of `key` that two runs must have in common for their values of this metric to be comparable. NULL:
 * the metric is not an exact counter, or that member is not known. */
const char *pb_exact_key_for(const pb_exact_key *key, const char *metric);
/* True if the values of the metric are comparable under both keys. */
bool pb_exact_keys_agree(const pb_exact_key *a, const pb_exact_key *b, const char *metric);
#endif
