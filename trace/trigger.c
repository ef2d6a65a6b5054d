/* trigger.c - implements trigger.h. */
#include "trace/trigger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 4096 };
static const double settled_s = 0.1;

static struct stat look(const pb_trigger *t)
{
    struct stat st;
    return stat(t->path, &st) == 0 ? st : (struct stat){0};
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static double seconds_between(const struct timespec *a, const struct timespec *b)
{
    return (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
}

void pb_trigger_open(const pb_disk *d, const char *path, pb_trigger *t)
{
    *t = (pb_trigger){.disk = d, .path = path};
    t->done = t->saw = look(t);
}

bool pb_trigger_fired(pb_trigger *t)
{
    struct timespec before, after, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    const struct stat st = look(t);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    t->looks++;
    t->seconds += seconds_between(&before, &after);
    if (!same(&st, &t->saw)) t->changed = after;
    t->saw = st;
    if (!st.st_ino || same(&st, &t->done)) return false;
    /* The file may be of a host whose clock differs, so its own time is not enough. */
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!(seconds_between(&st.st_mtim, &now) >= settled_s || seconds_between(&t->changed, &after) >= settled_s))
        return false;
    t->done = st;
    return true;
}

/* ---- what the file says -------------------------------------------------------------------------- */

static bool whole(const char *text, int64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && !*end && *out <= INT32_MAX;
}

static pb_status put_word(const pb_trigger *t, const char *word, const char **ranks, pb_trigger_request *r)
{
    int64_t n = 0;
    if (strncmp(word, "ranks=", 6) == 0) return *ranks = word + 6, PB_OK;
    if (strncmp(word, "steps=", 6) == 0 && whole(word + 6, &n) && n > 0) return r->steps = (long)n, PB_OK;
    if (strncmp(word, "at=", 3) == 0 && whole(word + 3, &n)) {
        if (n >= r->first) return r->first = n, PB_OK;
        return pb_fail(PB_EINVAL, "%s: step %" PRId64 " is over, the next one is %" PRId64, t->path, n, r->first);
    }
    return pb_fail(PB_EINVAL, "%s: '%.60s' is not steps=N, ranks=LIST or at=STEP", t->path, word);
}

static pb_status choose(const pb_trigger *t, const char *ranks, const pb_topology *topology, const int *node,
                        const pb_chosen *chosen, pb_chosen *out)
{
    PB_TRY(pb_choose_ranks(ranks, topology, node, out));
    int odd = out->count ? -1 : 0;
    for (int i = 0; i < out->ranks && out->count; i++)
        if (out->rank[i] && !chosen->rank[i] && odd < 0) odd = i;
    if (odd < 0) return PB_OK;
    const bool none = !out->count;
    pb_chosen_free(out);
    if (none) return pb_fail(PB_EINVAL, "%s: ranks=%.60s names no rank", t->path, ranks);
    return pb_fail(PB_EINVAL, "%s: rank %d is not profiled: --profile-ranks does not name it", t->path, odd);
}

static pb_status interpret(const pb_trigger *t, char *text, const pb_topology *topology, const int *node,
                           const pb_chosen *chosen, pb_trigger_request *r)
{
    char *rest = text, *word;
    const char *ranks = NULL;
    while ((word = strsep(&rest, " \t\r\n")))
        if (*word) PB_TRY(put_word(t, word, &ranks, r));
    if (ranks) return choose(t, ranks, topology, node, chosen, &r->ranks);
    r->ranks = *chosen;
    r->ranks.rank = malloc((size_t)chosen->ranks * sizeof *r->ranks.rank);
    if (!r->ranks.rank) return pb_fail(PB_ENOMEM, "%s: no memory for %d ranks", t->path, chosen->ranks);
    memcpy(r->ranks.rank, chosen->rank, (size_t)chosen->ranks * sizeof *r->ranks.rank);
    return PB_OK;
}

pb_status pb_trigger_read(const pb_trigger *t, const pb_topology *topology, const int *node, const pb_chosen *chosen,
                          int64_t step, long steps, pb_trigger_request *out)
{
    pb_trigger_request r = {.first = step, .steps = steps};
    char *text = NULL;
    size_t n;
    PB_TRY(pb_disk_read_file(t->disk, t->path, MOST_BYTES, &text, &n));
    const pb_status s = interpret(t, text, topology, node, chosen, &r);
    free(text);
    if (s == PB_OK) *out = r;
    return s;
}
