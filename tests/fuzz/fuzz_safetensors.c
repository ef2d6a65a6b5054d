/* fuzz_safetensors.c - fuzzes the reader of safetensors files with libFuzzer. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_safetensors -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_safetensors
 * Accepted input must keep the guarantees of safetensors.h; refused input must give one line of error. */
#include <stdlib.h>
#include <string.h>

#include "trainer/io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void use(const pb_safetensors *f, const uint8_t *bytes, size_t n)
{
    size_t data = 0;
    for (size_t i = 0; i < pb_st_count(f); i++) {
        const pb_st_tensor *t = pb_st_at(f, i);
        if (pb_st_find(f, t->name) != t || t->dims > PB_ST_MAX_DIMS) abort();
        if (t->bytes != t->n * pb_st_dtype_size(t->dtype)) abort();
        if (t->data < bytes || t->bytes > n || t->data > bytes + n - t->bytes) abort();
        data += t->bytes;
        float *out = malloc(t->n * sizeof *out + 1);
        if (!out) abort();
        const pb_dtype to = pb_st_can_convert(t->dtype, PB_F32) ? PB_F32 : PB_I32;
        if (pb_st_convert(t, 0, t->n, to, out) != PB_OK && strpbrk(pb_error(), "\n\r")) abort();
        free(out);
    }
    if (data > n) abort();
    (void)pb_st_metadata(f, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    pb_safetensors *f = NULL;
    if (pb_st_parse("fuzz", bytes, n, &f) == PB_OK) use(f, bytes, n);
    else if (f || !*pb_error() || strpbrk(pb_error(), "\n\r")) abort();
    pb_st_close(f);
    return 0;
}
