/* stored_rule_simulation_test.c - how often the rule for stored sessions is wrong, and what it finds, on three classes
 * of machines and on pools: seeded simulation of the whole verdict (bench/compare/verdict.h), with confirmation.
 *
 *   stored_rule_simulation_test          checks the promises, and that docs/statistics.md has the table
 *   stored_rule_simulation_test --table  prints the table
 *
 * The noise, in logarithms: every session has a part that all rows share, every process of a row a part of its own, and
 * every host of a pool an offset. One process in seven is in a slower mode, so the noise has a heavy right tail. A
 * confirmation, a minute later, shares 0.7 of the session's part. Seeds are fixed, so the results never vary. */
#include <math.h>

#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict.h"
#include "bench/stats/median.h"
#include "os/disk.h"
#include "tests/test.h"

enum { ROWS = 10, CHANGED = 6, PROCESSES = 3, MOST_SESSIONS = 20, EFFECTS = 9, UNCHANGED = 3000, CHANGES = 200 };

typedef struct source {
    uint64_t seed, at;
} source;

static double uniform(source *s) { return pb_uniform(s->seed, s->at++); }

static double gauss(source *s) /* Box-Muller */
{
    const double radius = sqrt(-2 * log(1 - uniform(s)));
    return radius * cos(6.283185307179586 * uniform(s));
}

/* Mean 0 and sd 1: normal, and in one of seven cases higher by 3 sd of that normal. */
static double process_noise(source *s)
{
    const double share = 1.0 / 7, by = 3;
    const double slow = uniform(s) < share ? by : 0;
    return (gauss(s) + slow - share * by) / sqrt(1 + share * (1 - share) * by * by);
}

/* sd of the part that all rows of a session share, of a process, and of a pool's hosts. */
typedef struct machine {
    const char *name;
    const char *host_name; /* what the column `host` has before the slash; "": a host of one's own */
    double session, process, host;
    int sessions, hosts; /* hosts 1: no pool */
} machine;

/* ---- one comparison -------------------------------------------------------------------------------- */

typedef struct scene {
    char key[ROWS][64], host[MOST_SESSIONS + 1][16];
    pb_session of_base[ROWS][MOST_SESSIONS], of_cand[ROWS], of_again[ROWS];
    pb_series base[ROWS], cand[ROWS], again[ROWS];
    double level; /* of the candidate's session and host */
} scene;

/* Draws n processes of a row into *s: their median and scatter. */
static void draw_processes(source *r, const machine *m, double level, int n, pb_series *s, pb_session *session)
{
    double x[6];
    long double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        x[i] = level + m->process * process_noise(r);
        sum += x[i];
    }
    for (int i = 0; i < n; i++) squares += (x[i] - sum / n) * (x[i] - sum / n);
    s->scatter = (double)(squares / (n - 1));
    s->processes = n;
    s->median = session->value = exp(pb_median(x, n));
    s->session = session;
    s->sessions = 1;
}

/* Eight rows are four placebo pairs; the others have no twin. */
static void name_rows(scene *z, const machine *m)
{
    for (int r = 0; r < ROWS; r++) {
        snprintf(z->key[r], sizeof z->key[r], r < 8 ? "s/step?batch=%d&mode=%s" : "s/step?batch=%d", r / 2 + r / 9,
                 r % 2 ? "graph" : "eager");
        z->base[r] = (pb_series){.key = z->key[r],
                                 .metric = "step_time",
                                 .unit = "s",
                                 .better = "lower",
                                 .machine_id = "cpu-m",
                                 .bench_version = PB_BENCH_VERSION,
                                 .run_id = "baseline:00",
                                 .status = PB_ROW_OK,
                                 .note = "",
                                 .processes = PROCESSES * m->sessions,
                                 .scatter = (double)NAN,
                                 .median = 1,
                                 .sessions = m->sessions,
                                 .session = z->of_base[r]};
        z->cand[r] = z->base[r];
        z->cand[r].run_id = "99";
    }
}

