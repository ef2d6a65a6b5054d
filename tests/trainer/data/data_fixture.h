/* data_fixture.h - writes a small file of conversations, and declares buffers for rows of it; shared by the tests of
 * data sets. */
#ifndef PB_DATA_FIXTURE_H
#define PB_DATA_FIXTURE_H
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/bind.h"
#include "tests/test.h"
#include "trainer/data/dataset.h"

enum { SAMPLES = 40, S = 160, B = 3, T = B * S };

/* Sample i has one question and an answer of its own length; every seventh sample has a second answer. */
static inline const char *write_samples(int n)
{
    static char path[32];
    snprintf(path, sizeof path, "/tmp/pb_data_testXXXXXX");
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++) {
        fprintf(f,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"q%d\"},{\"role\":\"assistant\",\"content\":\"%d:", i,
                i);
        for (int k = 0; k < (int)(pb_uniform(5, (uint64_t)i) * 60); k++) fputc('a' + (i + k) % 26, f);
        fprintf(f, i % 7 ? "\"}]}\n" : "\"},{\"role\":\"assistant\",\"content\":\"more\"}]}\n");
    }
    fclose(f);
    return path;
}

static inline pb_dataset_config config(void)
{
    return (pb_dataset_config){.chat = {.family = PB_TEMPLATE_BYTES}, .S = S, .pack = PB_PACK_ON, .seed = 42};
}

static inline pb_dataset *open_samples(const pb_dataset_config *cfg, int n, pb_dataset_counts *counts)
{
    const char *path = write_samples(n);
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    CHECK_OK(pb_dataset_open(path, t, cfg, counts, &d));
    remove(path);
    pb_tokenizer_close(t);
    return d;
}

typedef struct room {
    int32_t ids[T], targets[T], start[T], pos[T];
    float mask[T];
    int32_t used[B];
} room;

static inline pb_rows rows_of(room *r) { return (pb_rows){r->ids, r->targets, r->mask, r->start, r->pos, r->used}; }
#endif
