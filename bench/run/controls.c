/* controls.c - adds the control cases to a plan. */
#include "bench/run/controls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"

enum { ADDED = 2 * PB_CONTROL_CASES };

static bool switched_off(const pb_plan *p)
{
    const char *set = getenv("PB_CONTROLS");
    return strcmp(p->suite->name, "ceiling") == 0 || (set && strcmp(set, "no") == 0);
}

double pb_controls_expect(const pb_plan *p)
{
    double sum = 0;
    for (int i = p->ceilings; i < p->n - p->controls; i++) sum += pb_plan_expect(p, &p->cases[i]);
    return sum;
}

/* Writes the indices of the shortest cases to out, shortest first. Returns their expected seconds. */
static double shortest(const pb_plan *p, int out[PB_CONTROL_CASES])
{
    double sum = 0;
    for (int k = 0; k < PB_CONTROL_CASES; k++) {
        double least = 0;
        out[k] = -1;
        for (int i = p->ceilings; i < p->n; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= out[j] == i;
            const double e = pb_plan_expect(p, &p->cases[i]);
            if (!taken && (out[k] < 0 || e < least)) out[k] = i, least = e;
        }
        sum += least;
    }
    return sum;
}

static pb_status make_room(pb_plan *p)
{
    pb_case *more = realloc(p->cases, (size_t)(p->n + ADDED) * sizeof *more);
    if (!more) return pb_fail(PB_ENOMEM, "no memory for %d cases", p->n + ADDED);
    p->cases = more;
    p->room = p->n + ADDED;
    return PB_OK;
}

pb_status pb_controls_add(pb_plan *p)
{
    static const char *const names[] = {PB_CONTROL_FIRST, PB_CONTROL_SECOND};
    int chosen[PB_CONTROL_CASES];
    if (switched_off(p) || p->n - p->ceilings < PB_CONTROL_CASES) return PB_OK;
    if (!(2 * shortest(p, chosen) <= PB_CONTROL_SHARE * pb_controls_expect(p))) return PB_OK;
    PB_TRY(make_room(p));
    for (int k = 0; k < PB_CONTROL_CASES; k++)
        for (int i = 0; i < 2; i++) {
            pb_case c = p->cases[chosen[k]];
            PB_TRY(pb_case_set(&c, PB_CONTROL_AXIS, names[i]));
            pb_case_finish(&c);
            p->cases[p->n++] = c;
            p->controls++;
        }
    return PB_OK;
}

void pb_controls_text(const pb_plan *p, char *out, size_t n)
{
    if (switched_off(p)) *out = 0;
    else if (p->controls)
        snprintf(out, n, "%d control cases are measured twice more in each process, to show the noise of the run",
                 p->controls / 2);
    else
        snprintf(out, n, "no control cases: measuring two cases twice more would take over %g %% more time",
                 100 * PB_CONTROL_SHARE);
}
