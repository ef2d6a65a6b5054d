/* data.c - conversations from JSONL into one stream of byte tokens, and windows of it. */
#include "trainer/data.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/core/bind.h"

typedef struct text {
    int32_t *ids;
    unsigned char *counted; /* 1 where the loss counts when this token is the target */
    size_t n, room;
} text;

struct pb_corpus {
    text stream;
    size_t conversations;
};

static pb_status push(text *t, int32_t id, bool counted)
{
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 4096;
        int32_t *ids = realloc(t->ids, room * sizeof *ids);
        if (ids) t->ids = ids;
        unsigned char *c = ids ? realloc(t->counted, room) : NULL;
        if (c) t->counted = c;
        if (!ids || !c) return pb_fail(PB_ENOMEM, "no memory for a text of %zu tokens", room);
        t->room = room;
    }
    t->ids[t->n] = id;
    t->counted[t->n++] = counted;
    return PB_OK;
}

static pb_status push_bytes(text *t, const char *s, bool counted)
{
    for (; *s; s++) PB_TRY(push(t, (unsigned char)*s, counted));
    return PB_OK;
}

static void drop(text *t)
{
    free(t->ids);
    free(t->counted);
    *t = (text){0};
}

/* <im_start>role\ncontent<im_end>\n, where an assistant's content and <im_end> count. */
static pb_status push_message(text *t, const char *role, const char *content)
{
    const bool counted = strcmp(role, "assistant") == 0;
    PB_TRY(push(t, PB_TOKEN_START, false));
    PB_TRY(push_bytes(t, role, false));
    PB_TRY(push(t, '\n', false));
    PB_TRY(push_bytes(t, content, counted));
    PB_TRY(push(t, PB_TOKEN_END, counted));
    return push(t, '\n', false);
}

static pb_status push_conversation(text *t, const char *line, const char *path, size_t number)
{
    json_error_t e;
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, &e), *message;
    json_t *messages = root ? json_object_get(root, "messages") : NULL;
    pb_status s = PB_OK;
    size_t i;
    if (!root) return pb_fail(PB_EIO, "%s:%zu: %s", path, number, e.text);
    if (!json_is_array(messages) || !json_array_size(messages))
        s = pb_fail(PB_EIO, "%s:%zu: no \"messages\"", path, number);
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        const char *content = json_string_value(json_object_get(message, "content"));
        if (s != PB_OK) break;
        s = role && content ? push_message(t, role, content)
                            : pb_fail(PB_EIO, "%s:%zu: message %zu lacks \"role\" or \"content\"", path, number, i + 1);
    }
    json_decref(root);
    return s;
}

/* Every conversation of the file as its own text. */
static pb_status read_all(FILE *f, const char *path, text **out, size_t *n)
{
    char *line = NULL;
    size_t room = 0, number = 0, texts = 0;
    pb_status s = PB_OK;
    for (ssize_t len; s == PB_OK && (len = getline(&line, &room, f)) >= 0;) {
        number++;
        if (strspn(line, " \t\r\n") == (size_t)len) continue;
        if (strlen(line) != (size_t)len) s = pb_fail(PB_EIO, "%s:%zu: a NUL byte", path, number);
        text *more = s == PB_OK ? realloc(*out, (*n + 1) * sizeof *more) : NULL;
        if (s == PB_OK && !more) s = pb_fail(PB_ENOMEM, "no memory for %zu conversations", texts + 1);
        if (s != PB_OK) break;
        *out = more;
        more[(*n)++] = (text){0};
        s = push_conversation(&more[*n - 1], line, path, number);
    }
    if (s == PB_OK && ferror(f)) s = pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    if (s == PB_OK && !*n) s = pb_fail(PB_EIO, "%s: no conversation in it", path);
    free(line);
    return s;
}

/* Appends the texts to the stream in an order drawn from the seed (Fisher-Yates). */
static pb_status join(pb_corpus *c, text *texts, size_t n, uint64_t seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)(pb_uniform(seed, i) * (double)i);
        text swap = texts[k];
        texts[k] = texts[i - 1];
        texts[i - 1] = swap;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < texts[i].n; k++) PB_TRY(push(&c->stream, texts[i].ids[k], texts[i].counted[k]));
    c->conversations = n;
    return PB_OK;
}

pb_status pb_corpus_open(const char *path, uint64_t seed, pb_corpus **out)
{
    text *texts = NULL;
    size_t n = 0;
    FILE *f = fopen(path, "r");
    if (!f) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    pb_corpus *c = calloc(1, sizeof *c);
    pb_status s = c ? read_all(f, path, &texts, &n) : pb_fail(PB_ENOMEM, "no memory for a corpus");
    fclose(f);
    if (s == PB_OK) s = join(c, texts, n, seed);
    for (size_t i = 0; i < n; i++) drop(&texts[i]);
    free(texts);
    if (s != PB_OK) pb_corpus_close(c);
    else *out = c;
    return s;
}

void pb_corpus_close(pb_corpus *c)
{
    if (!c) return;
    drop(&c->stream);
    free(c);
}

size_t pb_corpus_conversations(const pb_corpus *c) { return c->conversations; }
size_t pb_corpus_tokens(const pb_corpus *c) { return c->stream.n; }

/* Whether window w of S+1 tokens has enough targets that count. */
static bool usable(const text *t, size_t w, int S)
{
    int counted = 0;
    for (size_t k = w * (size_t)S + 1; k <= (w + 1) * (size_t)S; k++) counted += t->counted[k];
    return counted > 0 && 4 * counted >= S;
}

/* The window behind `w` (wrapping around) that is usable; the number of windows when none is. */
static size_t next_window(const text *t, size_t w, size_t windows, int S)
{
    for (size_t i = 1; i <= windows; i++)
        if (usable(t, (w + i) % windows, S)) return (w + i) % windows;
    return windows;
}

pb_status pb_corpus_batch(const pb_corpus *c, int B, int S, size_t index, int32_t *ids, int32_t *targets, float *mask)
{
    const text *t = &c->stream;
    const size_t windows = S > 0 && t->n ? (t->n - 1) / (size_t)S : 0;
    size_t good = 0, w = windows - 1;
    for (size_t i = 0; i < windows; i++) good += usable(t, i, S);
    if (!good) return pb_fail(PB_EINVAL, "the corpus has no window of %d tokens with enough text to learn from", S);
    for (size_t i = 0; i <= index * (size_t)B % good; i++) w = next_window(t, w, windows, S);
    for (int b = 0; b < B; b++, w = next_window(t, w, windows, S))
        for (int s = 0; s < S; s++) {
            const size_t at = w * (size_t)S + (size_t)s, to = (size_t)b * (size_t)S + (size_t)s;
            ids[to] = t->ids[at];
            targets[to] = t->ids[at + 1];
            mask[to] = t->counted[at + 1];
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
    for (int up = 0; up < 2; up++) { /* PREFIX/bin/train -> PREFIX */
        char *slash = strrchr(exe, '/');
        if (slash) *slash = 0;
    }
    snprintf(buffer, n, "%s/share/plumb/corpus.jsonl", exe);
    if (access(buffer, R_OK) != 0) snprintf(buffer, n, "%s/corpus.jsonl", PB_SOURCE_DATA);
    return buffer;
}
