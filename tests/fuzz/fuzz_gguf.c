/* fuzz_gguf.c - fuzzes the reader of GGUF files with libFuzzer. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_gguf -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_gguf
 * Accepted input must keep the guarantees of gguf.h; refused input must give one line of error. */
#include <stdlib.h>
#include <string.h>

#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_refusal(void)
{
    if (!*pb_error() || strpbrk(pb_error(), "\n\r")) abort();
}

static void use_tensors(const pb_gguf *f, const uint8_t *bytes, size_t n)
{
    size_t data = 0;
    for (size_t i = 0; i < pb_gguf_count(f); i++) {
        const pb_gguf_tensor *t = pb_gguf_at(f, i);
        if (pb_gguf_find(f, t->name) != t || t->dims < 1 || t->dims > PB_GGUF_MAX_DIMS) abort();
        if (t->data < bytes || t->bytes > n || t->data > bytes + n - t->bytes) abort();
        data += t->bytes;
        float *out = malloc(t->n * sizeof *out);
        if (!out || pb_gguf_load(f, t, 0, t->n, PB_F32, out) != PB_OK) abort();
        free(out);
    }
    if (data > n) abort();
}

static void use_metadata(const pb_gguf *f)
{
    char *text = NULL;
    pb_hf_config c;
    pb_tokenizer *t = NULL;
    if (pb_hf_gguf_config(f, &text) != PB_OK) check_refusal();
    else if (pb_hf_config_parse("fuzz", text, strlen(text), "fuzz", &c) != PB_OK) check_refusal();
    free(text);
    text = NULL;
    if (pb_hf_gguf_tokenizer(f, &text) != PB_OK) check_refusal();
    else if (pb_tokenizer_parse("fuzz", text, strlen(text), &t) != PB_OK) check_refusal();
    pb_tokenizer_close(t);
    free(text);
    text = NULL;
    if (pb_hf_gguf_tokenizer_config(f, &text) != PB_OK) check_refusal();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    pb_gguf *f = NULL;
    if (pb_gguf_parse("fuzz", bytes, n, &f) == PB_OK) {
        use_tensors(f, bytes, n);
        use_metadata(f);
    } else {
        if (f) abort();
        check_refusal();
    }
    pb_gguf_close(f);
    return 0;
}
