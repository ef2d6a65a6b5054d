/* pair_folder.c - the files of a paired comparison: made, added to by a pair, cut back and counted. */
#define _GNU_SOURCE
#include "bench/pair_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/progress.h"
#include "bench/read.h"
#include "bench/results.h"
#include "bench/run_json.h"
#include "bench/run_name.h"

const char *const pb_side_names[PB_SIDES] = {"base", "cand"};
static const char *const orders[] = {"base-cand", "cand-base"};
static const char *const statuses[] = {
#define X(id, word) [PB_PAIR_IS_##id] = word,
    PB_PAIR_STATUS_MAP(X)
#undef X
};
enum { PATH = PB_PATH_TEXT + 64, LINE = 512, FIELDS = 15 };
#define HEADER                                                                                                         \
    "pair,attempt,order,seed,base_padding,cand_padding,base_seconds,cand_seconds,base_exit,cand_exit,status,"          \
    "base_results,base_samples,cand_results,cand_samples\n"

static const char *side_dir(const pb_pair_folder *f, pb_side side, char out[PATH])
{
    snprintf(out, PATH, "%s/%s", f->dir, pb_side_names[side]);
    return out;
}

static const char *side_file(const pb_pair_folder *f, pb_side side, const char *name, char out[PATH])
{
    snprintf(out, PATH, "%s/%s/%s", f->dir, pb_side_names[side], name);
    return out;
}

/* ---- pairs.csv ------------------------------------------------------------------------------------ */

