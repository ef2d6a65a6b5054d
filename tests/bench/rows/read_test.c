/* read_test.c - tests of the reader of results.csv: which files it accepts, and which line an error message names. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/compare/gates.h"
#include "bench/rows/row.h"
#include "bench/rows/write_csv.h"
#include "bench/compare/soft_differences.h"
#include "os/draft.h"
#include "os/text.h"
#include "tests/bench/files_test.h"
#include "tests/fuzz/read_bytes.h"

#define HEADER "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note\n"
#define LINE(process, key, metric, value, status, note)                                                                \
    "1,r1,m1," process "," key "," metric "," value ",10," status "," note "\n"
#define TIME  "backward_time,s,lower"
#define GOOD  LINE("0", "backward/step?batch=1", TIME, "0.5", "ok", "")
#define GOOD2 LINE("1", "backward/step?batch=1", TIME, "0.6", "ok", "")

static pb_status parse(const char *text, pb_table *t) { return pb_table_parse("f.csv", text, strlen(text), t); }

static void fields_are_read_as_written(void **state)
{
    pb_table t;
    (void)state;
    CHECK_OK(
        parse(HEADER GOOD LINE("2", "\"a/b\"", "\"my \"\"x\"\"\",1,none", "", "failed", "\"one,\ntwo\x1b[2J\""), &t));
    assert_int_equal(t.n, 2);
    assert_string_equal(t.rows[0].key, "backward/step?batch=1");
    assert_true(t.rows[0].value == 0.5 && t.rows[0].samples == 10 && t.rows[0].process == 0);
    assert_string_equal(t.rows[1].metric, "my \"x\"");
    /* control characters were removed, so that the note stays on one line */
    assert_string_equal(t.rows[1].note, "one, two [2J");
    assert_true(isnan(t.rows[1].value) && t.rows[1].process == 2);
    assert_ptr_equal(t.rows[0].run_id, t.rows[1].run_id);
    assert_true(t.ignored == 0 && !*t.rows[1].commit); /* files of older programs have no column commit */
    pb_table_free(&t);
}

static void header_order_extra_columns_bom_and_crlf_do_not_matter(void **state)
{
    pb_table t;
    (void)state;
    CHECK_OK(
        parse("\xef\xbb\xbfnote,extra,commit,status,samples,value,better,unit,metric,key,process,machine_id,run_id,"
              "bench_version,\r\n\r\nn,\"x\ny\",1234abcd,ok,3,1e-3,lower,s,backward_time,a/b,7,m,r,1,\r\n\n",
              &t));
    assert_int_equal(t.n, 1);
    assert_int_equal(t.ignored, 2);
    assert_true(t.rows[0].value == 1e-3 && t.rows[0].process == 7 && t.rows[0].samples == 3);
    assert_true(!strcmp(t.rows[0].note, "n") && !strcmp(t.rows[0].commit, "1234abcd"));
    pb_table_free(&t);
}