/* Draws the sessions and an unchanged candidate. In a pool its host is a new one. */
static void draw_scene(source *r, const machine *m, scene *z)
{
    static const char *const run[MOST_SESSIONS] = {
        "baseline:00", "baseline:01", "baseline:02", "baseline:03", "baseline:04", "baseline:05", "baseline:06",
        "baseline:07", "baseline:08", "baseline:09", "baseline:10", "baseline:11", "baseline:12", "baseline:13",
        "baseline:14", "baseline:15", "baseline:16", "baseline:17", "baseline:18", "baseline:19"};
    double offset[MOST_SESSIONS + 1] = {0};
    name_rows(z, m);
    for (int h = 0; h <= m->hosts; h++) {
        offset[h] = m->host * gauss(r);
        snprintf(z->host[h], sizeof z->host[h], "%s/%08x", m->host_name, (unsigned)h);
    }
    const int mine = m->hosts > 1 ? m->hosts : 0; /* the candidate's host */
    for (int k = 0; k < m->sessions; k++) {
        const double level = offset[k % m->hosts] + m->session * gauss(r);
        for (int i = 0; i < ROWS; i++) {
            pb_series unused;
            draw_processes(r, m, level, PROCESSES, &unused, &z->of_base[i][k]);
            z->of_base[i][k].run_id = run[k];
            z->of_base[i][k].host = z->host[k % m->hosts];
        }
    }
    z->level = m->session * gauss(r);
    for (int i = 0; i < ROWS; i++) {
        draw_processes(r, m, offset[mine] + z->level, PROCESSES, &z->cand[i], &z->of_cand[i]);
        z->of_cand[i].run_id = "99";
        z->cand[i].host = z->of_cand[i].host = z->host[mine];
    }
    const double again = offset[mine] + 0.7 * z->level + sqrt(1 - 0.49) * m->session * gauss(r);
    for (int i = 0; i < ROWS; i++) {
        z->again[i] = z->cand[i];
        draw_processes(r, m, again, PB_STORED_CONFIRM_PROCESSES, &z->again[i], &z->of_again[i]);
        z->of_again[i] = (pb_session){"99", z->of_again[i].value, z->host[mine]};
    }
}

static void slow_down(pb_series *s, pb_session *session, double by)
{
    s->median *= by;
    session->value *= by;
}

/* Makes the changed row slower, or all of them (row < 0), in the run and in the confirmation. */
static void change(scene *z, int row, double by)
{
    for (int i = 0; i < ROWS; i++) {
        if (row >= 0 && i != row) continue;
        slow_down(&z->cand[i], &z->of_cand[i], by);
        slow_down(&z->again[i], &z->of_again[i], by);
    }
}

/* ---- what the rule says of it ------------------------------------------------------------------------ */

typedef struct outcome {
    bool beyond, regressed, suspect, changed; /* any row; `changed`: the changed row is reported */
    double detects_row, detects_all;
} outcome;

static outcome judge_once(const scene *z, const machine *m, bool confirm)
{
    static const pb_gates gates = {1, {{"s", "step_time", "", 0.15, true}}};
    const pb_series_set base = {(pb_series *)z->base, ROWS, NULL}, cand = {(pb_series *)z->cand, ROWS, NULL};
    const pb_series_set again = {(pb_series *)z->again, ROWS, NULL};
    const bool enough = m->sessions >= PB_STORED_SESSIONS && (m->hosts == 1 || m->hosts >= PB_STORED_HOSTS);
    pb_verdicts vs = {0};
    outcome o = {0};
    CHECK_OK(pb_judge(&base, &cand, &gates, NULL, &(pb_judge_opts){.confirmed = confirm ? &again : NULL}, &vs));
    CHECK_OK(pb_verdicts_decide(&vs));
    assert_int_equal(vs.n, ROWS + 1);
    for (size_t i = 0; i < vs.n; i++) {
        const pb_verdict *v = &vs.v[i];
        const bool beyond =
            v->evidence.change > 0 && pb_stored_beyond(v->evidence.change, v->evidence.p_adjusted, PB_STORED_ALPHA);
        const bool reported = enough ? v->id == PB_VERDICT_REGRESSED : beyond && v->id == PB_VERDICT_SUSPECT;
        o.beyond |= beyond;
        o.regressed |= reported;
        o.suspect |= v->id == PB_VERDICT_SUSPECT || v->id == PB_VERDICT_REGRESSED;
        if (v->all_rows) o.detects_all = v->evidence.detects;
        else if (v->cand == &z->cand[CHANGED]) o.detects_row = v->evidence.detects, o.changed = reported;
        assert_true(enough || v->id != PB_VERDICT_REGRESSED);
        assert_true(confirm || v->id != PB_VERDICT_REGRESSED);
    }
    pb_verdicts_free(&vs);
    return o;
}

/* Judges as `bench` does: rows beyond the bound are measured again. */
static outcome judge_scene(const scene *z, const machine *m)
{
    const outcome first = judge_once(z, m, false);
    if (!first.beyond) return first;
    outcome o = judge_once(z, m, true);
    o.beyond = true;
    return o;
}

