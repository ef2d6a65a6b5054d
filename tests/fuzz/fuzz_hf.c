/* fuzz_hf.c - fuzzes the readers of config.json and of model.safetensors.index.json with libFuzzer. To build and run
 * it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_hf -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_hf
 * Each input is read as both. If a config.json is accepted, the rotary tables of its model must be computable
 * without NaN. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_refusal(void)
{
    if (!*pb_error() || strpbrk(pb_error(), "\n\r")) abort();
}

static void use(const pb_geometry *g)
{
    float c[2 * 256], s[2 * 256];
    if (g->V < 1 || g->D < 1 || g->L < 1 || g->I < 1 || g->K < 1 || g->H % g->K || g->max_pos < 1) abort();
    if (g->d < 2 || g->d % 2 || g->d > 512 || !(g->eps >= 0)) abort();
    pb_rope_table_scaled(c, s, 2, g->d, g->theta, &g->rope);
    for (int i = 0; i < g->d; i++)
        if (isnan(c[i]) || isnan(s[i])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    pb_hf_config c;
    pb_hf_index x = {0};
    if (pb_hf_config_parse("fuzz", bytes, n, "fuzz", &c) == PB_OK) use(&c.g);
    else check_refusal();
    if (pb_hf_index_parse("fuzz", bytes, n, &x) == PB_OK) {
        for (size_t i = 0; i < x.n; i++)
            if (!*x.file[i] || strchr(x.file[i], '/') || (i && strcmp(x.file[i - 1], x.file[i]) >= 0)) abort();
    } else {
        check_refusal();
    }
    pb_hf_index_free(&x);
    return 0;
}