/* Only names of columns, metrics and axes are translated. Axis values and notes with the same words are unchanged. */
static void rows_of_version_1_get_the_present_names(void **state)
{
    static const struct {
        const char *key, *metric, *want_key, *want_metric;
    } old[] = {
        {"ceiling/launch", "launch_time,s,lower", "ceiling/kernel_launch", "kernel_launch_time"},
        {"ceiling/launcher", "launches,1,none", "ceiling/launcher", "kernel_launches"},
        {"attention/fwd?arm=dense&list=arm&seq=7", "floor_share,1,higher", "attention/fwd?list=arm&seq=7&variant=dense",
         "roofline_fraction"},
        {"attention/fwd?arm=dense&list=arm&seq=7", "waits,1,none", "attention/fwd?list=arm&seq=7&variant=dense",
         "host_syncs"},
        {"contract/BAR-SHARE?op=x", "contract,1,none", "requirement/SPEED-ROOFLINE?op=x", "requirement"},
        {"contract/BAR-XENT", "contract,1,none", "requirement/SPEED-XENT", "requirement"},
        {"contract/NVTX-RANGE", "contract,1,none", "requirement/NVTX-RANGE", "requirement"},
    };
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "bench_version,run_id,machine_id,launch,key,metric,unit,better,value,samples,"
                     "status,note\n");
    pb_table t;
    (void)state;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "1,r,m,4,%s,%s,1,0,ok,launches\n", old[i].key, old[i].metric);
    snprintf(text + n, sizeof text - (size_t)n, "nvbench,r,m,4,a/b?arm=1,waits,1,none,1,0,ok,\n");
    CHECK_OK(parse(text, &t));
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        assert_string_equal(t.rows[i].key, old[i].want_key);
        assert_string_equal(t.rows[i].metric, old[i].want_metric);
        assert_string_equal(t.rows[i].bench_version, PB_BENCH_VERSION);
        assert_string_equal(t.rows[i].note, "launches");
        assert_int_equal(t.rows[i].process, 4);
    }
    const pb_row *foreign =
        &t.rows[sizeof old / sizeof *old]; /* an imported row: names of other tools are not translated */
    assert_string_equal(foreign->key, "a/b?arm=1");
    assert_string_equal(foreign->metric, "waits");
    pb_table_free(&t);
    CHECK_FAILS(parse(HEADER "1,r,m,0,a/b,launches,1,none,1,0,ok,\n2,r,m,0,a/b,kernel_launches,1,none,1,0,ok,\n", &t),
                PB_EINVAL, "f.csv:3: process 0 has a second kernel_launches");
}

static void every_status_comes_back(void **state)
{
    static const char *const names[] = {"ok",        "throttled", "pass",    "unsupported", "profiled",
                                        "truncated", "failed",    "timeout", "wrong",       "fail"};
    (void)state;
    for (int i = 0; i < PB_ROW_STATUSES; i++) {
        pb_row row = {"1", "r", "m", 0, "a/b", "backward_time", "s", "lower", 1, 5, (pb_row_status)i, ""};
        capture c;
        pb_table t;
        capture_begin(&c);
        pb_csv_header(c.f);
        pb_csv_row(c.f, &row);
        capture_end(&c);
        CHECK_OK(pb_table_parse("w.csv", c.text, c.n, &t));
        assert_int_equal(t.rows[0].status, i);
        assert_string_equal(pb_row_status_name(t.rows[0].status), names[i]);
        assert_non_null(strstr(c.text, names[i]));
        free(c.text);
        pb_table_free(&t);
    }
}

static void a_series_has_the_most_severe_status(void **state)
{
    (void)state;
    for (int i = 0; i < PB_ROW_STATUSES * PB_ROW_STATUSES; i++) {
        const pb_row_status a = (pb_row_status)(i / PB_ROW_STATUSES), b = (pb_row_status)(i % PB_ROW_STATUSES);
        pb_row rows[2] = {{"1", "r", "m", 0, "a/b", "backward_time", "s", "lower", 1, 5, a, "of the first"}};
        rows[1] = rows[0]; /* equal strings of a table are one pointer */
        rows[1].process = 1, rows[1].status = b, rows[1].note = "of the second";
        pb_series_set set;
        CHECK_OK(pb_series_make(&(pb_table){.rows = rows, .n = 2}, &set));
        assert_int_equal(set.n, 1);
        /* The worse status of the two rows is that of the series, except that a throttled row never decides. */
        const bool second = a == PB_ROW_THROTTLED || (b != PB_ROW_THROTTLED && b > a);
        assert_int_equal(set.s[0].status, second ? b : a);
        if (a != b) assert_string_equal(set.s[0].note, second ? "of the second" : "of the first");
        pb_series_free(&set);
    }
}

