/* judge.c - decides which rank is hung, and which one lags. */
#include "launch/judge.h"

#include <stdlib.h>
#include <string.h>

static bool waits(const pb_rank_view *r) { return !r->left && r->said->collective[0]; }

/* True if rank a has entered fewer collectives than rank b, or has ended, or has left the one in which b waits. */
static bool is_behind(const pb_rank_view *a, const pb_rank_view *b)
{
    if (a->left != b->left) return a->left;
    if (a->said->sequence != b->said->sequence) return a->said->sequence < b->said->sequence;
    return !waits(a) && waits(b);
}

int pb_judge_hung(const pb_rank_view *ranks, int n, double timeout, bool *all)
{
    int first = 0, waiting = -1;
    *all = false;
    for (int i = 0; i < n; i++) {
        if (is_behind(&ranks[i], &ranks[first])) first = i;
        if (waits(&ranks[i]) && ranks[i].still >= timeout) waiting = i;
    }
    if (waiting < 0) return -1;
    if (!ranks[first].left && !(ranks[first].still >= timeout)) return -1; /* it works; the others wait for it */
    *all = !is_behind(&ranks[first], &ranks[waiting]);
    return first;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle_of(const pb_rank_view *r, const char *name)
{
    for (int p = 0; p < PB_WHERE_PHASES; p++)
        if (strcmp(r->said->phases[p].name, name) == 0) return r->said->phases[p].middle;
    return 0;
}

int pb_judge_lag(const pb_rank_view *ranks, int n, int at, double *median)
{
    double *durations = malloc((size_t)n * sizeof *durations);
    int found = -1;
    for (int p = 0; durations && found < 0 && p < PB_WHERE_PHASES; p++) {
        const pb_launch_phase *own = &ranks[at].said->phases[p];
        bool known = own->name[0] && own->middle > 0;
        for (int i = 0; known && i < n; i++) {
            durations[i] = middle_of(&ranks[i], own->name);
            known = durations[i] > 0 && ranks[i].said->step >= 0;
        }
        if (!known) continue;
        qsort(durations, (size_t)n, sizeof *durations, compare);
        *median = durations[(n - 1) / 2]; /* of two ranks the faster one */
        if (own->least > 2 * *median && own->least > *median + 1e-3) found = p;
    }
    free(durations);
    return found;
}
