/* fuzz_read.c - fuzzes the reader of results.csv with libFuzzer. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_read -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus */
#include <stdint.h>

#include "tests/fuzz/read_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    pb_read_bytes(bytes, n);
    return 0;
}
