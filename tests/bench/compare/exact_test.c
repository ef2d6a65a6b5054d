/* exact_test.c - tests of exact counters: a rise against the stored value fails a comparison unless accepted.csv lists
 * it, only values with the same exact key are compared, and changed lists of kernels are shown. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/compare/accepted.h"
#include "bench/compare/compare_results.h"
#include "bench/compare/exact_key.h"
#include "bench/compare/exact_store.h"
#include "bench/measure/perf_event.h"
#include "bench/compare/kernel_lists.h"
#include "bench/measure/counters.h"
#include "bench/measure/instructions.h"
#include "tests/test.h"

#define CASE "backward/step?dtype=f32"
#define HEAD "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note\n"

static char root[64];

static char *at(const char *name)
{
    static char path[4][160];
    static int n;
    char *p = path[n++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The counters of a made-up run. NULL: the run lacks that counter; "": it has a row that says that it could not be
 * counted. */
typedef struct made {
    const char *name, *isa, *calls, *peak, *list;
    int threads;
} made;

static void row(FILE *f, const char *metric, const char *unit, const char *value, const char *note)
{
    const bool counted = value && *value;
    if (value)
        fprintf(f, "2,r1,cpu-x-2c,0," CASE ",%s,%s,none,%s,0,%s,%s\n", metric, unit, value,
                counted ? "ok" : "unsupported", counted ? note : "no profiler here");
}

/* Writes a run of one process: results.csv and run.json. */
static void make_run(const made *m)
{
    char name[96], json[512], digest[32] = "";
    mkdir(at(m->name), 0777);
    snprintf(name, sizeof name, "%s/run.json", m->name);
    snprintf(json, sizeof json,
             "{\"fingerprint\": {\"hard\": {\"device\": \"cpu\", \"isa\": \"%s\"}, \"soft\": {\"threads\": %d, "
             "\"openblas\": \"OpenBLAS 0.3.21 DYNAMIC_ARCH\"}}}",
             m->isa, m->threads);
    write_text(name, json);
    snprintf(name, sizeof name, "%s/results.csv", m->name);
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(HEAD, f);
    row(f, "kernel_launches", "1", m->calls, "");
    row(f, "held_peak", "B", m->peak, "");
    snprintf(digest, sizeof digest, "%u", m->list ? (unsigned)pb_kernel_digest(m->list) : 0);
    row(f, "kernel_digest", "hash", m->list ? digest : NULL, m->list ? m->list : "");
    assert_int_equal(fclose(f), 0);
}

typedef struct capture {
    FILE *f;
    char *text;
    size_t n;
} capture;

static FILE *begin(capture *c)
{
    c->f = open_memstream(&c->text, &c->n);
    assert_non_null(c->f);
    return c->f;
}

/* Fails unless the captured output contains `text`. Frees the output. */
static void says(capture *c, const char *text)
{
    assert_int_equal(fclose(c->f), 0);
    if (!strstr(c->text, text)) fail_msg("nothing says '%s':\n%s", text, c->text);
    free(c->text);
}

static void compared(const char *run, pb_exit code, const char *text)
{
    capture c;
    assert_int_equal(pb_compare_baseline(at(run), &(pb_compare_opts){.baselines = root}, begin(&c)), code);
    says(&c, text);
}

static void stored(const char *run, const char *text)
{
    capture c;
    const pb_baseline_opts o = {.baselines = root, .reason = "why"};
    assert_int_equal(pb_baseline_counters(at(run), &o, begin(&c)), 0);
    says(&c, text);
}

static const made first = {"first", "avx512", "692", "123456789012", "a.avx512=2 b.avx512=3", 2};

static int open_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/pb_exact_XXXXXX");
    if (!mkdtemp(root)) return 1;
    write_text("gates.csv", "suite,metric,better,stored_limit,ceiling,gating\n");
    make_run(&first);
    return 0;
}

