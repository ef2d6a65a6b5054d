/* pair_folder.c - creates, checks, truncates and counts the files of a paired comparison. */
#define _GNU_SOURCE
#include "bench/pairs/pair_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/rows/rows.h"
#include "bench/run/run.h"
#include "bench/text/text.h"
#include "os/append.h"
#include "os/draft.h"
#include "os/file.h"

const char *const pb_side_names[PB_SIDES] = {"base", "cand"};
static const char *const orders[] = {"base-cand", "cand-base"};
static const char *const statuses[] = {
#define X(id, word) [PB_PAIR_IS_##id] = word,
    PB_PAIR_STATUS_MAP(X)
#undef X
};
enum { PATH = PB_PATH_TEXT + 64, LINE = 512, FIELDS = 15, MOST = 1 << 20 };
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
    const int n = sscanf(
        text, /* field widths keep the numbers within their types */
        "%9d,%9d,%15[a-z-],%19llu,%9ld,%9ld,%30lf,%30lf,%9d,%9d,%15[a-z],%18lld,%18lld,%18lld,%18lld%c", &l->pair,
        &l->attempt, order, &seed, &l->padding[0], &l->padding[1], &l->seconds[0], &l->seconds[1], &l->code[0],
        &l->code[1], status, &l->kept[0].results, &l->kept[0].samples, &l->kept[1].results, &l->kept[1].samples, &end);
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
    if (l->status == PB_PAIR_IS_KEPT && l->code[PB_CAND] != PB_EXIT_OK) f->kept++, f->kept_again += l->attempt > 0;
    f->attempt = whole ? 0 : l->attempt + 1;
}

/* Parses one complete line of n bytes. EINVAL: malformed, or not the pair and attempt expected next. */
static pb_status take_line(pb_pair_folder *f, const char *path, const char *line, size_t n, pb_pair_line *out)
{
    char text[LINE];
    snprintf(text, sizeof text, "%.*s", (int)n, line);
    if (n >= sizeof text || !parse(text, out) || out->pair != f->pairs || out->attempt != f->attempt ||
        out->pair >= PB_SIGN_FLIP_MAX)
        return pb_fail(PB_EINVAL, "%s: '%.60s...' is not the expected line, attempt %d of pair %d", path, text,
                       f->attempt, f->pairs);
    count(f, out);
    return PB_OK;
}

/* Parses all complete lines. *last: the last line, unchanged if the file has none; *length: the offset where that line
 * ends. */
static pb_status take_lines(pb_pair_folder *f, const char *path, const char *text, size_t n, pb_pair_line *last,
                            size_t *length)
{
    const char *newline;
    if (n < strlen(HEADER) || memcmp(text, HEADER, strlen(HEADER)) != 0)
        return pb_fail(PB_EINVAL, "%s: the header is not that of pairs.csv in this version", path);
    for (*length = strlen(HEADER); (newline = memchr(text + *length, '\n', n - *length));) {
        const char *line = text + *length;
        PB_TRY(take_line(f, path, line, (size_t)(newline + 1 - line), last));
        *length = (size_t)(newline + 1 - text);
    }
    return PB_OK; /* the rest is an incomplete line of a killed process */
}

static pb_status read_lines(pb_pair_folder *f, pb_pair_line *last, size_t *length)
{
    char path[PATH], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    PB_TRY(pb_disk_read_file(&pb_disk_posix, path, MOST, &text, &n));
    const pb_status s = take_lines(f, path, text, n, last, length);
    free(text);
    return s;
}

pb_status pb_pair_folder_commit(pb_pair_folder *f, pb_pair_line *l)
{
    char path[PATH], text[LINE];
    for (int i = 0; i < PB_SIDES; i++) PB_TRY(pb_kept_sizes(side_dir(f, (pb_side)i, path), &l->kept[i]));
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    const int n = snprintf(text, sizeof text, "%d,%d,%s,%llu,%ld,%ld,%.3f,%.3f,%d,%d,%s,%lld,%lld,%lld,%lld\n", l->pair,
                           l->attempt, orders[l->cand_first], (unsigned long long)l->seed, l->padding[0], l->padding[1],
                           l->seconds[0], l->seconds[1], l->code[0], l->code[1], statuses[l->status],
                           l->kept[0].results, l->kept[0].samples, l->kept[1].results, l->kept[1].samples);
    PB_TRY(pb_append(path, text, (size_t)n));
    count(f, l);
    return PB_OK;
}

/* ---- create ---------------------------------------------------------------------------------------- */

static pb_status set_dir(pb_pair_folder *f, const char *dir)
{
    *f = (pb_pair_folder){.lock = -1};
    if (snprintf(f->dir, sizeof f->dir, "%s", dir) < (int)sizeof f->dir) return PB_OK;
    return pb_fail(PB_EINVAL, "%.60s...: the path is too long (%zu characters)", dir, strlen(dir));
}

/* Locks the folder of the comparison, not a file in it, because begin_anew() replaces the files. Waits up to ten
 * seconds: after a comparison was killed, its measuring processes hold the lock until they notice and end. */
static pb_status lock_folder(pb_pair_folder *f)
{
    pb_status s;
    for (int i = 0; (s = pb_folder_lock(f->dir, "measures into it", &f->lock)) == PB_EINVAL && i < 100;) {
        i++;
        usleep(100000);
    }
    if (s == PB_OK) fcntl(f->lock, F_SETFD, 0); /* the measuring processes inherit the lock */
    return s;
}

