/* run_json.c - builds and writes run.json. */
#include "bench/run/run_json.h"

#include <stdlib.h>
#include <string.h>

#include "bench/text/text.h"
#include "os/draft.h"
#include "os/file.h"

enum { ORDER_KEYS = 10000 }; /* maximum number of keys that "order" lists, see run_json.h */

static json_t *arguments(const pb_options *o)
{
    json_t *a = json_array();
    json_array_append_new(a, json_string("bench"));
    json_array_append_new(a, json_string(pb_bench_cli.commands[o->command].name));
    for (int i = 0; i < o->argc; i++) json_array_append_new(a, pb_json_word(o->argv[i]));
    return a;
}

json_t *pb_run_json_order(const pb_plan *plan, uint64_t seed, long processes)
{
    const long most = ORDER_KEYS > plan->n ? ORDER_KEYS / plan->n : 1;
    json_t *all = json_array();
    int *order = malloc((size_t)plan->n * sizeof *order);
    for (int process = 0; order && process < processes && process < most; process++) {
        json_t *one = json_array();
        pb_plan_order(plan, seed, process, order);
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
    order = pb_run_json_order(r->plan, r->seed, r->options->processes);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:b,s:o,s:o}", "bench_version", PB_BENCH_VERSION,
                     "run_id", r->run_id, "machine_id", r->machine_id, "host", r->host, "suite", r->plan->suite->name,
                     "time_utc", r->time_utc, "commit", PB_COMMIT, "argv", arguments(r->options), "seed",
                     (json_int_t)r->seed, "processes", (json_int_t)r->options->processes, "truncated", true, "order",
                     order, "fingerprint", fingerprint);
}

pb_status pb_run_json_resumed(json_t *about, const char *time_utc, const pb_options *now)
{
    json_t *list = json_object_get(about, "resumed");
    if (!list && json_object_set_new(about, "resumed", list = json_array()) != 0) list = NULL;
    if (list && json_array_append_new(list, json_pack("{s:s,s:o}", "time_utc", time_utc, "argv", arguments(now))) == 0)
        return PB_OK;
    return pb_fail(PB_ENOMEM, "out of memory for run.json");
}

static pb_status write_text(const char *dir, json_t *about, bool truncated,
                            pb_status (*put)(const char *path, const void *bytes, size_t n))
{
    char *path;
    json_t *o = json_copy(about);
    const bool made = o && json_object_set_new(o, "truncated", json_boolean(truncated)) == 0;
    char *text = made ? json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    if (!text) return pb_fail(PB_ENOMEM, "out of memory for run.json");
    const size_t n = strlen(text);
    pb_status s = pb_path_join(dir, "run.json", &path);
    if (s == PB_OK) {
        text[n] = '\n'; /* replaces the terminating NUL; the length is known */
        s = put(path, text, n + 1);
        free(path);
    }
    free(text);
    return s;
}

pb_status pb_run_json_create(const char *dir, json_t *about) { return write_text(dir, about, true, pb_file_create); }

pb_status pb_run_json_write(const char *dir, json_t *about, bool truncated)
{
    return write_text(dir, about, truncated, pb_file_replace);
}