/* ---- the table --------------------------------------------------------------------------------------- */

static const machine machines[] = {
    {"busy VM", "vm", 0.054, 0.128, 0, 1, 1},
    {"busy VM", "vm", 0.054, 0.128, 0, 3, 1},
    {"busy VM", "vm", 0.054, 0.128, 0, 5, 1},
    {"busy VM", "vm", 0.054, 0.128, 0, 10, 1},
    {"busy VM", "vm", 0.054, 0.128, 0, 20, 1},
    {"quieter VM", "vm", 0.02, 0.04, 0, 1, 1},
    {"quieter VM", "vm", 0.02, 0.04, 0, 3, 1},
    {"quieter VM", "vm", 0.02, 0.04, 0, 5, 1},
    {"quieter VM", "vm", 0.02, 0.04, 0, 10, 1},
    {"quieter VM", "vm", 0.02, 0.04, 0, 20, 1},
    {"own metal", "", 0.004, 0.008, 0, 1, 1},
    {"own metal", "", 0.004, 0.008, 0, 3, 1},
    {"own metal", "", 0.004, 0.008, 0, 5, 1},
    {"own metal", "", 0.004, 0.008, 0, 10, 1},
    {"own metal", "", 0.004, 0.008, 0, 20, 1},
    {"pool, hosts differ by 10 %", "pool", 0.02, 0.04, 0.1, 5, 3},
    {"pool, hosts differ by 10 %", "pool", 0.02, 0.04, 0.1, 10, 5},
    {"pool, hosts differ by 10 %", "pool", 0.02, 0.04, 0.1, 20, 10},
    {"pool, hosts differ by 20 %", "pool", 0.02, 0.04, 0.2, 5, 3},
    {"pool, hosts differ by 20 %", "pool", 0.02, 0.04, 0.2, 10, 5},
    {"pool, hosts differ by 20 %", "pool", 0.02, 0.04, 0.2, 20, 10},
};
enum { MACHINES = sizeof machines / sizeof *machines };

static const struct {
    int row; /* < 0: all rows */
    double by;
} effects[EFFECTS] = {{CHANGED, 1.1}, {CHANGED, 1.2}, {CHANGED, 1.3}, {CHANGED, 1.5}, {CHANGED, 2},
                      {-1, 1.1},      {-1, 1.2},      {-1, 1.3},      {-1, 1.5}};

typedef struct figures {
    int beyond, regressed, suspect; /* of UNCHANGED runs */
    int found[EFFECTS];             /* of CHANGES runs each */
    double detects_row, detects_all;
} figures;

static figures simulate(const machine *m, uint64_t seed)
{
    static scene z, changed;
    static double row[UNCHANGED], all[UNCHANGED];
    source r = {seed, 0};
    figures f = {0};
    for (int t = 0; t < UNCHANGED; t++) {
        draw_scene(&r, m, &z);
        const outcome o = judge_scene(&z, m);
        f.beyond += o.beyond, f.regressed += o.regressed && m->sessions >= PB_STORED_SESSIONS, f.suspect += o.suspect;
        row[t] = o.detects_row, all[t] = o.detects_all;
        for (int e = 0; e < EFFECTS && t < CHANGES; e++) {
            changed = z;
            for (int i = 0; i < ROWS; i++) {
                changed.base[i].session = changed.of_base[i];
                changed.cand[i].session = &changed.of_cand[i];
                changed.again[i].session = &changed.of_again[i];
            }
            change(&changed, effects[e].row, effects[e].by);
            const outcome c = judge_scene(&changed, m);
            f.found[e] += effects[e].row < 0 ? c.regressed : c.changed;
        }
    }
    f.detects_row = pb_median(row, UNCHANGED), f.detects_all = pb_median(all, UNCHANGED);
    return f;
}

