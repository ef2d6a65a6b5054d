/* attention_lists.c - a helper program for scripts/peers: `attention_lists KEY` writes the key lists of a case of
 * the suite attention to standard output, as [S,W] native 32-bit integers. For variant dynmask it writes the biases
 * [K,S] (native f32), then list [K,L] and until [K,L] as dynmask_keys.h defines them (native 32-bit integers). K is
 * the number of kv heads, and L follows from the length of the output. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/suites/gqa_call.h"

static pb_status put(const void *x, size_t n)
{
    return fwrite(x, 4, n, stdout) == n ? PB_OK : pb_fail(PB_EIO, "the lists cannot be written");
}

static pb_status put_lists(const pb_attn *a)
{
    const size_t n = (size_t)a->S * (size_t)a->W;
    int32_t *idx = malloc(n * sizeof *idx + 1);
    pb_status s = idx ? pb_attn_lists(a, idx) : pb_fail(PB_ENOMEM, "no memory for %zu slots", n);
    if (s == PB_OK) s = put(idx, n);
    free(idx);
    return s;
}

/* The biases and lists of a case depend neither on the pass nor on the width of a head, and every device makes the same
 * ones: those of the smallest forward case are written. */
static pb_status put_dynmask(pb_attn a)
{
    pb_ctx cpu;
    pb_gqa_call c;
    PB_TRY(pb_ctx_open(&cpu, PB_CPU, 0));
    a.backward = false, a.D = a.V = 8, a.dtype = PB_F32;
    pb_status s = pb_gqa_open(&cpu, &a, &c);
    if (s == PB_OK) {
        const size_t slots = (size_t)c.K * (size_t)c.L;
        s = put(c.bias, (size_t)c.K * (size_t)a.S);
        if (s == PB_OK) s = put(c.list, slots);
        if (s == PB_OK) s = put(c.until, slots);
        pb_gqa_close(&c);
    }
    pb_ctx_close(&cpu);
    return s;
}

int main(int argc, char **argv)
{
    pb_case c;
    pb_attn a = {0};
    if (argc != 2) return fputs("usage: attention_lists KEY\n", stderr), 2;
    pb_status s = pb_case_parse(argv[1], &c);
    if (s == PB_OK) s = pb_attn_of(&c, &a);
    const bool dense = s == PB_OK && (a.variant == PB_VARIANT_DENSE || a.variant == PB_VARIANT_DENSE_GQA);
    if (dense) s = pb_fail(PB_EINVAL, "%s has no lists", argv[1]);
    if (s == PB_OK) s = a.variant == PB_VARIANT_DYNMASK ? put_dynmask(a) : put_lists(&a);
    if (s != PB_OK) fprintf(stderr, "attention_lists: %s\n", pb_error());
    return s == PB_OK ? 0 : s == PB_EINVAL ? 2 : 125;
}