static void written_rows_are_read_back_unchanged(void **state)
{
    pb_row row = {"1", "r,1",   "m\"1",      2, "a/b?c=d", "backward_time",
                  "s", "lower", 0.123456789, 5, PB_ROW_OK, "a \"b\",\nc"};
    capture c;
    pb_table t;
    (void)state;
    capture_begin(&c);
    pb_csv_header(c.f);
    pb_csv_row(c.f, &row);
    row.process = 3, row.value = (double)NAN, row.status = PB_ROW_FAILED;
    pb_csv_row(c.f, &row);
    capture_end(&c);
    CHECK_OK(pb_table_parse("w.csv", c.text, c.n, &t));
    assert_int_equal(t.n, 2);
    assert_true(t.rows[0].value == 0.123456789 && isnan(t.rows[1].value));
    assert_string_equal(t.rows[0].run_id, "r,1");
    assert_string_equal(t.rows[0].machine_id, "m\"1");
    pb_table_free(&t);
    free(c.text);
}

static void every_fault_gives_one_line_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *why;
    } faults[] = {
        {"", "f.csv:1: the file is empty"},
        {"\n\n", "no header"},
        {"bench_version,run_id\n", "f.csv:1: the header lacks the column machine_id"},
        {"run_id," HEADER, "f.csv:1: two columns are called run_id"},
        {HEADER "1,r1,m1\n", "f.csv:2: 3 fields where the header has 12"},
        {HEADER GOOD "1,r1,m1,0,a/b,x,s,lower,1,1,ok,,more\n", "f.csv:3: 13 fields"},
        {HEADER GOOD "1,r1,m1,0", "f.csv:3: cut off"},
        {HEADER GOOD LINE("1", "a/b", TIME, "\"2", "ok", "") GOOD2, "f.csv:3: "},
        {HEADER GOOD LINE("1", "a/b", TIME, "2", "ok", "\"open"), "f.csv:3: a quote that opens here is never closed"},
        {HEADER LINE("0", "a/b", TIME, "2\"2", "ok", ""), "f.csv:2: a quote out of place"},
        {HEADER LINE("0", "a/b", TIME, "nan", "ok", ""), "f.csv:2: value is not a finite number: nan"},
        {HEADER LINE("0", "a/b", TIME, "-inf", "ok", ""), "value is not a finite number"},
        {HEADER LINE("0", "a/b", TIME, "1e400", "ok", ""), "value is not a finite number"},
        {HEADER LINE("0", "a/b", TIME, "1.5x", "ok", ""), "value is not a finite number: 1.5x"},
        {HEADER LINE("0", "a/b", TIME, "1,5", "ok", ""), "13 fields"},
        {HEADER LINE("0.5", "a/b", TIME, "1", "ok", ""), "process is not a whole number"},
        {HEADER LINE("-1", "a/b", TIME, "1", "ok", ""), "process is not a whole number"},
        {HEADER LINE("", "a/b", TIME, "1", "ok", ""), "process is not a whole number"},
        {HEADER LINE("99999999999999999999", "a/b", TIME, "1", "ok", ""), "process is not a whole number"},
        {HEADER LINE("0", "a/b", TIME, "", "ok", ""), "f.csv:2: status ok without a value"},
        {HEADER LINE("0", "a/b", TIME, "1", "fine", ""), "no such status: fine"},
        {HEADER LINE("0", "a/b", "x,s,up", "1", "ok", ""), "better is lower, higher or none, not up"},
        {HEADER LINE("0", "a/b", "backward_time,ms,lower", "1", "ok", ""), "backward_time is in s, not in ms"},
        {HEADER LINE("0", "a/b", "backward_time,s,higher", "1", "ok", ""),
         "better of backward_time is lower, not higher"},
        {HEADER LINE("0", "nokey", TIME, "1", "ok", ""), "f.csv:2: not a key: nokey"},
        {HEADER LINE("0", "a/b?x", TIME, "1", "ok", ""), "not a key"},
        {HEADER LINE("0", "a/b\tc", TIME, "1", "ok", ""), "a control character in the column key"},
        {HEADER LINE("0",
                     "a/b\xc2\x9b"
                     "2J",
                     TIME, "1", "ok", ""),
         "a control character in the column key"},
        {HEADER LINE("0", "", TIME, "1", "ok", ""), "not a key"},
        {HEADER "1,,m1,0,a/b,x,s,lower,1,1,ok,\n", "no run_id"},
        {HEADER GOOD GOOD2 GOOD, "f.csv:4: process 0 has a second backward_time of backward/step?batch=1"},
        {HEADER LINE("0", "a/b", "\"x\ny\",s,lower", "1", "ok", ""),
         "f.csv:2: a control character in the column metric"},
        {HEADER LINE("0", "a/b", TIME, "1", "failed", "\"two\nlines\"") LINE("0", "c", TIME, "1", "ok", ""),
         "f.csv:4: "},
    };
    pb_table t;
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (parse(faults[i].text, &t) != PB_EINVAL) fail_msg("let in: %s", faults[i].text);
        if (!strstr(pb_error(), faults[i].why)) fail_msg("'%s' does not say '%s'", pb_error(), faults[i].why);
        if (strchr(pb_error(), '\n') || t.rows || t.strings)
            fail_msg("not one line, or something left: %s", pb_error());
    }
    CHECK_FAILS(pb_table_parse("n.csv", HEADER "1\0,", sizeof HEADER + 2, &t), PB_EINVAL, "n.csv:2: a NUL byte");
    CHECK_FAILS(pb_table_read("/no/such", &t), PB_EPATH, "/no/such: No such file");
    CHECK_FAILS(pb_table_read(PB_SOURCE_DIR "/tests/", &t), PB_EPATH, "tests//results.csv: No such file");
}

