/* fuzz_jsonl.c - fuzzes the reader of conversations with libFuzzer: each input is read as JSONL, with every template
 * and mask. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_jsonl -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_jsonl */
#include <stdlib.h>
#include <string.h>

#include "trainer/data/encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

typedef struct tries {
    pb_tokenizer *t;
    size_t taken;
} tries;

/* Checks a rendering: its spans are in order and inside the text. */
static void check(const pb_rendered *r)
{
    size_t last = 0;
    for (size_t i = 0; i < r->n; i++) {
        const pb_span *s = &r->span[i];
        if (s->a < last || s->a > s->content_end || s->content_end > s->b || s->b > r->text.n) abort();
        last = s->b;
    }
}

static pb_status take(void *self, const pb_chat *chat)
{
    tries *x = self;
    x->taken++;
    for (int t = 0; t < PB_NTEMPLATES; t++)
        for (int thinking = 0; thinking < 2; thinking++) {
            const pb_chat_options o = {(pb_template)t, thinking, true, thinking ? "S" : NULL};
            pb_rendered r = {0};
            pb_samples s = {0};
            if (pb_chat_render(chat, &o, &r) == PB_OK) check(&r);
            else if (!*pb_error()) abort();
            for (int m = 0; m < PB_NMASKS; m++)
                if (pb_encode_chat(x->t, chat, &o, (pb_mask_type)m, &s) == PB_OK && s.first[s.n] != s.ids.n) abort();
            pb_rendered_free(&r);
            pb_samples_free(&s);
        }
    return PB_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static tries x;
    pb_jsonl_counts c;
    if (!x.t && pb_tokenizer_open(NULL, &x.t) != PB_OK) abort();
    x.taken = 0;
    if (pb_jsonl_parse("fuzz", (const char *)bytes, n, PB_BAD_LINES_SKIP, take, &x, &c) != PB_OK) abort();
    if (c.lines != c.blank + c.samples + c.bad || c.samples != x.taken) abort();
    for (size_t i = 0; i < c.bad && i < PB_JSONL_KEPT; i++)
        if (strncmp(c.kept[i], "fuzz:", 5) != 0 || strpbrk(c.kept[i], "\n\r")) abort();
    return 0;
}
