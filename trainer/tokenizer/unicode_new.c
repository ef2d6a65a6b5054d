/* unicode_new.c - looks up the characters and scripts that unicode.def lists. */
#include "trainer/tokenizer/unicode_new.h"

#include <ctype.h>
#include <stdio.h>

#define NEW_SCRIPT(name)
#define NFC_LATER(first, last)
static const struct newer {
    uint32_t first, last;
    char category[3];
    bool alphabetic;
    const char *script;
} newer[] = {
#define NEW(first, last, category, alphabetic, script) {first, last, category, alphabetic, script},
#include "trainer/tokenizer/unicode.def"
};

#define NEW(first, last, category, alphabetic, script)
#define NFC_LATER(first, last)
static const char *const scripts[] = {
#define NEW_SCRIPT(name) name,
#include "trainer/tokenizer/unicode.def"
};

#define NEW(first, last, category, alphabetic, script)
#define NEW_SCRIPT(name)
static const struct range {
    uint32_t first, last;
} later[] = {
#define NFC_LATER(first, last) {first, last},
#include "trainer/tokenizer/unicode.def"
};

enum { NEWER = sizeof newer / sizeof *newer, SCRIPTS = sizeof scripts / sizeof *scripts };

static bool passed_over(char c) { return c == '_' || c == '-' || c == ' '; }

/* Compares script names as Unicode does: ignoring case, '_', '-' and blanks. */
static bool same_name(const char *a, size_t n, const char *b)
{
    size_t i = 0;
    for (;; i++, b++) {
        while (i < n && passed_over(a[i])) i++;
        while (passed_over(*b)) b++;
        if (i == n || !*b) return i == n && !*b;
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)*b)) return false;
    }
}

static bool has(const struct newer *x, const char *name, size_t n)
{
    if (n == 1) return x->category[0] == name[0];
    if (n == 2) return x->category[0] == name[0] && x->category[1] == name[1];
    return (x->alphabetic && n == strlen("Alphabetic") && !memcmp(name, "Alphabetic", n)) ||
           same_name(name, n, x->script);
}

bool pb_tok_new_any(const char *name, size_t n)
{
    for (size_t i = 0; i < NEWER; i++)
        if (has(&newer[i], name, n)) return true;
    return false;
}

bool pb_tok_new_script(const char *name, size_t n)
{
    for (size_t i = 0; i < SCRIPTS; i++)
        if (same_name(name, n, scripts[i])) return true;
    return false;
}

static bool has_one(const struct newer *x, const char *const *names, const size_t *lengths, size_t names_n)
{
    for (size_t k = 0; k < names_n; k++)
        if (has(x, names[k], lengths[k])) return true;
    return false;
}

pb_status pb_tok_new_put(const char *const *names, const size_t *lengths, size_t names_n, pb_bytes *out)
{
    for (size_t i = 0, next; i < NEWER; i = next) {
        char text[32];
        next = i + 1;
        if (!has_one(&newer[i], names, lengths, names_n)) continue;
        for (; next < NEWER && newer[next].first == newer[next - 1].last + 1; next++)
            if (!has_one(&newer[next], names, lengths, names_n)) break;
        const int n = snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", newer[i].first, newer[next - 1].last);
        PB_TRY(pb_tok_append(out, text, (size_t)n));
    }
    return PB_OK;
}

bool pb_tok_nfc_later(uint32_t cp)
{
    size_t low = 0, high = sizeof later / sizeof *later;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (cp > later[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < sizeof later / sizeof *later && cp >= later[low].first;
}