static int index_of(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

static bool parse(const char *text, pb_pair_line *l)
{
    char order[16], status[16], end = 0;
    unsigned long long seed;
    const int n =
        sscanf(text, "%d,%d,%15[a-z-],%llu,%ld,%ld,%lf,%lf,%d,%d,%15[a-z],%lld,%lld,%lld,%lld%c", &l->pair, &l->attempt,
               order, &seed, &l->padding[0], &l->padding[1], &l->seconds[0], &l->seconds[1], &l->code[0], &l->code[1],
               status, &l->results[0], &l->samples[0], &l->results[1], &l->samples[1], &end);
    if (n != FIELDS + 1 || end != '\n') return false;
    const int first = index_of(order, orders, 2), what = index_of(status, statuses, 4);
    l->seed = seed;
    l->cand_first = first == 1;
    l->status = (pb_pair_status)what;
    return first >= 0 && what >= 0;
}

static void count(pb_pair_folder *f, const pb_pair_line *l)
{
    const bool whole = l->status == PB_PAIR_IS_OK || l->status == PB_PAIR_IS_KEPT;
    f->pairs += whole;
    f->retries += l->status == PB_PAIR_IS_RETRIED;
    f->kept += l->status == PB_PAIR_IS_KEPT && l->code[PB_CAND] != PB_EXIT_OK;
    f->attempt = whole ? 0 : l->attempt + 1;
}

/* The whole lines. *last: the last of them; *length: where it ends. EINVAL: pair numbers that do not follow. */
static pb_status read_lines(pb_pair_folder *f, pb_pair_line *last, long *length)
{
    char path[PATH], text[LINE];
    pb_status s = PB_OK;
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    FILE *in = fopen(path, "r");
    if (!in) return pb_fail(PB_EINVAL, "%s: %s", path, strerror(errno));
    if (!fgets(text, sizeof text, in) || strcmp(text, HEADER) != 0)
        s = pb_fail(PB_EINVAL, "%s: is not the pairs.csv of this program", path);
    *length = ftell(in);
    while (s == PB_OK && fgets(text, sizeof text, in)) {
        pb_pair_line l;
        if (!text[0] || text[strlen(text) - 1] != '\n') break; /* a part of one */
        if (!parse(text, &l) || l.pair != f->pairs || l.pair >= PB_SIGN_FLIP_MAX)
            s = pb_fail(PB_EINVAL, "%s: %.60s... is no line for pair %d", path, text, f->pairs);
        if (s != PB_OK) break;
        count(f, &l);
        *last = l;
        *length = ftell(in);
    }
    fclose(in);
    return s;
}

static pb_status size_of(const char *path, long long *out)
{
    struct stat st;
    if (stat(path, &st) != 0) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    *out = st.st_size;
    return PB_OK;
}

pb_status pb_pair_folder_commit(pb_pair_folder *f, pb_pair_line *l)
{
    char path[PATH];
    for (int i = 0; i < PB_SIDES; i++) {
        PB_TRY(size_of(side_file(f, (pb_side)i, "results.csv", path), &l->results[i]));
        PB_TRY(size_of(side_file(f, (pb_side)i, "samples.csv", path), &l->samples[i]));
    }
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    FILE *out = fopen(path, "a");
    if (!out) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    bool ok = fprintf(out, "%d,%d,%s,%llu,%ld,%ld,%.3f,%.3f,%d,%d,%s,%lld,%lld,%lld,%lld\n", l->pair, l->attempt,
                      orders[l->cand_first], (unsigned long long)l->seed, l->padding[0], l->padding[1], l->seconds[0],
                      l->seconds[1], l->code[0], l->code[1], statuses[l->status], l->results[0], l->samples[0],
                      l->results[1], l->samples[1]) > 0;
    ok &= fclose(out) == 0;
    if (!ok) return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    count(f, l);
    return PB_OK;
}

/* ---- opening --------------------------------------------------------------------------------------- */

static pb_status create_sides(const pb_pair_folder *f)
{
    char path[PATH];
    for (int i = 0; i < PB_SIDES; i++) {
        PB_TRY(pb_run_make_folder(side_dir(f, (pb_side)i, path)));
        PB_TRY(pb_results_create(path));
    }
    return PB_OK;
}

pb_status pb_pair_folder_create(const char *dir, pb_pair_folder *out)
{
    char path[PATH];
    pb_pair_folder f = {.lock = -1};
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    PB_TRY(create_sides(&f));
    PB_TRY(pb_progress_lock(side_dir(&f, PB_BASE, path), &f.lock));
    snprintf(path, sizeof path, "%s/pairs.csv", dir);
    FILE *lines = fopen(path, "wx");
    const bool ok = lines && fputs(HEADER, lines) >= 0;
    if ((lines && fclose(lines) != 0) || !ok) {
        pb_pair_folder_close(&f);
        return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    }
    *out = f;
    return PB_OK;
}

static pb_status cut(const char *path, long long length)
{
    long long size;
    PB_TRY(size_of(path, &size));
    if (size < length) return pb_fail(PB_EINVAL, "%s: is shorter than pairs.csv says", path);
    return truncate(path, (off_t)length) == 0 ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
}

/* What was in run.json before the first pair was whole says nothing. */
static pb_status take_up_side(pb_pair_folder *f, pb_side side, const pb_pair_line *last)
{
    char path[PATH];
    json_error_t e;
    PB_TRY(cut(side_file(f, side, "results.csv", path), last->results[side]));
    PB_TRY(cut(side_file(f, side, "samples.csv", path), last->samples[side]));
    if (!f->pairs) return PB_OK;
    f->run[side] = json_load_file(side_file(f, side, "run.json", path), 0, &e);
    json_t *runs = json_object_get(f->run[side], "runs");
    if ((int)json_array_size(runs) < f->pairs) return pb_fail(PB_EINVAL, "%s: lacks runs", path);
    while ((int)json_array_size(runs) > f->pairs) json_array_remove(runs, json_array_size(runs) - 1);
    return PB_OK;
}

static pb_status remove_sides(const pb_pair_folder *f)
{
    static const char *const names[] = {"results.csv", "samples.csv", "run.json"};
    char path[PATH];
    for (int i = 0; i < PB_SIDES; i++)
        for (int k = 0; k < 3; k++)
            if (unlink(side_file(f, (pb_side)i, names[k], path)) != 0 && errno != ENOENT)
                return pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    return PB_OK;
}

static pb_status take_up(pb_pair_folder *f)
{
    char path[PATH];
    pb_pair_line last = {.results = {-1}};
    long length = 0;
    PB_TRY(pb_progress_lock(side_dir(f, PB_BASE, path), &f->lock));
    PB_TRY(read_lines(f, &last, &length));
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    PB_TRY(cut(path, length));
    if (last.results[0] < 0) { /* no line yet: how long the files were is not written down */
        PB_TRY(remove_sides(f));
        return create_sides(f);
    }
    for (int i = 0; i < PB_SIDES; i++) PB_TRY(take_up_side(f, (pb_side)i, &last));
    return PB_OK;
}

pb_status pb_pair_folder_resume(const char *dir, pb_pair_folder *out)
{
    pb_pair_folder f = {.lock = -1};
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    const pb_status s = take_up(&f);
    if (s == PB_OK) *out = f;
    else pb_pair_folder_close(&f);
    return s;
}

pb_status pb_pair_folder_look(const char *dir, pb_pair_folder *out)
{
    pb_pair_line last;
    long length = 0;
    pb_pair_folder f = {.lock = -1};
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    PB_TRY(read_lines(&f, &last, &length));
    *out = f;
    return PB_OK;
}

void pb_pair_folder_close(pb_pair_folder *f)
{
    for (int i = 0; i < PB_SIDES; i++) json_decref(f->run[i]);
    if (f->lock >= 0) close(f->lock);
    *f = (pb_pair_folder){.lock = -1};
}

/* ---- one launch -------------------------------------------------------------------------------------- */

static pb_status add_rows(const char *to, const char *launch, const char *run_id, int pair)
{
    pb_table t;
    PB_TRY(pb_table_read(launch, &t));
    FILE *f = fopen(to, "a");
    bool ok = f != NULL;
    for (size_t i = 0; ok && i < t.n; i++) {
        t.rows[i].run_id = run_id;
        t.rows[i].launch = pair;
        pb_csv_row(f, &t.rows[i]);
        ok = !ferror(f);
    }
    if (f) ok &= fclose(f) == 0;
    pb_table_free(&t);
    return ok ? PB_OK : pb_fail(PB_EIO, "%s: %s", to, strerror(errno));
}

/* Lines run_id,launch,key,...: none of these fields is ever quoted. */
static pb_status copy_samples(FILE *in, FILE *out, const char *run_id, int pair)
{
    char *line = NULL;
    size_t room = 0;
    bool ok = getline(&line, &room, in) > 0; /* the header */
    while (ok && getline(&line, &room, in) > 0) {
        const char *launch = strchr(line, ','), *rest = launch ? strchr(launch + 1, ',') : NULL;
        ok = rest && strchr(rest, '\n') && fprintf(out, "%s,%d%s", run_id, pair, rest) > 0;
    }
    free(line);
    return ok && !ferror(in) ? PB_OK : pb_fail(PB_EINVAL, "a samples.csv that is cut, or cannot be copied");
}

static pb_status add_samples(const char *to, const char *launch, const char *run_id, int pair)
{
    char from[PATH];
    snprintf(from, sizeof from, "%s/samples.csv", launch);
    FILE *in = fopen(from, "r"), *out = fopen(to, "a");
    pb_status s = in && out ? copy_samples(in, out, run_id, pair) : pb_fail(PB_EIO, "%s: %s", from, strerror(errno));
    if (in) fclose(in);
    if (out && fclose(out) != 0 && s == PB_OK) s = pb_fail(PB_EIO, "%s: %s", to, strerror(errno));
    return s;
}

/* run.json of the side: the first launch's, then what every launch wrote. */
static pb_status add_run(pb_pair_folder *f, pb_side side, const char *launch, const char *run_id)
{
    char path[PATH];
    json_error_t e;
    snprintf(path, sizeof path, "%s/run.json", launch);
    json_t *one = json_load_file(path, 0, &e), *order = json_object_get(one, "order"), **run = &f->run[side];
    if (!one) return pb_fail(PB_EINVAL, "%s: %s", path, e.text);
    if (!*run) {
        *run = json_deep_copy(one);
        json_object_set_new(*run, "run_id", json_string(run_id));
        json_object_set_new(*run, "order", json_array());
        json_object_set_new(*run, "runs", json_array());
    }
    json_array_append(json_object_get(*run, "order"), json_array_get(order, 0));
    json_object_del(one, "order");
    const bool ok = json_array_append_new(json_object_get(*run, "runs"), one) == 0 &&
                    json_object_set_new(*run, "launches", json_integer(f->pairs + 1)) == 0;
    return ok ? pb_run_json_write(side_dir(f, side, path), *run, true) : pb_fail(PB_ENOMEM, "no memory for run.json");
}

pb_status pb_pair_folder_add(pb_pair_folder *f, pb_side side, const char *launch, const char *run_id)
{
    char path[PATH];
    PB_TRY(add_rows(side_file(f, side, "results.csv", path), launch, run_id, f->pairs));
    PB_TRY(add_samples(side_file(f, side, "samples.csv", path), launch, run_id, f->pairs));
    return add_run(f, side, launch, run_id);
}

pb_status pb_pair_folder_finish(pb_pair_folder *f)
{
    char path[PATH];
    for (int i = 0; i < PB_SIDES; i++)
        if (f->run[i]) PB_TRY(pb_run_json_write(side_dir(f, (pb_side)i, path), f->run[i], false));
    return PB_OK;
}
