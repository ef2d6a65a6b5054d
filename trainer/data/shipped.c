/* shipped.c - finds the shipped conversations, and opens conversations as a stream of bytes. */
#include "trainer/data/shipped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *pb_shipped_path(char *buffer, size_t n)
{
    char exe[512];
    const char *env = getenv("PB_DATA");
    if (env) {
        snprintf(buffer, n, "%s/corpus.jsonl", env);
        return buffer;
    }
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[len < 0 ? 0 : len] = 0;
    for (int up = 0; up < 2; up++) { /* PREFIX/bin/train becomes PREFIX */
        char *slash = strrchr(exe, '/');
        if (slash) *slash = 0;
    }
    snprintf(buffer, n, "%s/share/plumb/corpus.jsonl", exe);
    if (access(buffer, R_OK) != 0) snprintf(buffer, n, "%s/corpus.jsonl", PB_SOURCE_DATA);
    return buffer;
}

const char *pb_large_text_path(char *buffer, size_t n)
{
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int len = -1;
    if (xdg && *xdg) len = snprintf(buffer, n, "%s/plumb/texts.jsonl", xdg);
    else if (home) len = snprintf(buffer, n, "%s/.local/share/plumb/texts.jsonl", home);
    const bool found = !getenv("PB_DATA") && len > 0 && (size_t)len < n && access(buffer, R_OK) == 0;
    return found ? buffer : pb_shipped_path(buffer, n);
}

pb_status pb_byte_stream_open(const char *path, int S, uint64_t seed, pb_dataset **out)
{
    const pb_dataset_config cfg = {.chat = {.family = PB_TEMPLATE_BYTES},
                                   .mask = PB_MASK_ASSISTANT,
                                   .bad_lines = PB_BAD_LINES_FAIL,
                                   .long_ones = PB_LONG_SPLIT,
                                   .S = S,
                                   .pack = PB_PACK_STREAM,
                                   .min_counted = 0.25,
                                   .seed = seed};
    pb_dataset_counts counts;
    pb_tokenizer *t;
    PB_TRY(pb_tokenizer_open(NULL, &t));
    const pb_status s = pb_dataset_open(path, t, &cfg, &counts, out);
    pb_tokenizer_close(t);
    return s;
}
