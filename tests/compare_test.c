/* compare_test.c - `bench compare` on fixtures: every verdict, every exit code, and which inputs are refused. */
#include "bench/suites/self_compare.h"
#include "tests/compare_cases.h"

static const expected cases[] = {
    /* verdicts */
    {"base.csv",
     "tie.csv",
     {0},
     "regressed=0 improved=0 same=2 suspect=0 missing=0 incomparable=0 failed=0 new=0",
     0,
     "not shown"},
    {"base.csv", "base.csv", {0}, "regressed=0 improved=0 same=2", 0, "+0.0 %"},
    {"base.csv", "regressed.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, "+30.0 %"},
    {"base.csv", "regressed.csv", {.strict = true}, "regressed=0 improved=0 same=1 suspect=1", 3, "SUSPECT"},
    {"base.csv", "improved.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, "-30.0 %"},
    {"improved.csv", "base.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, "+42.9 %"},
    {"base.csv", "suspect.csv", {0}, "suspect=1 missing=0", 0, "SUSPECT"},
    {"base.csv", "suspect.csv", {.strict = true}, "suspect=1 missing=0", 3, NULL},
    {"base.csv", "exactly_limit.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, NULL},
    {"higher_base.csv", "higher_slower.csv", {0}, "suspect=2", 0, "-20.0 %"},
    {"higher_base.csv", "higher_faster.csv", {0}, "suspect=2", 0, "+30.0 %"},
    {"base.csv", "missing.csv", {0}, "same=1 suspect=0 missing=1", 4, "MISSING"},
    {"base.csv", "missing.csv", {.subset = true}, "same=1 suspect=0 missing=0", 0, NULL},
    {"missing.csv", "base.csv", {0}, "new=1", 0, "NEW"},
    {"base.csv",
     "failed.csv",
     {0},
     "same=1 suspect=0 missing=0 incomparable=0 failed=1",
     4,
     "FAILED: relative L2 error 0.3"},
    {"base.csv", "one_process_failed.csv", {0}, "failed=1", 4, "killed by signal 9"},
    {"failed.csv", "base.csv", {0}, "failed=0 new=1", 0, NULL},
    {"base.csv", "outcome.csv", {0}, "missing=1", 4, "MISSING: clip sync waits"},
    {"base.csv", "hundredfold.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, "x 100"},
    {"base.csv", "zero.csv", {0}, "incomparable=0 failed=1", 4, "FAILED: a time that is not above zero"},
    {"zero.csv", "zero.csv", {0}, "incomparable=0 failed=1", 4, NULL}, /* status wrong: never SAME */
    {"zero.csv", "base.csv", {0}, "incomparable=1 failed=0", 4, "INCOMPARABLE: a time that is not above zero"},
    /* one of three processes has a bad time; the median would hide it */
    {"base.csv", "time_zero.csv", {0}, "same=1 suspect=0 missing=0 incomparable=0 failed=1", 4, "a time that is not"},
    {"base.csv", "time_negative.csv", {0}, "failed=1", 4, "FAILED: a time that is not above zero"},
    {"time_negative.csv", "base.csv", {0}, "incomparable=1 failed=0", 4, "a time that is not above zero"},
    {"base.csv", "rate_negative.csv", {0}, "failed=1", 4, "FAILED: a rate that is not above zero"},
    /* correctness: every process must be within its bound. Changed counters are noted */
    {"right.csv", "right.csv", {0}, "same=1 suspect=0 missing=0 incomparable=0 failed=0", 0, NULL},
    {"right.csv", "loss_near.csv", {0}, "failed=0", 0, NULL},
    {"right.csv", "loss_far.csv", {0}, "failed=1", 4, "FAILED: beyond its bound, relative 1e-2"},
    {"loss_far.csv", "right.csv", {0}, "failed=0", 0, NULL}, /* the base's median is right */
    {"right.csv", "loss_of_steps.csv", {0}, "failed=0", 0, NULL},
    {"right.csv", "gradient_off.csv", {0}, "failed=1", 4, "FAILED: beyond its bound, absolute 1e-2"},
    {"gradient_off.csv", "gradient_off.csv", {0}, "failed=1", 4, NULL},
    {"right.csv", "gradient_bf16.csv", {.subset = true}, "failed=0", 0, NULL},
    {"right.csv",
     "counters.csv",
     {0},
     "failed=0",
     0,
     "note: a counter moved: kernel_launches of backward/step?batch=1"},
    {"right.csv", "counters.csv", {0}, "failed=0", 0, ", 692 -> 693"},
    {"right.csv", "counters.csv", {0}, "failed=0", 0, "note: a counter moved: host_syncs of"},
    /* fewer than three processes on a side */
    {"base.csv", "single.csv", {0}, "inconclusive=2", 0, "only 1 process behind the candidate"},
    {"base.csv",
     "single.csv",
     {.strict = true},
     "inconclusive=2",
     3,
     "INCONCLUSIVE: too few processes of the candidate"},
    {"single.csv", "base.csv", {.strict = true}, "inconclusive=2", 3, "INCONCLUSIVE: too few processes of the base"},
    {"many_base.csv", "many_regressed.csv", {0}, "inconclusive=256", 0, NULL},
    /* no row with a gate was judged */
    {"base.csv", "single.csv", {.need_verdict = true}, "inconclusive=2", 3, NULL},
    {"base.csv", "tie.csv", {.need_verdict = true}, "same=2", 0, NULL},
    {"base.csv", "tie.csv", {.gates = "gates_none.csv", .need_verdict = true}, "same=0", 3, "nothing here gates"},
    /* a warm-up trend that could explain the change, one that could not, and one in one process of three only */
    {"base.csv", "warm_up_explains.csv", {0}, "regressed=0 improved=0 same=1 suspect=1", 0, "SUSPECT: a warm-up"},
    {"base.csv", "warm_up_explains.csv", {.strict = true}, "regressed=0 improved=0 same=1 suspect=1", 3, NULL},
    {"warm_up_explains.csv", "base.csv", {0}, "improved=0 same=1 suspect=1", 0, "SUSPECT: a warm-up"},
    {"warm_up_base.csv", "regressed.csv", {0}, "same=1 suspect=1", 0, "SUSPECT\n"},
    {"base.csv", "warm_up_little.csv", {0}, "same=1 suspect=1", 0, "SUSPECT\n"},
    {"base.csv", "warm_up_once.csv", {0}, "same=1 suspect=1", 0, "SUSPECT\n"},
    /* ceilings: values are not divided by them */
    {"base.csv", "ceiling_moved.csv", {0}, "same=0 suspect=2", 0, "the machine moved: matmul_rate 100 GFLOP/s -> 70.1"},
    {"base.csv", "ceiling_hides.csv", {0}, "same=2 suspect=0", 0, "the machine moved: matmul_rate"},
    {"base.csv", "ceiling_moved.csv", {.gates = "gates_no_ceiling.csv"}, "same=0 suspect=2", 0, NULL},
    /* sides that cannot be compared */
    {"base.csv", "machine.csv", {0}, "same=0 suspect=0 missing=0 incomparable=6", 4, "machine_id differs"},
    {"base.csv", "machine.csv", {.allow_mismatch = true}, "same=2", 0, "--allow-mismatch"},
    {"base.csv", "version.csv", {0}, "incomparable=6", 4, "bench_version differs"},
    {"base.csv", "version.csv", {.allow_mismatch = true}, "incomparable=6", 4, NULL},
    {"unknown_base.csv", "unknown_unit.csv", {0}, "incomparable=2", 4, "unit differs"},
    /* rows that do not gate */
    {"unknown_base.csv", "unknown_slower.csv", {0}, "regressed=0", 0, "(SUSPECT)"},
    {"base.csv", "regressed.csv", {.gates = "gates_none.csv"}, "regressed=0", 0, "nothing here gates"},
    /* these gates apply to pairs only */
    {"base.csv", "regressed.csv", {.gates = "gates_pairs.csv"}, "regressed=0", 0, "nothing here gates"},
    {"requirement_pass.csv", "requirement_applies.csv", {0}, "missing=0 incomparable=0 failed=0", 0, "unsupported"},
    {"base.csv", "requirement_fail.csv", {0}, "failed=0 new=0", 0, NULL},
    {"requirement_fail.csv", "base.csv", {0}, "missing=0", 0, NULL},
    {"requirement_pass.csv", "requirement_fail.csv", {0}, "regressed=0 improved=0 same=2", 0, "(info)"},
    /* files */
    {"base.csv", "reordered.csv", {0}, "same=2", 0, NULL},
    {"base.csv", "duplicate.csv", {0}, NULL, 2, "duplicate.csv:26: process 0 has a second backward_time"},
    {"base.csv", "nan.csv", {0}, NULL, 2, "nan.csv:2: value is not a finite number: nan"},
    {"base.csv", "inf.csv", {0}, NULL, 2, "inf.csv:2: value is not a finite number: 1e999"},
    {"base.csv", "unit.csv", {0}, NULL, 2, "unit.csv:4: backward_time is in s, not in ms"},
    {"base.csv", "empty.csv", {0}, NULL, 2, "the file is empty"},
    {"base.csv", "header_only.csv", {0}, NULL, 2, "no rows"},
    {"header_only.csv", "base.csv", {0}, NULL, 2, "no rows"},
    {"base.csv", "truncated.csv", {0}, NULL, 2, "truncated.csv:25: cut off"},
    {"base.csv", "truncated_at_end.csv", {0}, NULL, 2, "cut off"},
    {"base.csv", "no_such_file.csv", {0}, NULL, 2, "No such file"},
    {"base.csv", "tie.csv", {.gates = "no_gates.csv"}, NULL, 2, "which metrics gate"},
    {"base.csv", "tie.csv", {.gates = "gates_bad_direction.csv"}, NULL, 2, "gates_bad_direction.csv:2: metrics.def"},
    {"base.csv", "tie.csv", {.gates = "gates_bad_limit.csv"}, NULL, 2, "not a limit"},
};

static void every_verdict_and_exit_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
}

static void worse_exit_follows_its_order(void **state)
{
    static const pb_exit order[] = {0, 3, 1, 4, 2, 125};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) assert_int_equal(pb_worse_exit(order[i], order[j]), order[i > j ? i : j]);
}

/* The suite `self` generates what it says. The files are a tenth of their usual size here, and the time is not
 * checked. */
static void large_files_for_measuring(void **state)
{
    pb_self_files *files;
    pb_self_figures figures = {0};
    (void)state;
    CHECK_FAILS(pb_self_files_make(99, &files), PB_EINVAL, "need 100 to");
    CHECK_OK(pb_self_files_make(10000, &files));
    for (int i = 0; i < 2; i++) CHECK_OK(pb_self_compare(files, &figures));
    assert_true(figures.seconds > 0 && figures.peak_bytes > 1e6);
    pb_self_files_free(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verdict_and_exit_code),
        cmocka_unit_test(worse_exit_follows_its_order),
        cmocka_unit_test(large_files_for_measuring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