/* Every error of the reader of gates.csv is one line that names the file's line and has no control characters. */
static void faults_in_gates_csv_are_reported(void **state)
{
    static const char head[] = "suite,metric,better,stored_limit,ceiling,gating\n";
    static const struct {
        const char *text;
        size_t n; /* number of bytes; 0: up to the terminating zero */
        const char *why;
    } faults[] = {
        {"", 0, "g.csv:1: the file is empty"},
        {"a,b\n", 0, "g.csv:1: a line must have six fields"},
        {"b\x1b[2J,step_time,lower,0.1,,yes\n", 0, "g.csv:2: a control character in the column suite"},
        {"b\xc2\x9b"
         "2J,step_time,lower,0.1,,yes\n",
         0, "a control character in the column suite"},
        {"b,step_time,lower,0.1,,yes\0\n", 28, "a control character in the column gating"},
        {"b,step_time,lower,0.1,,yes\0no\n", 30, "a control character in the column gating"},
        {"b,step_time,lower,0.1\x1b[31m,,yes\n", 0, "a control character in the column stored_limit"},
        {"b,nonsense,lower,0.1,,yes\n", 0, "g.csv:2: unknown metric (see bench list metrics): nonsense"},
    };
    pb_gates gates;
    char text[256];
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const size_t at = i > 1 ? sizeof head - 1 : 0, n = faults[i].n ? faults[i].n : strlen(faults[i].text);
        memcpy(text, head, at);
        memcpy(text + at, faults[i].text, n);
        CHECK_FAILS(pb_gates_parse("g.csv", text, at + n, &gates), PB_EINVAL, faults[i].why);
        assert_true(pb_is_printable(pb_error()));
    }
    CHECK_FAILS(pb_gates_read("/no/such", &gates), PB_EPATH, "(this file says which metrics gate)");
    CHECK_FAILS(pb_gates_read("/dev/zero", &gates), PB_EPATH, "/dev/zero");
}

/* Opening a FIFO must not wait for a writer. */
static void a_fifo_is_refused(void **state)
{
    char folder[] = "/tmp/pb_read_XXXXXX", path[64];
    pb_gates gates;
    pb_table t;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(pb_gates_read(path, &gates), PB_EPATH, "fifo");
    CHECK_FAILS(pb_table_read(path, &t), PB_EPATH, "fifo");
    unlink(path);
    rmdir(folder);
}

static void write_run_json(const char *folder, const char *governor)
{
    char path[128], text[256];
    snprintf(path, sizeof path, "%.60s/run.json", folder);
    snprintf(text, sizeof text, "{\"fingerprint\": {\"soft\": {\"cpu\\u001b[2Jgovernor\": \"%s\"}}}", governor);
    CHECK_OK(pb_file_replace(path, text, strlen(text)));
}

