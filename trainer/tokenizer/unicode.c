/* unicode.c - decodes UTF-8, normalises text to NFC with utf8proc, and maps bytes to the alphabet of byte-level
 * vocabularies. */
#include "trainer/tokenizer/unicode.h"

#include <utf8proc.h>

#include "trainer/tokenizer/unicode_new.h"

static inline bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

size_t pb_tok_char(const char *s, size_t n, uint32_t *cp)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char c = n ? (unsigned char)s[0] : 0xff;
    const size_t len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (!len || len > n) return 0;
    uint32_t v = len == 1 ? c : c & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (!continues(s[i])) return 0;
        v = v << 6 | ((unsigned char)s[i] & 0x3fu);
    }
    if (v < least[len] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) return 0;
    *cp = v;
    return len;
}

size_t pb_tok_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        uint32_t cp;
        if (n - i >= sizeof eight) {
            memcpy(&eight, s + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        const size_t len = pb_tok_char(s + i, n - i, &cp);
        if (!len) break;
        i += len;
    }
    return i;
}

size_t pb_tok_char_before(const char *s, size_t n)
{
    size_t i = n - 1;
    while (i && continues(s[i])) i--;
    return i;
}

size_t pb_tok_write_char(uint32_t cp, char out[2])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    return 2;
}

bool pb_tok_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

/* Bytes 0..32, 127..160 and 173 have no printable character; they are encoded in this order as U+0100, U+0101, ... */
uint32_t pb_tok_byte_to_char(unsigned char b)
{
    if (b <= 32) return 256u + b;
    if (b >= 127 && b <= 160) return 256u + 33 + (b - 127u);
    return b == 173 ? 256u + 67 : b;
}

int pb_tok_char_to_byte(uint32_t cp)
{
    if (cp >= 256) return cp < 289 ? (int)cp - 256 : cp < 323 ? (int)cp - 289 + 127 : cp == 323 ? 173 : -1;
    return cp <= 32 || (cp >= 127 && cp <= 160) || cp == 173 ? -1 : (int)cp;
}

bool pb_tok_alphabet_decode(const char *s, size_t n, char *out, size_t *len)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        const size_t step = pb_tok_char(s + i, n - i, &cp);
        const int b = step ? pb_tok_char_to_byte(cp) : -1;
        if (b < 0) return false;
        out[k++] = (char)b;
        i += step;
    }
    *len = k;
    return true;
}

static inline unsigned combining_class(int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class & 0xff;
}

/* Puts a run of combining marks into canonical order: a stable sort by combining class. It is a counting sort, because
 * a text may be one long run, and the exchange sort of utf8proc_decompose is quadratic. tmp: [n]. */
static void order_marks(int32_t *p, size_t n, int32_t *tmp)
{
    size_t at[257] = {0};
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++) sorted = combining_class(p[i - 1]) <= combining_class(p[i]);
    if (sorted) return;
    for (size_t i = 0; i < n; i++) at[combining_class(p[i]) + 1]++;
    for (size_t c = 1; c < 257; c++) at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++) tmp[at[combining_class(p[i])]++] = p[i];
    memcpy(p, tmp, n * sizeof *p);
}

/* Appends the NFC form of s[n], using utf8proc. A character decomposes into at most four code points. */
static pb_status compose(pb_tok_points *scratch, const char *s, size_t n, pb_bytes *out)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    size_t points = 0, marks = 0; /* marks: number of combining marks at the end of the points */
    PB_TOK_ROOM(scratch->p, scratch->room, 8 * n + 8);
    int32_t *p = scratch->p, *tmp = p + 4 * n + 4;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0xfffd;
        int boundary = UTF8PROC_BOUNDCLASS_START;
        i += pb_tok_char(s + i, n - i, &cp);
        const utf8proc_ssize_t k = utf8proc_decompose_char((int32_t)cp, p + points, 4, options, &boundary);
        if (k < 0 || k > 4) return pb_fail(PB_EINVAL, "tokenizer: NFC of U+%04X: %s", cp, utf8proc_errmsg(k));
        for (utf8proc_ssize_t j = 0; j < k; j++) {
            if (!combining_class(p[points])) order_marks(p + points - marks, marks, tmp), marks = 0;
            else marks++;
            points++;
        }
    }
    order_marks(p + points - marks, marks, tmp);
    const utf8proc_ssize_t len = utf8proc_reencode(p, (utf8proc_ssize_t)points, options);
    if (len < 0) return pb_fail(PB_EINVAL, "tokenizer: NFC: %s", utf8proc_errmsg(len));
    return pb_tok_append(out, (const char *)p, (size_t)len);
}

/* Appends the NFC form of s[n]. Characters for which pb_tok_nfc_later is true are copied unchanged; the text between
 * them is composed section by section. */
static pb_status compose_run(pb_tok_points *scratch, const char *s, size_t n, pb_bytes *out)
{
    size_t done = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = 0;
        len = pb_tok_char(s + i, n - i, &cp);
        if (!pb_tok_nfc_later(cp)) continue;
        PB_TRY(compose(scratch, s + done, i - done, out));
        PB_TRY(pb_tok_append(out, s + i, len));
        done = i + len;
    }
    return compose(scratch, s + done, n - done, out);
}

/* Characters below U+0300 are in NFC, and none of them composes with the character before it. So only runs of other
 * characters are normalised, each with the one character before it. U+0300 is cc 80 in UTF-8, so a first byte of at
 * least cc identifies them. */
pb_status pb_tok_nfc(pb_tok_points *scratch, const char *s, size_t n, pb_bytes *out)
{
    size_t done = 0;
    for (size_t i = 0; i < n;) {
        if ((unsigned char)s[i] < 0xcc) {
            i++;
            continue;
        }
        const size_t from = i > done ? done + pb_tok_char_before(s + done, i - done) : i;
        while (i < n && ((unsigned char)s[i] >= 0xcc || continues(s[i]))) i++;
        PB_TRY(pb_tok_append(out, s + done, from - done));
        PB_TRY(compose_run(scratch, s + from, i - from, out));
        done = i;
    }
    return pb_tok_append(out, s + done, n - done);
}