static int close_root(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* Without stored counters a comparison passes. Once counters are stored, a rise is REGRESSED even if it is 1 of
 * 123456789012, because all digits are stored; a fall is IMPROVED. */
static void only_a_rise_fails(void **state)
{
    made m = first;
    (void)state;
    compared("first", PB_EXIT_OK, "note: 3 exact counters are not stored yet");
    stored("first", "3 counters from");
    compared("first", PB_EXIT_OK, "exact/backward.csv: 3 equal\n");
    m.name = "more", m.calls = "693", m.list = "a.avx512=1 b.avx512=3 c.avx512=2", make_run(&m);
    compared("more", PB_EXIT_REGRESSION, "REGRESSED: exact, 692 -> 693 (+1): a.avx512 -1, c.avx512 +2\n");
    m.name = "fewer", m.calls = "600", m.list = first.list, make_run(&m);
    compared("fewer", PB_EXIT_OK, "IMPROVED: exact, 692 -> 600 (-92)\n");
    m.name = "byte", m.calls = "692", m.peak = "123456789013", make_run(&m);
    compared("byte", PB_EXIT_REGRESSION, "REGRESSED: exact, 123456789012 -> 123456789013 (+1)\n");
    m.name = "lost", m.peak = NULL, make_run(&m);
    compared("lost", PB_EXIT_INCOMPARABLE, "MISSING: an exact counter that the candidate does not count");
}

/* If the number of kernel launches is unchanged but other kernels are launched, the comparison shows SUSPECT and
 * passes. */
static void other_kernels_are_shown(void **state)
{
    made m = first;
    (void)state;
    m.name = "other", m.list = "a.avx512=2 b.ref=3", make_run(&m);
    compared("other", PB_EXIT_OK, "(SUSPECT): as many launches, but of other kernels: b.avx512 -3, b.ref +3\n");
}

/* A counter gates only if its exact key equals that of the stored value. The key of op calls is empty, so they gate
 * everywhere; the key of the list of kernels is the instruction set; the key of memory is the number of threads. */
static void exact_keys_decide_what_gates(void **state)
{
    made m = first;
    (void)state;
    m.name = "threads", m.threads = 8, m.peak = "223456789012", make_run(&m);
    compared("threads", PB_EXIT_OK,
             "(REFERENCE): not comparable: machine, library, build or number of threads; 123456789012");
    m.calls = "700", make_run(&m);
    compared("threads", PB_EXIT_REGRESSION, "REGRESSED: exact, 692 -> 700 (+8)\n");
    m = first;
    m.name = "avx2", m.isa = "avx2", m.calls = "693", m.list = "a.avx2=2 b.avx2=4", make_run(&m);
    compared("avx2", PB_EXIT_REGRESSION, "REGRESSED: exact, 692 -> 693 (+1): b +1\n");
}

static void a_renewed_value_replaces_the_old_one(void **state)
{
    made m = first;
    (void)state;
    m.name = "renewed", m.calls = "693", make_run(&m);
    stored("renewed", "kernel_launches of " CASE ": 692 -> 693\n");
    compared("renewed", PB_EXIT_OK, ": 3 equal\n");
    compared("first", PB_EXIT_OK, "IMPROVED");
    stored("first", "0 of them new, 1 changed");
    capture c;
    assert_int_equal(pb_baseline_counters(at("first"), &(pb_baseline_opts){.baselines = root}, begin(&c)),
                     PB_EXIT_USAGE);
    says(&c, "");
    unlink(at("renewed/run.json"));
    const pb_baseline_opts o = {.baselines = root, .reason = "why"};
    assert_int_equal(pb_baseline_counters(at("renewed"), &o, begin(&c)), PB_EXIT_USAGE);
    says(&c, "");
    assert_non_null(strstr(pb_error(), "does not say what the counters depend on"));
}

/* Adds a process of which only the number of kernel launches is known. */
static void add_process(const char *run, const char *calls)
{
    char name[96];
    snprintf(name, sizeof name, "%s/results.csv", run);
    FILE *f = fopen(at(name), "a");
    assert_non_null(f);
    assert_true(fprintf(f, "2,r1,cpu-x-2c,1," CASE ",kernel_launches,1,none,%s,0,ok,\n", calls) > 0);
    assert_int_equal(fclose(f), 0);
}

/* A counter that could not be counted has no number to store, and one that varies is not exact. Neither keeps the
 * others from being stored. */
static void what_is_no_exact_number_is_left_out(void **state)
{
    made m = first;
    capture c;
    const pb_baseline_opts o = {.baselines = root, .reason = "why"};
    (void)state;
    m.name = "uncounted", m.calls = "", m.peak = "5", make_run(&m);
    assert_int_equal(pb_baseline_counters(at("uncounted"), &o, begin(&c)), 0);
    says(&c, "not stored: 1 counter that the run could not count, such as kernel_launches of " CASE "\nsaved ");
    stored("first", "held_peak of " CASE ": 5 -> 123456789012\n");
    m.name = "varying", m.calls = "692", m.peak = "6", make_run(&m), add_process("varying", "693");
    stored("varying",
           "not stored: 1 counter with different numbers in different calls, such as kernel_launches of " CASE
           "\nsaved ");
    m.name = "mean", m.calls = "692.5", make_run(&m);
    stored("mean", "not stored: 1 counter with different numbers in different calls, such as");
    stored("first", "0 of them new, 1 changed");
}

/* Ten calls that agree within the bound of a hardware counter have a median, which may lie between two of them. */
static void a_median_of_calls_is_stored(void **state)
{
    (void)state;
    mkdir(at("median"), 0777);
    write_text("median/run.json", "{\"fingerprint\": {\"hard\": {\"device\": \"cuda\", \"gpu\": \"NVIDIA H200\"}, "
                                  "\"soft\": {\"cublaslt\": 130100, \"counters\": \"L2 of GH100\"}}}");
    write_text("median/results.csv", HEAD "2,r1,cuda-x,0," CASE ",l2_read_sectors,1,none,963508.5,10,ok,10 calls\n");
    stored("median", "1 counters from ");
    compared("median", PB_EXIT_OK, ": 1 equal\n");
    write_text("median/results.csv",
               HEAD "2,r1,cuda-x,0," CASE ",l2_hit_share,1,none,1,10,ok,\n"); /* counted, without it */
    compared("median", PB_EXIT_INCOMPARABLE, "an exact counter that the candidate does not count");
}

#define ACCEPTED "key,metric,from,to,reason,until\n"

static void an_accepted_rise_does_not_fail(void **state)
{
    made m = first;
    (void)state;
    m.name = "raised", m.calls = "700", make_run(&m);
    write_text("accepted.csv", ACCEPTED "backward/*,kernel_launches,692,700,a faster split,2999-12-31\n");
    compared("raised", PB_EXIT_OK, "note: accepted: kernel_launches of " CASE ", 692 -> 700: a faster split\n");
    compared("raised", PB_EXIT_OK, ": 2 equal, 1 worse and accepted\n");
    compared("first", PB_EXIT_OK,
             "accepted.csv:2: no kernel_launches rises from 692 to 700 any more: remove the line\n");
    write_text("accepted.csv", ACCEPTED "backward/*,kernel_launches,692,701,another,\n");
    compared("raised", PB_EXIT_REGRESSION, "692 -> 700 (+8)");
    write_text("accepted.csv", ACCEPTED "kernels/*,kernel_launches,692,700,another case,\n");
    compared("raised", PB_EXIT_REGRESSION, "692 -> 700 (+8)");
    write_text("accepted.csv", ACCEPTED CASE ",kernel_launches,692,700,too late,2020-12-31\n");
    compared("raised", PB_EXIT_REGRESSION, "accepted.csv:2: expired after 2020-12-31: remove the line\n");
    unlink(at("accepted.csv"));
}

static void a_wrong_accepted_csv_is_refused(void **state)
{
    static const char *const lines[][2] = {
        {"x\n", "must have six fields"},
        {"a,b,c,d,e,f\n", "the header must be"},
        {ACCEPTED "k,kernel_launches,1,2,,\n", "f:2: a reason is required"},
        {ACCEPTED "k,kernel_launches,2,2,r,\n", "f:2: `to` must be above `from`"},
        {ACCEPTED "k,kernel_launches,1,x,r,\n", "f:2: need a count"},
        {ACCEPTED "k,kernel_digest,1,2,r,\n", "f:2: not an exact counter"},
        {ACCEPTED "k,loss,1,2,r,\n", "f:2: not an exact counter"},
        {ACCEPTED ",kernel_launches,1,2,r,\n", "f:2: need a key"},
        {ACCEPTED "k,kernel_launches,1,2,r,tomorrow\n", "f:2: need a day"},
    };
    pb_accepted_list l;
    (void)state;
    assert_int_equal(chdir(root), 0);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        write_text("f", lines[i][0]);
        CHECK_FAILS(pb_accepted_read("f", "2026-01-01", &l), PB_EINVAL, lines[i][1]);
        pb_accepted_free(&l);
    }
    CHECK_OK(pb_accepted_read("no_such_file", "2026-01-01", &l));
    assert_int_equal(l.n, 0);
}

