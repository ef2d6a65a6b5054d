/* fuzz_gates.c - fuzzes the reader of gates.csv with libFuzzer: accepted input must keep the guarantees of gates.h;
 * refused input must give one line of printable error. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_gates -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_gates */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/gates.h"
#include "bench/rows/metric.h"
#include "os/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(const pb_gate *g)
{
    if (!*g->suite || strchr(g->suite, '/') || !pb_is_printable(g->suite)) abort();
    if (!pb_metric_find(g->metric) || (*g->ceiling && !pb_metric_find(g->ceiling))) abort();
    if (!(g->stored_limit > 0 && g->stored_limit < 10) || (g->gating && !g->gating_pairs)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    pb_gates gates;
    if (pb_gates_parse("gates.csv", (const char *)bytes, n, &gates) == PB_OK) {
        for (int i = 0; i < gates.n; i++) check(&gates.gate[i]);
    } else if (!*pb_error() || !pb_is_printable(pb_error())) {
        abort();
    }
    return 0;
}
