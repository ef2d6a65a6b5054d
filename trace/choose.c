/* choose.c - implements choose.h. */
#include "trace/choose.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[PB_NAXES] = {
#define X(id, word, most, what) [PB_AXIS_##id] = word,
    PB_AXIS_MAP(X)
#undef X
};
/* The meaning of the numbers in a list: a rank, a host, or 0..PB_NAXES-1 the coordinate on that axis. */
enum { RANKS = -1, NODES = -2 };

static void add(pb_chosen *c, int rank)
{
    c->count += !c->rank[rank];
    c->rank[rank] = true;
}

static int first_rank_at(const pb_topology *t, int axis, int at)
{
    int coordinates[PB_NAXES] = {0};
    coordinates[axis] = at;
    return pb_topology_rank(t, coordinates);
}

static int nodes_of(const int *node, int ranks)
{
    int most = 0;
    for (int i = 0; node && i < ranks; i++)
        if (node[i] > most) most = node[i];
    return most + 1;
}

/* Reads a decimal number at *text and moves *text after it. */
static bool number(const char **text, long *out)
{
    char *end;
    if (!isdigit((unsigned char)**text)) return false;
    errno = 0;
    *out = strtol(*text, &end, 10);
    *text = end;
    return errno == 0 && *out <= INT_MAX;
}

/* Adds what one word, such as "3", "0-7", "mid", means in a list of `what`. */
static pb_status add_word(const char *word, int what, const pb_topology *t, const int *node, pb_chosen *c)
{
    const int size = what == RANKS ? t->ranks : what == NODES ? nodes_of(node, t->ranks) : t->size[what];
    const char *name = what == RANKS ? "rank" : what == NODES ? "node" : words[what];
    const char *at = word;
    long from, to;
    if (what >= 0 && strcmp(word, "mid") == 0) from = to = size / 2;
    else if (what >= 0 && strcmp(word, "last") == 0) from = to = size - 1;
    else {
        if (!number(&at, &from)) return pb_fail(PB_EINVAL, "profile-ranks: '%s' is not a number", word);
        to = from;
        if (*at == '-' && (at++, !number(&at, &to))) at = word;
        if (at == word || *at || to < from)
            return pb_fail(PB_EINVAL, "profile-ranks: '%s' is not a range of numbers", word);
    }
    if (to >= size)
        return pb_fail(PB_EINVAL, "profile-ranks: %s %ld does not exist, there are %d (numbered from 0)", name, to,
                       size);
    for (int i = (int)from; i <= (int)to; i++) {
        if (what == RANKS) add(c, i);
        else if (what >= 0) add(c, first_rank_at(t, what, i));
        else
            for (int r = 0; r < t->ranks; r++)
                if ((node ? node[r] : 0) == i) add(c, r);
    }
    return PB_OK;
}

/* If `word` begins with "pp:", "node:" and the like, sets *what and returns the rest of the word. */
static char *without_prefix(char *word, int *what, bool *bad)
{
    char *colon = strchr(word, ':');
    *bad = false;
    if (!colon) return word;
    *colon = 0;
    for (int i = 0; i < PB_NAXES; i++)
        if (strcmp(word, words[i]) == 0) return *what = i, colon + 1;
    if (strcmp(word, "rank") == 0) return *what = RANKS, colon + 1;
    if (strcmp(word, "node") == 0) return *what = NODES, colon + 1;
    *bad = true;
    return word;
}

static pb_status add_list(const char *text, const pb_topology *t, const int *node, pb_chosen *c)
{
    char *copy = strdup(text), *rest = copy, *word;
    if (!copy) return pb_fail(PB_ENOMEM, "profile-ranks: no memory");
    int what = RANKS;
    pb_status s = PB_OK;
    while (s == PB_OK && (word = strsep(&rest, ","))) {
        bool bad;
        word = without_prefix(word, &what, &bad);
        s = bad ? pb_fail(PB_EINVAL, "profile-ranks: '%s:' is none of rank:, node:, tp:, cp:, ep:, dp:, pp:", word)
                : add_word(word, what, t, node, c);
    }
    free(copy);
    return s;
}