static void control_characters_of_run_json_are_not_printed(void **state)
{
    char folder[2][32] = {"/tmp/pb_read_XXXXXX", "/tmp/pb_read_XXXXXX"}, path[128];
    capture c;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_non_null(mkdtemp(folder[i]));
        write_run_json(folder[i], i ? "\\u001b]0;owned\\u0007 \\u009b2J \\u007f" : "quiet");
    }
    pb_soft_differences(folder[0], folder[1], capture_begin(&c));
    assert_string_equal(capture_end(&c), "note: cpu?[2Jgovernor differs: quiet -> ?]0;owned? ??2J ?\n");
    free(c.text);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/run.json", folder[i]);
        unlink(path);
        rmdir(folder[i]);
    }
}

/* Writes a folder with the rows of two processes (file `name`) and processes.csv (text `processes`), and reads the
 * rows. */
static void read_throttled(const char *name, const char *processes, pb_table *t)
{
    static const char rows[] = HEADER GOOD GOOD2 LINE("1", "a/b", TIME, "1", "ok", "a note")
        LINE("1", "requirement/T-1", "requirement,1,none", "1", "pass", "seen")
            LINE("1", "a/c", "outcome,1,none", "", "failed", "x");
    char folder[] = "/tmp/pb_read_XXXXXX", path[2][64];
    assert_non_null(mkdtemp(folder));
    snprintf(path[0], sizeof path[0], "%s/%s", folder, name);
    snprintf(path[1], sizeof path[1], "%s/processes.csv", folder);
    CHECK_OK(pb_file_create(path[0], rows, sizeof rows - 1));
    CHECK_OK(pb_file_create(path[1], processes, strlen(processes)));
    CHECK_OK(pb_table_read(strcmp(name, "results.csv") ? path[0] : folder, t));
    for (int i = 0; i < 2; i++) unlink(path[i]);
    rmdir(folder);
    assert_int_equal(t->n, 5);
    assert_int_equal(t->rows[0].status, PB_ROW_OK);
    assert_string_equal(t->rows[0].note, "");
    assert_int_equal(t->rows[4].status, PB_ROW_FAILED);
    assert_string_equal(t->rows[4].note, "x");
}

#define PROCESSES "process,start_utc,seconds,outcome,retry_of,reason\n0,2026-01-31T12:00:00Z,1.5,ok,,\n"

static void rows_of_a_throttled_process_say_so(void **state)
{
    static const char throttled[] = PROCESSES "1,,2,throttled,,\"hw_slowdown, cpu_thermal (measured again)\"\n2,,";
    static const char why[] = "throttled: hw_slowdown, cpu_thermal (measured again)";
    char both[128];
    pb_table t;
    (void)state;
    read_throttled("results.csv", throttled, &t);
    for (int i = 1; i < 3; i++) assert_int_equal(t.rows[i].status, PB_ROW_THROTTLED);
    assert_string_equal(t.rows[1].note, why);
    assert_ptr_equal(t.rows[1].status, t.rows[2].status); /* interned */
    snprintf(both, sizeof both, "%s; a note", why);
    assert_string_equal(t.rows[2].note, both);
    assert_int_equal(t.rows[3].status, PB_ROW_PASS); /* throttling affects times, not the result of a requirement */
    snprintf(both, sizeof both, "%s; seen", why);
    assert_string_equal(t.rows[3].note, both);
    pb_table_free(&t);
    /* The last row of process 1 in processes.csv counts, so it was not throttled. A file with another name than
     * results.csv ignores processes.csv. */
    read_throttled("results.csv", PROCESSES "1,,2,interrupted,,Interrupt\n1,,2,ok,,\n", &t);
    for (int i = 1; i < 3; i++) assert_int_equal(t.rows[i].status, PB_ROW_OK);
    pb_table_free(&t);
    read_throttled("other.csv", throttled, &t);
    for (int i = 1; i < 3; i++) assert_int_equal(t.rows[i].status, PB_ROW_OK);
    pb_table_free(&t);
}

