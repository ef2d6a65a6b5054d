/* controls.c - adds the control cases to a plan. */
#include "bench/suites/controls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"

static bool switched_off(const pb_plan *p)
{
    const char *set = getenv("PB_CONTROLS");
    return strcmp(p->suite->name, "ceiling") == 0 || (set && strcmp(set, "no") == 0);
}

/* Writes the expected seconds of every case of the plan to seconds[p->n], because an estimate may take milliseconds. */
static pb_status expect(const pb_plan *p, double **seconds)
{
    *seconds = calloc((size_t)p->n + 1, sizeof **seconds);
    if (!*seconds) return pb_fail(PB_ENOMEM, "no memory for %d cases", p->n);
    for (int i = 0; i < p->n; i++) (*seconds)[i] = pb_plan_expect(p, &p->cases[i]);
    return PB_OK;
}

static double sum(const double *seconds, int from, int to)
{
    double all = 0;
    for (int i = from; i < to; i++) all += seconds[i];
    return all;
}

static bool is_timed(const pb_plan *p, const pb_case *c)
{
    return !p->suite->untimed && (!p->suite->timed || p->suite->timed(c));
}

/* Makes the copy of a case that has axis control=`value`. EINVAL: its key has no room for the axis. */
static pb_status copy(const pb_case *of, const char *value, pb_case *out)
{
    *out = *of;
    PB_TRY(pb_case_set(out, PB_CONTROL_AXIS, value));
    pb_case_finish(out);
    return PB_OK;
}

/* True if case i can be a control. */
static bool suits(const pb_plan *p, int i)
{
    pb_case second;
    return is_timed(p, &p->cases[i]) && copy(&p->cases[i], PB_CONTROL_SECOND, &second) == PB_OK;
}

/* Writes the indices of the shortest cases that can be controls to out, shortest first. Returns their number. */
static int shortest(const pb_plan *p, const double *seconds, int out[PB_CONTROL_CASES])
{
    int n = 0;
    for (; n < PB_CONTROL_CASES; n++) {
        out[n] = -1;
        for (int i = p->ceilings; i < p->n; i++) {
            bool taken = false;
            for (int j = 0; j < n; j++) taken |= out[j] == i;
            if (!taken && (out[n] < 0 || seconds[i] < seconds[out[n]]) && suits(p, i)) out[n] = i;
        }
        if (out[n] < 0) break;
    }
    return n;
}

static pb_status make_room(pb_plan *p, int more)
{
    pb_case *cases = realloc(p->cases, (size_t)(p->n + more) * sizeof *cases);
    if (!cases) return pb_fail(PB_ENOMEM, "no memory for %d cases", p->n + more);
    p->cases = cases;
    p->room = p->n + more;
    return PB_OK;
}

static pb_status add(pb_plan *p, int of, const char *value)
{
    PB_TRY(copy(&p->cases[of], value, &p->cases[p->n]));
    p->n++;
    p->controls++;
    return PB_OK;
}

static pb_status add_copies(pb_plan *p, const double *seconds)
{
    int chosen[PB_CONTROL_CASES];
    double once = 0;
    const int n = shortest(p, seconds, chosen);
    if (!n) return PB_OK;
    for (int k = 0; k < n; k++) once += seconds[chosen[k]];
    const bool twice = n == PB_CONTROL_CASES && 2 * once <= PB_CONTROL_SHARE * sum(seconds, p->ceilings, p->n);
    PB_TRY(make_room(p, twice ? 2 * n : n));
    for (int k = 0; k < n; k++) {
        if (twice) PB_TRY(add(p, chosen[k], PB_CONTROL_FIRST));
        PB_TRY(add(p, chosen[k], PB_CONTROL_SECOND));
    }
    return PB_OK;
}

pb_status pb_controls_add(pb_plan *p)
{
    double *seconds;
    if (switched_off(p)) return PB_OK;
    PB_TRY(expect(p, &seconds));
    const pb_status s = add_copies(p, seconds);
    free(seconds);
    return s;
}

/* By how much the copies make a process longer, as a share; 0: not known. */
static double longer(const pb_plan *p)
{
    double *seconds;
    const int own = p->n - p->controls;
    if (expect(p, &seconds) != PB_OK) return 0;
    const double share = sum(seconds, own, p->n) / sum(seconds, 0, own);
    free(seconds);
    return isfinite(share) ? share : 0;
}

void pb_controls_text(const pb_plan *p, char *out, size_t n)
{
    const bool twice = p->controls > PB_CONTROL_CASES;
    const int cases = twice ? p->controls / 2 : p->controls;
    char costs[80] = "";
    *out = 0;
    if (switched_off(p)) return;
    if (!cases) {
        snprintf(out, n, "no control cases: no case of this run measures a time");
        return;
    }
    const double share = twice ? 0 : longer(p); /* twice: at most PB_CONTROL_SHARE */
    if (share > PB_CONTROL_SHARE)
        snprintf(costs, sizeof costs, "; it takes %.0f %% longer for that (PB_CONTROLS=no: without)", 100 * share);
    snprintf(out, n, "%d control case%s measured %s more in each process, to show the noise of the run%s", cases,
             cases == 1 ? " is" : "s are", twice ? "twice" : "once", costs);
}
