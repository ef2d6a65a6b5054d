/* fuzz_checkpoint.c - fuzzes the reader of checkpoint.json with libFuzzer. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_checkpoint -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_checkpoint
 * Each input is read as it is, and again with its correct digest inserted, which random mutation would never
 * produce. Accepted input must keep the guarantees of index.h and survive writing and rereading; refused input must
 * give one line of error. */
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_progress(const pb_progress *p)
{
    if (!p->iteration || p->iteration > INT64_MAX || p->data.epoch > INT64_MAX || p->data.row > INT64_MAX) abort();
#define X(name, meaning)                                                                                               \
    if (p->name > INT64_MAX) abort();
    PB_COUNTER_MAP(X)
#undef X
}

/* Aborts if the name of an accepted file leads out of the checkpoint's folder. */
static void check_file(const pb_index *x, const pb_index_file *f)
{
    const size_t n = strlen(f->name);
    if (!n || n > PB_INDEX_NAME || f->name[0] == '/' || strstr(f->name, "//") || strpbrk(f->name, "\n\r")) abort();
    if (strcmp(f->name, "..") == 0 || strncmp(f->name, "../", 3) == 0 || strstr(f->name, "/../")) abort();
    if (n >= 3 && strcmp(f->name + n - 3, "/..") == 0) abort();
    if (pb_index_find(x, f->name) != f || !pb_digest_is_text(f->digest.hex)) abort();
}

static void use(const pb_index *x)
{
    pb_index again = {0};
    const char *key;
    json_t *v;
    char *text = NULL;
    size_t n = 0;
    check_progress(&x->progress);
    if (!pb_digest_is_text(x->base.hex) || x->files > PB_INDEX_FILES) abort();
    for (size_t i = 0; i < x->files; i++) check_file(x, &x->file[i]);
    json_object_foreach(x->settings, key, v)
    {
        if (!json_is_string(v) || strpbrk(key, "\n\r") || strpbrk(json_string_value(v), "\n\r")) abort();
    }
    if (pb_index_format(x, &text, &n) != PB_OK || pb_index_parse("again", text, n, &again) != PB_OK) abort();
    if (memcmp(&again.progress, &x->progress, sizeof again.progress) != 0 || again.files != x->files) abort();
    if (!json_equal(again.settings, x->settings)) abort();
    pb_index_free(&again);
    free(text);
}

static void read_it(const void *bytes, size_t n)
{
    pb_index x = {0};
    if (pb_index_parse("fuzz", bytes, n, &x) == PB_OK) use(&x);
    else if (x.settings || x.file || !*pb_error() || strpbrk(pb_error(), "\n\r")) abort();
    pb_index_free(&x);
}

/* Inserts the input's digest before its closing brace and reads the result. */
static void read_with_digest(const uint8_t *bytes, size_t n)
{
    static const char head[] = ", \"digest\": \"", end[] = "\"}\n";
    while (n && bytes[n - 1] != '}') n--;
    if (!n) return;
    char *text = malloc(n + 64);
    if (!text) abort();
    memcpy(text, bytes, --n);
    const pb_digest_text d = pb_digest_of(bytes, n);
    memcpy(text + n, head, sizeof head - 1);
    memcpy(text + n + sizeof head - 1, d.hex, 32);
    memcpy(text + n + sizeof head - 1 + 32, end, sizeof end - 1);
    read_it(text, n + sizeof head - 1 + 32 + sizeof end - 1);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    read_it(bytes, n);
    read_with_digest(bytes, n);
    return 0;
}