/* An unclosed quote makes the rest of the file one field. It must not need megabytes of memory or give a message of
 * that size. */
static void oversized_fields_are_refused(void **state)
{
    enum { N = 8 << 20 };
    char *text = malloc(N);
    pb_table t;
    (void)state;
    for (int variant = 0; variant < 3; variant++) {
        memset(text, variant == 2 ? '\n' : 'x', N);
        int n = snprintf(text, N, "%s", variant ? HEADER "1,\"r1" : "");
        text[n] = 'y';
        CHECK_FAILS(pb_table_parse("big.csv", text, N, &t), PB_EINVAL, "more than 64 KiB");
        assert_true(strlen(pb_error()) < 200);
    }
    memset(text, ',', N);
    CHECK_FAILS(pb_table_parse("big.csv", text, N, &t), PB_EINVAL, "more than 256 columns");
    free(text);
}

/* A read buffer can end at any byte; the result must not depend on it. */
static void files_larger_than_a_block_are_read_completely(void **state)
{
    char path[] = "/tmp/pb_read_XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "wb");
    pb_table t;
    (void)state;
    assert_non_null(f);
    fputs(HEADER, f);
    for (int i = 0; i < 5000; i++)
        fprintf(f, "1,r1,m1,%d,a/b,backward_time,s,lower,%d.5,1,ok,\"%*s\"\n", i, i, i % 97, "");
    fclose(f);
    CHECK_OK(pb_table_read(path, &t));
    remove(path);
    assert_int_equal(t.n, 5000);
    for (int i = 0; i < 5000; i++) {
        assert_true(t.rows[i].process == i && t.rows[i].value == i + 0.5);
        assert_int_equal(strlen(t.rows[i].note), i % 97);
    }
    pb_table_free(&t);
}

static bool reads_results(const void *bytes, size_t n) { return pb_read_bytes(bytes, n); }

static bool reads_gates(const void *bytes, size_t n)
{
    pb_gates gates;
    return pb_gates_parse("gates.csv", bytes, n, &gates) == PB_OK;
}

/* Reads a corpus whose file names begin with "good" or "bad" and checks the outcome. Returns the number of files. */
static int judge_corpus(const char *folder, bool (*reads)(const void *bytes, size_t n))
{
    static char bytes[1 << 20];
    char path[1024];
    int seen = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%.800s/%.200s", folder, e->d_name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        bool good = !strncmp(e->d_name, "good", 4);
        if (reads(bytes, n) != good) fail_msg("%s was %s", e->d_name, good ? "refused" : "let in");
        seen++;
    }
    closedir(d);
    return seen;
}

static void fuzzing_corpora_are_accepted_or_refused(void **state)
{
    (void)state;
    assert_true(judge_corpus(PB_SOURCE_DIR "/tests/fuzz/corpus", reads_results) >= 20);
    assert_true(judge_corpus(PB_SOURCE_DIR "/tests/fuzz/corpus_gates", reads_gates) >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_read_as_written),
        cmocka_unit_test(header_order_extra_columns_bom_and_crlf_do_not_matter),
        cmocka_unit_test(rows_of_version_1_get_the_present_names),
        cmocka_unit_test(every_status_comes_back),
        cmocka_unit_test(a_series_has_the_most_severe_status),
        cmocka_unit_test(written_rows_are_read_back_unchanged),
        cmocka_unit_test(every_fault_gives_one_line_with_file_and_line),
        cmocka_unit_test(faults_in_gates_csv_are_reported),
        cmocka_unit_test(a_fifo_is_refused),
        cmocka_unit_test(rows_of_a_throttled_process_say_so),
        cmocka_unit_test(control_characters_of_run_json_are_not_printed),
        cmocka_unit_test(oversized_fields_are_refused),
        cmocka_unit_test(files_larger_than_a_block_are_read_completely),
        cmocka_unit_test(fuzzing_corpora_are_accepted_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
