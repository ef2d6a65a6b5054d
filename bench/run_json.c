/* run_json.c - writes run.json: to a temporary file first, which then takes its place. */
#include "bench/run_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *arguments(const pb_options *o)
{
    json_t *a = json_array();
    json_array_append_new(a, json_string("bench"));
    json_array_append_new(a, json_string(pb_bench_cli.commands[o->command].name));
    for (int i = 0; i < o->argc; i++) {
        json_t *word = json_string(o->argv[i]);
        json_array_append_new(a, word ? word : json_string("(not UTF-8)"));
    }
    return a;
}

static json_t *orders(const pb_run_info *r)
{
    json_t *all = json_array();
    int *order = malloc((size_t)r->plan->n * sizeof *order);
    for (int launch = 0; order && launch < r->options->launches; launch++) {
        json_t *one = json_array();
        pb_plan_order(r->plan, r->seed, launch, order);
        for (int i = 0; i < r->plan->n; i++) json_array_append_new(one, json_string(r->plan->cases[order[i]].key));
        json_array_append_new(all, one);
    }
    free(order);
    return all;
}

static json_t *describe(const pb_run_info *r)
{
    json_t *fingerprint = json_deep_copy(r->fingerprint);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:b,s:o,s:o}", "bench_version", PB_BENCH_VERSION, "run_id",
                     r->run_id, "machine_id", r->machine_id, "suite", r->plan->suite->name, "time_utc", r->time_utc,
                     "commit", PB_COMMIT, "argv", arguments(r->options), "seed", (json_int_t)r->seed, "launches",
                     (json_int_t)r->options->launches, "truncated", r->truncated, "order", orders(r), "fingerprint",
                     fingerprint);
}

static pb_status write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wx");
    if (!f) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    bool ok = fprintf(f, "%s\n", text) > 0;
    ok &= fclose(f) == 0;
    return ok ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
}

pb_status pb_run_json_write(const char *dir, const pb_run_info *r) { return pb_run_json_put(dir, describe(r)); }

pb_status pb_run_json_put(const char *dir, json_t *o)
{
    char path[4096], draft[4096];
    char *text = o ? json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    if (!text) return pb_fail(PB_ENOMEM, "no memory for run.json");
    snprintf(path, sizeof path, "%s/run.json", dir);
    snprintf(draft, sizeof draft, "%s/run.json.new", dir);
    pb_status s = write_text(draft, text);
    free(text);
    if (s == PB_OK && rename(draft, path) != 0) s = pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    if (s != PB_OK) unlink(draft);
    return s;
}
