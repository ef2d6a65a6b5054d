/* fuzz_import.c - fuzzes the importers with libFuzzer: each input is read as the output of every supported tool. Rows
 * that an importer produces must be accepted by the reader of results. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_import -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_import */
#include <stdint.h>

#include "bench/exchange/import.h"
#include "tests/fuzz/read_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_rows(const pb_import *im)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) abort();
    pb_import_write(im, "run", "machine", f);
    if (fclose(f) != 0 || !pb_read_bytes(text, n)) abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const tools[] = {"nvbench", "nccl-tests"};
    for (int i = 0; i < 2; i++) {
        pb_import im;
        if (pb_import_open(tools[i], &im) != PB_OK) abort();
        pb_status s = pb_import_bytes(&im, "in", (const char *)bytes, n);
        if (s == PB_OK) s = pb_import_finish(&im);
        if (s == PB_OK) check_rows(&im);
        else if (!*pb_error() || strchr(pb_error(), '\n')) abort();
        pb_import_close(&im);
    }
    return 0;
}
