/* soft_differences.c - reads run.json: prints how software, settings and environment of two runs differ, and tells
 * whether the GPU's clocks were locked. */
#include "bench/compare/soft_differences.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "os/text.h"

enum { PATH = 4096 };

json_t *pb_run_fingerprint(const char *results)
{
    char path[PATH];
    struct stat s;
    const char *slash = strrchr(results, '/');
    const int folder = stat(results, &s) == 0 && S_ISDIR(s.st_mode) ? (int)strlen(results)
                       : slash                                      ? (int)(slash - results)
                                                                    : -1;
    if (folder < 0 || (folder != (int)strlen(results) && strcmp(slash, "/results.csv") != 0)) return NULL;
    if (snprintf(path, sizeof path, "%.*s/run.json", folder, results) >= PATH) return NULL;
    json_t *run = json_load_file(path, 0, NULL), *f = json_incref(json_object_get(run, "fingerprint"));
    json_decref(run);
    return f;
}

static void print_text(const char *text, FILE *out)
{
    char shown[128];
    snprintf(shown, sizeof shown, "%.100s", text);
    pb_make_printable(shown, '?');
    fputs(shown, out);
}

/* Prints a JSON value: a string without quotes, and null or a missing value as "none". */
static void print_value(const json_t *v, FILE *out)
{
    char *text =
        v && !json_is_null(v) && !json_is_string(v) ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    print_text(json_is_string(v) ? json_string_value(v) : text ? text : "none", out);
    free(text);
}

static int same(const json_t *a, const json_t *b)
{
    const int none_a = !a || json_is_null(a), none_b = !b || json_is_null(b);
    return none_a || none_b ? none_a == none_b : json_equal(a, b);
}

static void print_one(const char *key, const json_t *a, const json_t *b, FILE *out)
{
    if (same(a, b)) return;
    fputs("note: ", out), print_text(key, out), fputs(" differs: ", out);
    print_value(a, out), fputs(" -> ", out), print_value(b, out);
    fputc('\n', out);
}

static void print_part(const char *part, const json_t *base, const json_t *cand, FILE *out)
{
    const char *key;
    json_t *a = json_object_get(base, part), *b = json_object_get(cand, part), *v;
    json_object_foreach(a, key, v) print_one(key, v, json_object_get(b, key), out);
    json_object_foreach(b, key, v) if (!json_object_get(a, key)) print_one(key, NULL, v, out);
}

void pb_soft_differences(const char *base, const char *cand, FILE *out)
{
    json_t *a = pb_run_fingerprint(base), *b = pb_run_fingerprint(cand);
    if (a && b) print_part("soft", a, b, out), print_part("environment", a, b, out);
    json_decref(a);
    json_decref(b);
}

bool pb_run_locked_clocks(const char *run)
{
    json_t *f = pb_run_fingerprint(run);
    /* The value is a string that names the clock to which the GPU was locked; null or absent if it was not locked. */
    const bool locked = json_is_string(json_object_get(json_object_get(f, "soft"), "gpu_clocks_locked"));
    json_decref(f);
    return locked;
}

bool pb_run_counted(const char *run)
{
    json_t *f = pb_run_fingerprint(run);
    const json_t *soft = json_object_get(f, "soft");
    const bool counted = json_object_get(soft, "counters") || json_object_get(soft, "instructions");
    json_decref(f);
    return counted;
}