static void lists_of_kernels(void **state)
{
    pb_tally t = {0};
    char list[PB_KERNEL_LIST_TEXT], text[64];
    (void)state;
    for (int i = 0; i < 3; i++) pb_tally_add(&t, "rope_fwd", "avx2");
    pb_tally_add(&t, "mla_bwd wgmma, lists", "");
    pb_tally_add(NULL, "nothing", "");
    pb_kernel_list(&t, list);
    assert_string_equal(list, "mla_bwd_wgmma__lists=1 rope_fwd.avx2=3");
    pb_kernel_lists_differ("a=1 b=2", "b=2 c=5", false, text, sizeof text);
    assert_string_equal(text, "a -1, c +5");
    pb_kernel_lists_differ("a.x=1 a.y=2 b.x=1", "a.z=4 b.z=1", true, text, sizeof text);
    assert_string_equal(text, "a +1");
    pb_kernel_lists_differ("", "a=1", false, text, sizeof text);
    assert_string_equal(text, "");
    pb_kernel_lists_differ("aaaaaaaa=1 bbbbbbbb=1", "c=1", false, text, 16);
    assert_string_equal(text, "aaaaaaaa -1,...");
    for (int i = 0; i < PB_TALLY_MOST + 5; i++) {
        static char names[PB_TALLY_MOST + 5][8];
        snprintf(names[i], sizeof names[i], "k%d", i);
        pb_tally_add(&t, names[i], "");
    }
    assert_int_equal(t.n, PB_TALLY_MOST);
    assert_int_equal(t.lost, 7);
}