/* Creates the folders and files of both sides. *made: the number of sides created, also on failure. */
static pb_status create_sides(const pb_pair_folder *f, int *made)
{
    char path[PATH];
    for (*made = 0; *made < PB_SIDES; ++*made) {
        PB_TRY(pb_run_make_folder(side_dir(f, (pb_side)*made, path)));
        PB_TRY(pb_results_create(path));
    }
    return PB_OK;
}

static void remove_sides(const pb_pair_folder *f, int n)
{
    static const char *const names[] = {"results.csv", "samples.csv", "run.json"};
    char path[PATH];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) unlink(side_file(f, (pb_side)i, names[k], path));
}

static pb_status create_files(pb_pair_folder *f, int *made)
{
    char path[PATH];
    PB_TRY(lock_folder(f));
    PB_TRY(create_sides(f, made));
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    return pb_file_create(path, HEADER, strlen(HEADER));
}

pb_status pb_pair_folder_create(const char *dir, pb_pair_folder *out)
{
    char path[PATH], why[512];
    pb_pair_folder f;
    int made = 0;
    PB_TRY(set_dir(&f, dir));
    const pb_status s = create_files(&f, &made);
    if (s == PB_OK) {
        *out = f;
        return PB_OK;
    }
    snprintf(why, sizeof why, "%s", pb_error());
    remove_sides(&f, made);
    for (int i = 0; i < PB_SIDES; i++) rmdir(side_dir(&f, (pb_side)i, path)); /* fails, as it should, if files remain */
    pb_pair_folder_close(&f);
    return pb_fail(s, "%s", why);
}

/* ---- resume ---------------------------------------------------------------------------------------- */

/* Reads run.json of one side into f->run[side]. It may list one process more than there are pairs, from an interrupted
 * pair; that entry is dropped. */
static pb_status take_up_runs(pb_pair_folder *f, pb_side side)
{
    char path[PATH];
    PB_TRY(pb_json_read(side_file(f, side, "run.json", path), &f->run[side]));
    json_t *runs = json_object_get(f->run[side], "runs");
    if ((int)json_array_size(runs) < f->pairs || json_array_size(runs) > (size_t)f->pairs + 1)
        return pb_fail(PB_EINVAL, "%s: it lists %zu runs, but pairs.csv has %d pairs", path, json_array_size(runs),
                       f->pairs);
    while ((int)json_array_size(runs) > f->pairs) json_array_remove(runs, json_array_size(runs) - 1);
    return PB_OK;
}

/* Starts over: pairs.csv has no line, so the valid sizes of the other files are unknown. Fails if a run.json lists more
 * than the one process that an unfinished first pair can have left: then pairs.csv was lost, and the pairs are kept. */
static pb_status begin_anew(pb_pair_folder *f)
{
    char path[PATH];
    int made;
    for (int i = 0; i < PB_SIDES; i++) {
        if (access(side_file(f, (pb_side)i, "run.json", path), F_OK) != 0) continue;
        PB_TRY(take_up_runs(f, (pb_side)i));
        json_decref(f->run[i]);
        f->run[i] = NULL;
    }
    remove_sides(f, PB_SIDES);
    return create_sides(f, &made);
}

/* Resumes the comparison. All files are checked before any is truncated. */
static pb_status take_up(pb_pair_folder *f)
{
    char path[PATH];
    pb_pair_line last = {.kept = {{.results = -1}}};
    size_t length = 0;
    PB_TRY(lock_folder(f));
    PB_TRY(read_lines(f, &last, &length));
    if (last.kept[0].results < 0) {
        PB_TRY(begin_anew(f));
    } else {
        for (int i = 0; i < PB_SIDES; i++) {
            PB_TRY(pb_kept_check(side_dir(f, (pb_side)i, path), &last.kept[i], f->pairs));
            if (f->pairs) PB_TRY(take_up_runs(f, (pb_side)i)); /* run.json may be missing before the first pair */
        }
        for (int i = 0; i < PB_SIDES; i++) PB_TRY(pb_kept_cut(side_dir(f, (pb_side)i, path), &last.kept[i]));
    }
    snprintf(path, sizeof path, "%s/pairs.csv", f->dir);
    return pb_append_cut(path, (long long)length);
}

pb_status pb_pair_folder_resume(const char *dir, pb_pair_folder *out)
{
    pb_pair_folder f;
    PB_TRY(set_dir(&f, dir));
    const pb_status s = take_up(&f);
    if (s == PB_OK) *out = f;
    else pb_pair_folder_close(&f);
    return s;
}

pb_status pb_pair_folder_look(const char *dir, pb_pair_folder *out)
{
    pb_pair_line last;
    size_t length = 0;
    pb_pair_folder f;
    PB_TRY(set_dir(&f, dir));
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

pb_status pb_pair_folder_finish(pb_pair_folder *f)
{
    char path[PATH];
    for (int i = 0; i < PB_SIDES; i++)
        if (f->run[i]) PB_TRY(pb_run_json_write(side_dir(f, (pb_side)i, path), f->run[i], false));
    return PB_OK;
}