static const char *choose_auto(const pb_topology *t, pb_chosen *c)
{
    const int stages = t->size[PB_AXIS_PP], n = t->ranks;
    if (n <= 4) {
        for (int i = 0; i < n; i++) add(c, i);
        return "auto, all of up to four ranks";
    }
    if (stages > 1) {
        const int at[] = {0, stages / 2, stages - 1};
        for (int i = 0; i < 3; i++) add(c, first_rank_at(t, PB_AXIS_PP, at[i]));
        return "auto, the first rank of the first, middle and last pipeline stage";
    }
    add(c, 0);
    add(c, n / 2);
    add(c, n - 1);
    return "auto, the first, middle and last rank";
}

/* Writes "ranks 0,32,48 of 64 (WHY)", with ranges, cut to the room there is. */
static void describe(pb_chosen *c, const char *why)
{
    char list[120] = "";
    size_t n = 0;
    for (int i = 0; i < c->ranks && n + 24 < sizeof list; i++) {
        int last = i;
        if (!c->rank[i]) continue;
        while (last + 1 < c->ranks && c->rank[last + 1]) last++;
        const char *comma = n ? "," : "";
        n += (size_t)(last > i + 1 ? snprintf(list + n, sizeof list - n, "%s%d-%d", comma, i, last)
                                   : snprintf(list + n, sizeof list - n, "%s%d", comma, i));
        if (last > i + 1) i = last;
        if (n + 24 >= sizeof list) snprintf(list + n, sizeof list - n, ",...");
    }
    snprintf(c->why, sizeof c->why, "rank%s %s of %d (%s)", c->count == 1 ? "" : "s", c->count ? list : "none",
             c->ranks, why);
}

pb_status pb_choose_ranks(const char *text, const pb_topology *t, const int *node, pb_chosen *out)
{
    pb_chosen c = {.ranks = t->ranks, .rank = calloc((size_t)t->ranks, sizeof(bool))};
    const char *why = "as asked for";
    pb_status s = PB_OK;
    if (!c.rank) return pb_fail(PB_ENOMEM, "profile-ranks: no memory for %d ranks", t->ranks);
    if (strcmp(text, "auto") == 0) why = choose_auto(t, &c);
    else if (strcmp(text, "all") == 0)
        for (int i = 0; i < t->ranks; i++) add(&c, i);
    else if (strcmp(text, "none") != 0) {
        s = add_list(text, t, node, &c);
        if (!c.rank[0]) why = "as asked for, and rank 0, which analyses need";
        add(&c, 0);
    }
    if (s != PB_OK) {
        pb_chosen_free(&c);
        return s;
    }
    describe(&c, why);
    *out = c;
    return PB_OK;
}

void pb_chosen_free(pb_chosen *c)
{
    free(c->rank);
    *c = (pb_chosen){0};
}

pb_status pb_choose_steps(const char *text, pb_profile_steps *out)
{
    long of[5] = {0, 0, 0, 1, 1};
    const char *at = text;
    int n = 0;
    do {
        at += n > 0;
        if (n == 5 || !number(&at, &of[n]))
            return pb_fail(PB_EINVAL, "profile-steps: '%s' is not SKIP:WAIT:WARMUP:ACTIVE:REPEAT in whole numbers",
                           text);
        n++;
    } while (*at == ':');
    if (*at)
        return pb_fail(PB_EINVAL, "profile-steps: '%s' is not SKIP:WAIT:WARMUP:ACTIVE:REPEAT in whole numbers", text);
    if (of[3] == 0) return pb_fail(PB_EINVAL, "profile-steps: '%s' has no active step", text);
    *out = (pb_profile_steps){of[0], of[1], of[2], of[3], of[4]};
    return PB_OK;
}

pb_profile_phase pb_profile_phase_of(const pb_profile_steps *s, long step, bool *first, bool *last)
{
    const long cycle = s->wait + s->warmup + s->active;
    *first = *last = false;
    step -= s->skip;
    if (step < 0 || (s->repeat && step / cycle >= s->repeat)) return PB_PROFILE_OFF;
    step = step % cycle - s->wait;
    if (step < 0) return PB_PROFILE_OFF;
    if (step < s->warmup) return PB_PROFILE_WARM;
    *first = step == s->warmup;
    *last = step == s->warmup + s->active - 1;
    return PB_PROFILE_ON;
}