/* Writes one line of the table. */
static void table_line(const machine *m, const figures *f, char *out, size_t n)
{
    const double percent = 100.0 / UNCHANGED;
    size_t used = (size_t)snprintf(out, n, "| %s | %d", m->name, m->sessions);
    used += (size_t)snprintf(out + used, n - used, m->hosts > 1 ? " on %d hosts" : "", m->hosts);
    used += (size_t)snprintf(out + used, n - used, " | %.2f %% | ", percent * f->beyond);
    used += (size_t)snprintf(out + used, n - used, m->sessions < PB_STORED_SESSIONS ? "never" : "%.2f %%",
                             percent * f->regressed);
    used += (size_t)snprintf(out + used, n - used, " | %.0f %% |", percent * f->suspect);
    for (int e = 0; e < EFFECTS; e++)
        used += (size_t)snprintf(out + used, n - used, "%s %.0f",
                                 effects[e].row < 0 && e && effects[e - 1].row >= 0 ? " |"
                                 : e                                                ? " /"
                                                                                    : "",
                                 100.0 * f->found[e] / CHANGES);
    snprintf(out + used, n - used, " | %.0f / %.0f %% |", 100 * expm1(f->detects_row), 100 * expm1(f->detects_all));
}

static const figures *all_figures(void)
{
    static figures f[MACHINES];
    for (int i = 0; !(f[MACHINES - 1].detects_row > 0) && i < MACHINES; i++)
        f[i] = simulate(&machines[i], 100 + (uint64_t)i);
    return f;
}

static const char *const head[] = {
    "| machine | sessions | unchanged: beyond the bound | REGRESSED | SUSPECT | one row slower by 10 / 20 / 30 / 50 / "
    "100 % | "
    "all rows slower by 10 / 20 / 30 / 50 % | detectable: a row / all rows |",
    "|---|---|--:|--:|--:|---|---|--:|",
};
enum { HEAD = sizeof head / sizeof *head };

/* Calls use(line, user) for each line of the table. */
static void each_line(void (*use)(const char *line, void *user), void *user)
{
    const figures *f = all_figures();
    for (int i = 0; i < HEAD; i++) use(head[i], user);
    for (int i = 0; i < MACHINES; i++) {
        char line[256];
        table_line(&machines[i], &f[i], line, sizeof line);
        use(line, user);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------- */

/* At most 1 % of runs of unchanged code have a REGRESSED row, and about 1 % are beyond the bound before the confirmation:
 * a rule that never gives an alarm would be wrong too. Fewer than five sessions never say REGRESSED (judge_once). */
static void false_alarms_are_rare(void **state)
{
    const figures *f = all_figures();
    int beyond = 0;
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        if (f[i].regressed > UNCHANGED / 100) fail_msg("line %d: %d false alarms", i, f[i].regressed);
        if (f[i].beyond > UNCHANGED * 15 / 1000) fail_msg("line %d: %d beyond the bound", i, f[i].beyond);
        if (machines[i].sessions < PB_STORED_SESSIONS) assert_int_equal(f[i].regressed, 0);
        beyond += f[i].beyond;
    }
    assert_true(beyond > MACHINES * UNCHANGED / 400);
}

/* Changes that must be found, in percent of the runs in which they happened; from five sessions on. */
static void slow_code_is_found(void **state)
{
    static const struct {
        const char *machine;
        int effect, least;
    } promises[] = {
        {"busy VM", 4, 88},    {"busy VM", 8, 85},    {"quieter VM", 2, 95}, {"quieter VM", 1, 65},
        {"quieter VM", 6, 95}, {"quieter VM", 5, 40}, {"own metal", 0, 99},  {"own metal", 5, 99},
    };
    const figures *f = all_figures();
    (void)state;
    for (int i = 0; i < MACHINES; i++)
        for (size_t k = 0; k < sizeof promises / sizeof *promises; k++) {
            if (strcmp(promises[k].machine, machines[i].name) != 0 || machines[i].sessions < PB_STORED_SESSIONS)
                continue;
            const int found = f[i].found[promises[k].effect];
            if (100 * found < promises[k].least * CHANGES)
                fail_msg("line %d, effect %d: found in %d of %d runs", i, promises[k].effect, found, CHANGES);
        }
}

static void must_be_in(const char *line, void *text)
{
    if (!strstr(text, line))
        fail_msg("docs/statistics.md lacks this line; `stored_rule_simulation_test --table` prints the table:\n%s",
                 line);
}

static void the_document_has_the_table(void **state)
{
    char *bytes = NULL;
    size_t n = 0;
    (void)state;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, PB_SOURCE_DIR "/docs/statistics.md", 1 << 20, &bytes, &n));
    each_line(must_be_in, bytes);
    free(bytes);
}

static void print_line(const char *line, void *user)
{
    (void)user;
    puts(line);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(false_alarms_are_rare),
        cmocka_unit_test(slow_code_is_found),
        cmocka_unit_test(the_document_has_the_table),
    };
    if (argc == 2 && !strcmp(argv[1], "--table")) return each_line(print_line, NULL), 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
