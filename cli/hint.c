/* hint.c - computes the edit distance of two words (Damerau-Levenshtein, with swaps of adjacent letters), and writes
 * the "did you mean" text. */
#include "cli/hint.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LETTERS = 64 };

static int least(int a, int b) { return a < b ? a : b; }

int pb_edit_distance(const char *a, const char *b)
{
    int d[LETTERS][LETTERS];
    size_t n = strlen(a), m = strlen(b);
    if (n >= LETTERS || m >= LETTERS) return INT_MAX;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

void pb_hint_try(pb_hint *h, const char *candidate)
{
    int d = pb_edit_distance(h->word, candidate);
    if (d > (int)strlen(h->word) / 3 + 1 || (*h->best && d >= h->distance)) return;
    snprintf(h->best, sizeof h->best, "%s", candidate);
    h->distance = d;
}

const char *pb_hint_text(pb_hint *h)
{
    if (!*h->best) return "";
    snprintf(h->text, sizeof h->text, "; did you mean '%s'?", h->best);
    return h->text;
}
