/* exact_key.c - makes exact keys from the fingerprint of a run. */
#include "bench/compare/exact_key.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "bench/compare/soft_differences.h"
#include "bench/text/text.h"
#include "os/text.h"

static const char *word(const json_t *part, const char *name)
{
    const char *text = json_string_value(json_object_get(part, name));
    return text ? text : "";
}

static long long number(const json_t *part, const char *name)
{
    return (long long)json_number_value(json_object_get(part, name));
}

/* The version in OpenBLAS's description of itself, "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...". */
static void openblas_version(const char *config, char out[32])
{
    if (sscanf(config, "%*s %31s", out) != 1) snprintf(out, 32, "unknown");
}

static void of_cpu(const json_t *hard, const json_t *soft, pb_exact_key *out)
{
    char blas[32];
    openblas_version(word(soft, "openblas"), blas);
    const char *isa = word(hard, "isa");
    const long long threads = number(soft, "threads");
    snprintf(out->text[PB_EXACT_ON_NOTHING], PB_EXACT_KEY_TEXT, "cpu");
    if (!*isa) return;
    snprintf(out->text[PB_EXACT_ON_ISA], PB_EXACT_KEY_TEXT, "cpu isa=%.32s openblas=%s", isa, blas);
    if (threads < 1) return;
    snprintf(out->text[PB_EXACT_ON_THREADS], PB_EXACT_KEY_TEXT, "cpu isa=%.32s openblas=%s threads=%lld", isa, blas,
             threads);
}

/* Copies a word of the fingerprint with its spaces replaced, so that the key's parts stay separate. */
static const char *one_word(const json_t *part, const char *name, char out[64])
{
    snprintf(out, 64, "%s", word(part, name));
    for (char *s = out; *s; s++)
        if (*s == ' ') *s = '_';
    return out;
}

/* Adds the exact key of `instructions`: threads, C library, compiler, flags, and the counter (callgrind or perf). */
static void of_build(const json_t *soft, pb_exact_key *out)
{
    char libc[64], compiler[64], counter[64];
    const char *threads = out->text[PB_EXACT_ON_THREADS];
    if (!*threads || !*one_word(soft, "instructions", counter)) return;
    snprintf(out->text[PB_EXACT_ON_BUILD], PB_EXACT_KEY_TEXT,
             "%.100s libc=%.16s compiler=%.32s flags=%08x counter=%.48s", threads, one_word(soft, "libc", libc),
             one_word(soft, "compiler", compiler), pb_text_hash(word(soft, "flags")), counter);
}

static void of_gpu(const json_t *hard, const json_t *soft, pb_exact_key *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s", word(hard, "gpu"));
    for (char *s = name; *s; s++)
        if (*s == ' ') *s = '_';
    if (!*name) return;
    char group[64], nvcc[64];
    for (int i = 0; i <= PB_EXACT_ON_THREADS; i++)
        snprintf(out->text[i], PB_EXACT_KEY_TEXT, "%.16s %s %lldsm cc=%lld cublaslt=%lld", word(hard, "device"), name,
                 number(hard, "multiprocessors"), number(hard, "capability"), number(soft, "cublaslt"));
    if (*one_word(soft, "counters", group))
        snprintf(out->text[PB_EXACT_ON_GROUP], PB_EXACT_KEY_TEXT, "%.160s counters=%.48s",
                 out->text[PB_EXACT_ON_NOTHING], group);
    if (*one_word(soft, "nvcc", nvcc))
        snprintf(out->text[PB_EXACT_ON_NVCC], PB_EXACT_KEY_TEXT, "%.160s nvcc=%.32s", out->text[PB_EXACT_ON_NOTHING],
                 nvcc);
}

void pb_exact_key_of(const char *results, const char *machine_id, pb_exact_key *out)
{
    static const char cpu[] = "cpu";
    json_t *f = pb_run_fingerprint(results);
    const json_t *hard = json_object_get(f, "hard"), *soft = json_object_get(f, "soft");
    memset(out, 0, sizeof *out);
    if (strcmp(word(hard, "device"), cpu) == 0) of_cpu(hard, soft, out), of_build(soft, out);
    else if (f) of_gpu(hard, soft, out);
    else if (strncmp(machine_id, "cpu-", sizeof cpu) == 0)
        snprintf(out->text[PB_EXACT_ON_NOTHING], PB_EXACT_KEY_TEXT, "%s", cpu);
    json_decref(f);
    for (int i = 0; i < PB_EXACT_KEYS; i++) pb_make_printable(out->text[i], '_');
}

const char *pb_exact_key_for(const pb_exact_key *key, const char *metric)
{
    const pb_exact_counter *x = pb_exact_find(metric);
    return x && *key->text[x->depends] ? key->text[x->depends] : NULL;
}

bool pb_exact_keys_agree(const pb_exact_key *a, const pb_exact_key *b, const char *metric)
{
    const char *x = pb_exact_key_for(a, metric), *y = pb_exact_key_for(b, metric);
    return x && y && strcmp(x, y) == 0;
}
