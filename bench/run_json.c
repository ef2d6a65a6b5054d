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

json_t *pb_run_json_order(const pb_plan *plan, uint64_t seed, long launches)
{
    json_t *all = json_array();
    int *order = malloc((size_t)plan->n * sizeof *order);
    for (int launch = 0; order && launch < launches; launch++) {
        json_t *one = json_array();
        pb_plan_order(plan, seed, launch, order);
        for (int i = 0; i < plan->n; i++) json_array_append_new(one, json_string(plan->cases[order[i]].key));
        json_array_append_new(all, one);
    }
    free(order);
    return all;
}

const char *pb_run_commit(void) { return PB_COMMIT; }

json_t *pb_run_json_make(const pb_run_info *r)
{
    json_t *fingerprint = json_deep_copy(r->fingerprint), *order;
    order = pb_run_json_order(r->plan, r->seed, r->options->launches);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:b,s:o,s:o}", "bench_version", PB_BENCH_VERSION, "run_id",
                     r->run_id, "machine_id", r->machine_id, "suite", r->plan->suite->name, "time_utc", r->time_utc,
                     "commit", PB_COMMIT, "argv", arguments(r->options), "seed", (json_int_t)r->seed, "launches",
                     (json_int_t)r->options->launches, "truncated", true, "order", order, "fingerprint", fingerprint);
}

pb_status pb_run_json_resumed(json_t *about, const char *time_utc, const pb_options *now)
{
    json_t *list = json_object_get(about, "resumed");
    if (!list && json_object_set_new(about, "resumed", list = json_array()) != 0) list = NULL;
    if (list && json_array_append_new(list, json_pack("{s:s,s:o}", "time_utc", time_utc, "argv", arguments(now))) == 0)
        return PB_OK;
    return pb_fail(PB_ENOMEM, "no memory for run.json");
}

static pb_status write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wx");
    if (!f) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    bool ok = fprintf(f, "%s\n", text) > 0;
    ok &= fclose(f) == 0;
    return ok ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
}

pb_status pb_run_json_write(const char *dir, json_t *about, bool truncated)
{
    char path[4096], draft[4096];
    json_t *o = json_copy(about);
    const bool made = o && json_object_set_new(o, "truncated", json_boolean(truncated)) == 0;
    char *text = made ? json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    if (!text) return pb_fail(PB_ENOMEM, "no memory for run.json");
    snprintf(path, sizeof path, "%s/run.json", dir);
    snprintf(draft, sizeof draft, "%s/run.json.new", dir);
    unlink(draft); /* of a process that was killed before it could rename it */
    pb_status s = write_text(draft, text);
    free(text);
    if (s == PB_OK && rename(draft, path) != 0) s = pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    if (s != PB_OK) unlink(draft);
    return s;
}