static void exact_keys(void **state)
{
    pb_exact_key k;
    (void)state;
    pb_exact_key_of(at("first"), "cpu-x-2c", &k);
    assert_string_equal(pb_exact_key_for(&k, "kernel_launches"), "cpu");
    assert_string_equal(pb_exact_key_for(&k, "kernel_digest"), "cpu isa=avx512 openblas=0.3.21");
    assert_string_equal(pb_exact_key_for(&k, "held_peak"), "cpu isa=avx512 openblas=0.3.21 threads=2");
    assert_null(pb_exact_key_for(&k, "backward_time"));
    write_text("first/run.json", "{\"fingerprint\": {\"hard\": {\"device\": \"cuda\", \"gpu\": \"NVIDIA H200\", "
                                 "\"capability\": 90, \"multiprocessors\": 132}, \"soft\": {\"cublaslt\": 130100}}}");
    pb_exact_key_of(at("first/results.csv"), "cuda-x", &k);
    assert_string_equal(pb_exact_key_for(&k, "kernel_launches"), "cuda NVIDIA_H200 132sm cc=90 cublaslt=130100");
    assert_string_equal(k.text[PB_EXACT_ON_NOTHING], k.text[PB_EXACT_ON_THREADS]);
    assert_null(pb_exact_key_for(&k, "l2_read_sectors")); /* a run that counts no group lacks none of its counters */
    assert_null(pb_exact_key_for(&k, "registers"));       /* nor one whose nvcc is not known, of registers */
    write_text("first/run.json", "{\"fingerprint\": {\"hard\": {\"device\": \"cuda\", \"gpu\": \"NVIDIA H200\", "
                                 "\"capability\": 90, \"multiprocessors\": 132}, \"soft\": {\"cublaslt\": 130100, "
                                 "\"counters\": \"L2 of GH100\", \"nvcc\": \"13.0.88\"}}}");
    pb_exact_key_of(at("first/results.csv"), "cuda-x", &k);
    assert_string_equal(pb_exact_key_for(&k, "l2_read_sectors"),
                        "cuda NVIDIA_H200 132sm cc=90 cublaslt=130100 counters=L2_of_GH100");
    assert_string_equal(pb_exact_key_for(&k, "registers"), "cuda NVIDIA_H200 132sm cc=90 cublaslt=130100 nvcc=13.0.88");
    pb_exact_key_of("no such file", "cpu-x", &k);
    assert_string_equal(pb_exact_key_for(&k, "kernel_launches"), "cpu");
    assert_null(pb_exact_key_for(&k, "held_peak"));
    pb_exact_key_of("no such file", "cuda-x", &k);
    assert_null(pb_exact_key_for(&k, "kernel_launches"));
}

