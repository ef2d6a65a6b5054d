/* text_stream.c - text of ids as they arrive, cut at characters. */
#include "trainer/tokenizer/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/room.h"
#include "trainer/tokenizer/unicode.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void pb_text_stream_free(pb_text_stream *s)
{
    pb_ids_free(&s->ids);
    pb_bytes_free(&s->bytes);
    *s = (pb_text_stream){0};
}

/* Returns the length of the longest prefix of s[0..n) that is also a prefix of a UTF-8 character, at least 1. *open is
 * set to whether more bytes could complete that character. */
static size_t part(const char *s, size_t n, bool *open)
{
    /* Every missing byte is tried with its smallest and its largest value. */
    static const char low[] = "\x80\x80\x80", high[] = "\xbf\xbf\xbf";
    size_t length = 0;
    for (size_t k = 1; k <= n && k <= 3; k++)
        for (size_t more = 1; more <= 4 - k; more++)
            for (int side = 0; side < 2; side++) {
                char c[8];
                uint32_t cp;
                memcpy(c, s, k);
                memcpy(c + k, side ? high : low, more);
                if (pb_tok_char(c, k + more, &cp) == k + more) length = k;
            }
    *open = length == n;
    return length ? length : 1;
}

/* Appends the characters of the text from s->shown on, up to one that more bytes may complete (end: to the end). */
static pb_status show(pb_text_stream *s, bool end, pb_bytes *out)
{
    while (s->shown < s->bytes.n) {
        const char *p = s->bytes.p + s->shown;
        const size_t left = s->bytes.n - s->shown, valid = pb_tok_valid(p, left);
        bool open;
        PB_TRY(pb_tok_append(out, p, valid));
        s->shown += valid;
        if (valid == left) break;
        const size_t n = part(p + valid, left - valid, &open);
        if (open && !end) break;
        PB_TRY(pb_tok_append(out, replacement, strlen(replacement)));
        s->shown += n;
    }
    return PB_OK;
}

pb_status pb_text_stream_end(pb_text_stream *s, pb_bytes *out)
{
    PB_TRY(show(s, true, out));
    s->ids.n = s->bytes.n = s->shown = 0;
    return PB_OK;
}

pb_status pb_text_stream_add(pb_text_stream *s, int32_t id, pb_bytes *out)
{
    s->bytes.n = 0;
    if (pb_tokenizer_decode(s->t, &id, 1, 0, &s->bytes) != PB_OK) { /* not a token */
        s->bytes.n = 0;
        PB_TRY(pb_tokenizer_decode(s->t, s->ids.id, s->ids.n, PB_TOK_SKIP_SPECIAL, &s->bytes));
        PB_TRY(pb_text_stream_end(s, out));
        return pb_tok_append(out, replacement, strlen(replacement));
    }
    s->bytes.n = 0;
    PB_TRY(pb_ids_append(&s->ids, id));
    PB_TRY(pb_tokenizer_decode(s->t, s->ids.id, s->ids.n, PB_TOK_SKIP_SPECIAL, &s->bytes));
    return show(s, false, out);
}
