/* corpus.c - reads conversations from JSONL into one stream of byte tokens, and cuts windows from it. */
#include "trainer/data/corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/data/dataset.h"

struct pb_corpus {
    int32_t *ids; /* [n] the tokens of all conversations, in an order drawn from the seed */
    unsigned char *counted;
    size_t n, conversations;
};

typedef struct reading {
    pb_tokenizer *tokenizer;
    pb_samples samples;
} reading;

static pb_status take(void *self, const pb_chat *chat)
{
    reading *r = self;
    return pb_encode_chat(r->tokenizer, chat, &(pb_chat_options){.family = PB_TEMPLATE_BYTES}, PB_MASK_ASSISTANT,
                          &r->samples);
}

/* Concatenates all conversations in an order drawn from the seed. */
static pb_status join(pb_corpus *c, const pb_samples *s, uint64_t seed)
{
    size_t *order = malloc(s->n * sizeof *order);
    c->ids = malloc(s->ids.n * sizeof *c->ids);
    c->counted = malloc(s->ids.n);
    if (!order || !c->ids || !c->counted) {
        free(order);
        return pb_fail(PB_ENOMEM, "no memory for a corpus of %zu tokens", s->ids.n);
    }
    pb_shuffle(order, s->n, seed);
    for (size_t i = 0; i < s->n; i++) {
        const size_t from = s->first[order[i]], n = s->first[order[i] + 1] - from;
        memcpy(c->ids + c->n, s->ids.id + from, n * sizeof *c->ids);
        memcpy(c->counted + c->n, s->counted + from, n);
        c->n += n;
    }
    c->conversations = s->n;
    free(order);
    return PB_OK;
}

static pb_status read_corpus(const char *path, uint64_t seed, pb_corpus *c)
{
    reading r = {0};
    pb_jsonl_counts counts;
    PB_TRY(pb_tokenizer_open(NULL, &r.tokenizer));
    pb_status s = pb_jsonl_read(path, PB_BAD_LINES_FAIL, take, &r, &counts);
    if (s == PB_OK && !r.samples.n) s = pb_fail(PB_EINVAL, "%s: no conversation in it", path);
    if (s == PB_OK) s = join(c, &r.samples, seed);
    pb_samples_free(&r.samples);
    pb_tokenizer_close(r.tokenizer);
    return s;
}

pb_status pb_corpus_open(const char *path, uint64_t seed, pb_corpus **out)
{
    pb_corpus *c = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "no memory for a corpus");
    const pb_status s = read_corpus(path, seed, c);
    if (s == PB_OK) *out = c;
    else pb_corpus_close(c);
    return s;
}

void pb_corpus_close(pb_corpus *c)
{
    if (!c) return;
    free(c->ids);
    free(c->counted);
    free(c);
}

size_t pb_corpus_conversations(const pb_corpus *c) { return c->conversations; }
size_t pb_corpus_tokens(const pb_corpus *c) { return c->n; }

/* True if at least a quarter of the S targets of window w count in the loss. */
static bool usable(const pb_corpus *c, size_t w, int S)
{
    int counted = 0;
    for (size_t k = w * (size_t)S + 1; k <= (w + 1) * (size_t)S; k++) counted += c->counted[k];
    return counted > 0 && 4 * counted >= S;
}

/* The next usable window after w, continuing at window 0 after the last; `windows` if no window is usable. */
static size_t next_window(const pb_corpus *c, size_t w, size_t windows, int S)
{
    for (size_t i = 1; i <= windows; i++)
        if (usable(c, (w + i) % windows, S)) return (w + i) % windows;
    return windows;
}

pb_status pb_corpus_batch(const pb_corpus *c, int B, int S, size_t index, int32_t *ids, int32_t *targets, float *mask)
{
    const size_t windows = S > 0 ? (c->n - 1) / (size_t)S : 0;
    size_t good = 0, w = windows - 1;
    for (size_t i = 0; i < windows; i++) good += usable(c, i, S);
    if (!good) return pb_fail(PB_EINVAL, "the corpus has no window of %d tokens with enough text to learn from", S);
    for (size_t i = 0; i <= index * (size_t)B % good; i++) w = next_window(c, w, windows, S);
    for (int b = 0; b < B; b++, w = next_window(c, w, windows, S))
        for (int s = 0; s < S; s++) {
            const size_t at = w * (size_t)S + (size_t)s, to = (size_t)b * (size_t)S + (size_t)s;
            ids[to] = c->ids[at];
            targets[to] = c->ids[at + 1];
            mask[to] = c->counted[at + 1];
        }
    return PB_OK;
}

const char *pb_corpus_path(char *buffer, size_t n)
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
