/* resume.c - reads run.json of a run to be resumed, and refuses options that would change what the run measures. */
#include "bench/run/resume.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/run/run_json.h"
#include "bench/text/text.h"
#include "os/file.h"
#include "os/text.h"

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_number(double a, double b) { return !(a < b) && !(a > b); }

/* Returns the first option of `now` that would change what is measured or how it is measured; NULL: no such option.
 * Options that select cases are not compared here: pb_resume_check() compares the resulting order. */
static const char *differs(const pb_options *was, const pb_options *now)
{
    if (now->processes != was->processes) return "--processes";
    if (now->seed != was->seed) return "--seed";
    if (!same_text(now->device, was->device)) return "--device";
    if (!same_text(now->out, was->out)) return "--out";
    if (now->threads != was->threads) return "--threads";
    if (!same_text(now->instructions, was->instructions)) return "--instructions";
    if (!same_text(now->counters, was->counters)) return "--counters";
    if (now->warmup != was->warmup) return "--warmup";
    if (now->samples != was->samples) return "--samples";
    return same_number(now->min_time, was->min_time) ? NULL : "--min-time";
}

/* Joins the words of the command line in run.json and those of the current one. *first: number of words from run.json;
 * *n: number of all words. */
static pb_status join_words(const json_t *argv, const pb_options *now, char ***out, int *first, int *n)
{
    const char *command = json_string_value(json_array_get(argv, 1));
    if (!command || strcmp(command, "run") != 0) return pb_fail(PB_EINVAL, "its argv does not begin with bench run");
    const int had = (int)json_array_size(argv) - 2; /* without "bench" and "run" */
    char **words = calloc((size_t)(had + now->argc) + 1, sizeof *words);
    if (!words) return pb_fail(PB_ENOMEM, "no memory for a command line");
    for (int i = 0; i < had; i++) {
        const char *word = json_string_value(json_array_get(argv, (size_t)i + 2));
        memcpy(&words[i], &word, sizeof word); /* argv is not const, but it is never written to */
        if (words[i]) continue;
        free(words);
        return pb_fail(PB_EINVAL, "its argv has an element that is not a string");
    }
    for (int i = 0; i < now->argc; i++) words[had + i] = now->argv[i];
    *out = words;
    *first = had;
    *n = had + now->argc;
    return PB_OK;
}

static pb_status join_options(const pb_options *now, pb_resumed *r)
{
    pb_options was;
    int had = 0, n = 0;
    PB_TRY(join_words(json_object_get(r->about, "argv"), now, &r->words, &had, &n));
    PB_TRY(pb_options_parse_stored(PB_COMMAND_run, had, r->words, &was));
    PB_TRY(pb_options_parse(PB_COMMAND_run, n, r->words, &r->options));
    if (was.resume) return pb_fail(PB_EINVAL, "its argv has --resume");
    const char *other = differs(&was, &r->options);
    return other ? pb_fail(PB_EINVAL, "a resumed run keeps its %s", other) : PB_OK;
}

static pb_status take(pb_resumed *r)
{
    const char *version, *commit;
    json_int_t seed;
    json_error_t e;
    if (json_unpack_ex(r->about, &e, 0, "{s:s,s:s,s:s,s:s,s:s,s:s,s:I}", "bench_version", &version, "commit", &commit,
                       "run_id", &r->run_id, "machine_id", &r->machine_id, "host", &r->host, "time_utc", &r->time_utc,
                       "seed", &seed))
        return pb_fail(PB_EINVAL, "%s", e.text);
    const char *const texts[] = {version, commit, r->run_id, r->machine_id, r->host, r->time_utc};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i] || !pb_is_printable(texts[i]))
            return pb_fail(PB_EINVAL, "a text in run.json is empty or has control characters");
    r->seed = (uint64_t)seed;
    if (strcmp(version, PB_BENCH_VERSION) != 0 || strcmp(commit, pb_run_commit()) != 0)
        return pb_fail(PB_EINVAL, "the run was started by commit %s, version %s; this program is commit %s, version %s",
                       commit, version, pb_run_commit(), PB_BENCH_VERSION);
    return PB_OK;
}

pb_status pb_resume_open(const pb_options *now, pb_resumed *out)
{
    char *path, why[512];
    pb_resumed r = {0};
    PB_TRY(pb_path_join(now->resume, "run.json", &path));
    pb_status s = pb_json_read(path, &r.about);
    free(path);
    if (s == PB_OK) s = take(&r);
    if (s == PB_OK) s = join_options(now, &r);
    if (s == PB_OK) {
        *out = r;
        return PB_OK;
    }
    snprintf(why, sizeof why, "%s", pb_error());
    pb_resume_close(&r);
    return pb_fail(s, "--resume %.200s: %s", now->resume, why);
}

void pb_resume_close(pb_resumed *r)
{
    json_decref(r->about);
    free(r->words);
    *r = (pb_resumed){0};
}

pb_status pb_resume_check(const pb_resumed *r, const pb_plan *plan, const char *machine_id, const char *host)
{
    const char *dir = r->options.resume;
    if (strcmp(r->machine_id, machine_id) != 0)
        return pb_fail(PB_EINVAL, "--resume %.200s: the run was started on %.80s; this machine is %s", dir,
                       r->machine_id, machine_id);
    if (strcmp(r->host, host) != 0)
        return pb_fail(PB_EINVAL, "--resume %.200s: the run was started on the host %.80s; this is %s", dir, r->host,
                       host);
    json_t *order = pb_run_json_order(plan, r->seed, r->options.processes);
    const bool same = order && json_equal(order, json_object_get(r->about, "order"));
    json_decref(order);
    return same ? PB_OK
                : pb_fail(PB_EINVAL, "--resume %.200s: its cases differ from this program's (PB_CONTROLS counts, too)",
                          dir);
}
