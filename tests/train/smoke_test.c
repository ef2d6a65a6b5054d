/* smoke_test.c - tests of the checks of the smoke ladder: each fails alone, names its step, and NaN never passes. */
#include <string.h>

#include "tests/test.h"
#include "train/smoke.h"

static pb_smoke_rung good(int steps)
{
    pb_smoke_rung r = {.steps = steps, .rise = 1.1, .resumed = true, .end = true, .compares_end = true};
    for (int i = 0; i < steps; i++) r.loss[i] = 5 - 0.1 * i, r.norm[i] = 1;
    return r;
}

static void passes(pb_smoke_rung r)
{
    char why[400];
    if (!pb_smoke_passed(&r, why, sizeof why)) fail_msg("failed: %s", why);
}

static void fails(pb_smoke_rung r, const char *text)
{
    char why[400] = "";
    assert_false(pb_smoke_passed(&r, why, sizeof why));
    if (!strstr(why, text)) fail_msg("'%s' is not in '%s'", text, why);
}

static void a_good_rung_passes(void **state)
{
    (void)state;
    passes(good(2));
    passes(good(PB_SMOKE_STEPS));
    pb_smoke_rung r = good(PB_SMOKE_STEPS);
    r.end = r.compares_end = false; /* where the end is not compared, it may differ */
    passes(r);
    r = good(4);
    r.loss[0] = 1, r.loss[1] = 3, r.loss[2] = 2.1, r.loss[3] = 2.2; /* means 2 and 2.15: single losses may rise */
    passes(r);
}

static void every_check_fails_alone(void **state)
{
    (void)state;
    pb_smoke_rung r = good(PB_SMOKE_STEPS);
    r.loss[6] = (double)NAN;
    fails(r, "the loss of step 7 is not finite");
    r = good(2);
    r.loss[0] = (double)INFINITY;
    fails(r, "the loss of step 1 is not finite");
    r = good(PB_SMOKE_STEPS);
    r.norm[19] = (double)INFINITY;
    fails(r, "the gradient's norm in step 20 is not finite");
    r = good(PB_SMOKE_STEPS);
    r.skipped = 3;
    strcpy(r.why, "too hot");
    fails(r, "step 3 was skipped: too hot");
    r = good(4);
    r.loss[0] = r.loss[1] = 2, r.loss[2] = 2.3, r.loss[3] = 2.2;
    fails(r, "the loss rose from 2 (mean of steps 1 to 2) to 2.25 (3 to 4), by more than a factor of 1.1");
    r.rise = 1.2;
    passes(r);
    r = good(2);
    r.resumed = false;
    fails(r, "the state after resuming from step 1 has other bits");
    r = good(PB_SMOKE_STEPS);
    r.end = false;
    fails(r, "the run that resumed from step 10 ended with other bits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_good_rung_passes), cmocka_unit_test(every_check_fails_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