static void exact_key_of_a_build(void **state)
{
    pb_exact_key k, other;
    (void)state;
    static const char *const form =
        "{\"fingerprint\": {\"hard\": {\"device\": \"cpu\", \"isa\": \"avx2\"}, \"soft\": {\"threads\": 1, "
        "\"openblas\": \"OpenBLAS 0.3.21 X\", \"libc\": \"2.36\", \"compiler\": \"GNU 12.2.0\", \"flags\": \"%s\"%s}}}";
    char json[512];
    mkdir(at("built"), 0777);
    snprintf(json, sizeof json, form, "-O3", ", \"instructions\": \"perf AMD EPYC\"");
    write_text("built/run.json", json);
    pb_exact_key_of(at("built"), "cpu-x-2c", &k);
    const char *text = pb_exact_key_for(&k, "instructions");
    assert_non_null(text);
    assert_non_null(strstr(text, "cpu isa=avx2 openblas=0.3.21 threads=1 libc=2.36 compiler=GNU_12.2.0 flags="));
    assert_non_null(strstr(text, " counter=perf_AMD_EPYC"));
    snprintf(json, sizeof json, form, "-O2", ", \"instructions\": \"perf AMD EPYC\"");
    write_text("built/run.json", json);
    pb_exact_key_of(at("built"), "cpu-x-2c", &other);
    assert_false(pb_exact_keys_agree(&k, &other, "instructions"));
    assert_true(pb_exact_keys_agree(&k, &other, "held_peak"));
    snprintf(json, sizeof json, form, "-O3", "");
    write_text("built/run.json", json);
    pb_exact_key_of(at("built"), "cpu-x-2c", &other);
    assert_null(pb_exact_key_for(&other, "instructions"));
    assert_true(pb_exact_keys_agree(&k, &other, "held_peak"));
}

static void numbers_that_count_as_equal(void **state)
{
    const pb_exact_counter *launches = pb_exact_find("kernel_launches"), *x = pb_exact_find("instructions");
    (void)state;
    assert_true(pb_exact_same(launches, 65, 65));
    assert_false(pb_exact_same(launches, 65, 66));
    assert_false(pb_exact_same(launches, 1e9, 1e9 + 1));
    assert_true(pb_exact_same(x, 2000, 3000)); /* the allocator */
    assert_false(pb_exact_same(x, 2000, 3011));
    assert_true(pb_exact_same(x, 1e6, 1.005e6));
    assert_true(pb_exact_same(x, 1.005e6, 1e6));
    assert_false(pb_exact_same(x, 1e6, 1.0061e6));
    assert_false(pb_exact_same(x, 1.0061e6, 1e6));
}

static pb_status refused(int error, const char *paranoid)
{
    return pb_perf_refused("--instructions perf", "counter of instructions", "; another way", error, paranoid);
}

static void a_refused_counter_says_why(void **state)
{
    (void)state;
    assert_int_equal(refused(EACCES, "3"), PB_EUNSUPPORTED);
    assert_non_null(strstr(pb_error(), "the system forbids it"));
    assert_non_null(strstr(pb_error(), "kernel.perf_event_paranoid is 3"));
    assert_int_equal(refused(EPERM, NULL), PB_EUNSUPPORTED);
    assert_non_null(strstr(pb_error(), "kernel.perf_event_paranoid is unknown"));
    assert_int_equal(refused(ENOENT, "2"), PB_EUNSUPPORTED);
    assert_non_null(strstr(pb_error(), "this machine offers no counter of instructions"));
    assert_int_equal(refused(ENOSYS, "2"), PB_EUNSUPPORTED);
    assert_non_null(strstr(pb_error(), strerror(ENOSYS)));
    assert_non_null(strstr(pb_error(), "; another way"));
    assert_int_equal(pb_status_exit(PB_EUNSUPPORTED), 125);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_key_of_a_build),
        cmocka_unit_test(numbers_that_count_as_equal),
        cmocka_unit_test(a_refused_counter_says_why),
        cmocka_unit_test(only_a_rise_fails),
        cmocka_unit_test(other_kernels_are_shown),
        cmocka_unit_test(exact_keys_decide_what_gates),
        cmocka_unit_test(a_renewed_value_replaces_the_old_one),
        cmocka_unit_test(what_is_no_exact_number_is_left_out),
        cmocka_unit_test(a_median_of_calls_is_stored),
        cmocka_unit_test(an_accepted_rise_does_not_fail),
        cmocka_unit_test(a_wrong_accepted_csv_is_refused),
        cmocka_unit_test(lists_of_kernels),
        cmocka_unit_test(exact_keys),
    };
    return cmocka_run_group_tests(tests, open_root, close_root);
}
