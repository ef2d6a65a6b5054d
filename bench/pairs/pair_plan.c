/* pair_plan.c - reads and writes compare.json: what a paired comparison compares, and by which rule. */
#include "bench/pairs/pair_folder.h"

#include <stdlib.h>
#include <string.h>

#include "bench/run/run.h"
#include "bench/text/text.h"
#include "os/draft.h"
#include "os/file.h"
#include "os/text.h"

static json_t *executable(const pb_pair_plan *p, pb_side side)
{
    return json_pack("{s:s,s:s}", "path", p->path[side], "xxh3_128", p->digest[side].hex);
}

static pb_status save(pb_status (*write)(const char *, const void *, size_t), const char *path, const json_t *about)
{
    char *text = about ? json_dumps(about, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15)) : NULL;
    if (!text) return pb_fail(PB_ENOMEM, "compare.json: out of memory, or a path is not UTF-8");
    const pb_status s = write(path, text, strlen(text));
    free(text);
    return s;
}

pb_status pb_pair_plan_write(const char *dir, const char *time_utc, pb_pair_plan *p)
{
    char path[PB_PATH_TEXT + 64];
    const pb_pair_opts *r = &p->rule;
    snprintf(path, sizeof path, "%s/compare.json", dir);
    p->about = json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:O,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:i,s:i,s:b}",
                         "bench_version", PB_BENCH_VERSION, "commit", pb_run_commit(), "run_id", p->run_id, "time_utc",
                         time_utc, "base", executable(p, PB_BASE), "cand", executable(p, PB_CAND), "options",
                         p->options, "seed", (json_int_t)p->seed, "slowdown", p->slowdown, "time_slice", p->time_slice,
                         "min_effect", r->min_effect, "kernel_effect", p->kernel_effect, "alpha", r->alpha,
                         "alpha_same", r->alpha_same, "power", r->power, "must_find", r->must_find, "pairs", r->look[0],
                         "max_pairs", r->look[1], "pairs_given", (int)p->pairs_given);
    if (p->about) json_decref(p->options); /* `about` now holds the reference */
    return save(pb_file_create, path, p->about);
}

pb_status pb_pair_plan_set_looks(const char *dir, pb_pair_plan *p, int first, int last)
{
    char path[PB_PATH_TEXT + 64];
    snprintf(path, sizeof path, "%s/compare.json", dir);
    p->rule.look[0] = first, p->rule.look[1] = last;
    json_object_set_new(p->about, "pairs", json_integer(first));
    json_object_set_new(p->about, "max_pairs", json_integer(last));
    return save(pb_file_replace, path, p->about);
}

static pb_status take(pb_pair_plan *p)
{
    const char *path[PB_SIDES], *digest[PB_SIDES], *version, *run_id;
    json_int_t seed;
    json_error_t e;
    int pairs_given = 1;
    pb_pair_opts *r = &p->rule;
    if (json_unpack_ex(
            p->about, &e, 0, "{s:s,s:s,s:{s:s,s:s},s:{s:s,s:s},s:o,s:I,s:F,s?F,s:F,s?F,s:F,s:F,s:F,s?F,s:i,s:i,s?b}",
            "bench_version", &version, "run_id", &run_id, "base", "path", &path[0], "xxh3_128", &digest[0], "cand",
            "path", &path[1], "xxh3_128", &digest[1], "options", &p->options, "seed", &seed, "slowdown", &p->slowdown,
            "time_slice", &p->time_slice, "min_effect", &r->min_effect, "kernel_effect", &p->kernel_effect, "alpha",
            &r->alpha, "alpha_same", &r->alpha_same, "power", &r->power, "must_find", &r->must_find, "pairs",
            &r->look[0], "max_pairs", &r->look[1], "pairs_given", &pairs_given))
        return pb_fail(PB_EINVAL, "%s", e.text);
    p->pairs_given = pairs_given;
    if (!pb_is_printable(run_id)) return pb_fail(PB_EINVAL, "run_id has control characters");
    for (int i = 0; i < PB_SIDES; i++) {
        if (!pb_is_printable(path[i]) || strlen(path[i]) >= sizeof p->path[i])
            return pb_fail(PB_EINVAL, "the path of an executable is too long or has control characters");
        snprintf(p->path[i], sizeof p->path[i], "%s", path[i]);
        snprintf(p->digest[i].hex, sizeof p->digest[i].hex, "%s", digest[i]);
    }
    for (size_t i = 0; i < json_array_size(p->options); i++)
        if (!json_string_value(json_array_get(p->options, i)))
            return pb_fail(PB_EINVAL, "options: an entry is not a string");
    snprintf(p->run_id, sizeof p->run_id, "%s", run_id);
    p->seed = (uint64_t)seed;
    return PB_OK;
}

pb_status pb_pair_plan_read(const char *dir, pb_pair_plan *out)
{
    char *path, why[256];
    pb_pair_plan p = {0};
    PB_TRY(pb_path_join(dir, "compare.json", &path));
    pb_status s = pb_json_read(path, &p.about);
    if (s == PB_OK && (s = take(&p)) != PB_OK) {
        snprintf(why, sizeof why, "%s", pb_error());
        json_decref(p.about);
        pb_fail(s, "%s: %s", path, why);
    }
    if (s == PB_OK) *out = p;
    free(path);
    return s;
}

void pb_pair_plan_print(const pb_pair_plan *p, const char *lead, FILE *out)
{
    const pb_pair_opts *r = &p->rule;
    fprintf(out, "%s%d pairs of processes", lead, r->look[0]);
    if (r->look[1] > r->look[0]) fprintf(out, ", and %d if a row is undecided then", r->look[1]);
    if (p->time_slice > 0) fprintf(out, "; both processes of a pair interleaved in time slices of %g s", p->time_slice);
    else fprintf(out, "; one process after the other");
    fprintf(out, "; alpha %g, minimum effect %g %%", r->alpha, 100 * r->min_effect);
    if (p->kernel_effect > 0) fprintf(out, " (%g %% for kernel_time: the builds differ)", 100 * p->kernel_effect);
    if (r->must_find > 0) fprintf(out, ", must find %g %%", 100 * r->must_find);
    fputc('\n', out);
}

void pb_pair_plan_warn(const pb_pair_plan *p, FILE *out)
{
    const int planned = p->rule.look[1], least = pb_pair_least(&p->rule);
    if (planned >= least) return;
    fprintf(
        out,
        "bench: warning: %d pair%s cannot find a change, however large: the smallest p-value is 2^-%d, and alpha %g "
        "needs %d pairs\n",
        planned, planned == 1 ? "" : "s", planned, p->rule.alpha, least);
}

void pb_pair_plan_free(pb_pair_plan *p)
{
    json_decref(p->about ? p->about : p->options);
    p->about = p->options = NULL;
}
