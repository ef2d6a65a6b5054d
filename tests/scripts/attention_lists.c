/* attention_lists.c - a helper program for scripts/peers: `attention_lists KEY` writes the key lists of a case of
 * the suite attention to standard output, as [S,W] native 32-bit integers. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/suites/attention_case.h"

int main(int argc, char **argv)
{
    pb_case c;
    pb_attn a;
    if (argc != 2) return fputs("usage: attention_lists KEY\n", stderr), 2;
    pb_status s = pb_case_parse(argv[1], &c);
    if (s == PB_OK) s = pb_attn_of(&c, &a);
    if (s == PB_OK && a.variant == PB_VARIANT_DENSE) s = pb_fail(PB_EINVAL, "%s has no lists", argv[1]);
    const size_t n = s == PB_OK ? (size_t)a.S * (size_t)a.W : 0;
    int32_t *idx = malloc(n * sizeof *idx + 1);
    if (s == PB_OK) s = idx ? pb_attn_lists(&a, idx) : pb_fail(PB_ENOMEM, "no memory for %zu slots", n);
    if (s == PB_OK && fwrite(idx, sizeof *idx, n, stdout) != n) s = pb_fail(PB_EIO, "the lists cannot be written");
    if (s != PB_OK) fprintf(stderr, "attention_lists: %s\n", pb_error());
    free(idx);
    return s == PB_OK ? 0 : s == PB_EINVAL ? 2 : 125;
}
