/* stored_rule_simulation_test.c - simulates comparisons with stored sessions, including the confirmation, on three
 * classes of machines and on pools: counts how often unchanged code gets REGRESSED, and how often slower code does. The
 * verdicts are those of bench/compare/verdict.h.
 *
 *   stored_rule_simulation_test          checks the promises, and that docs/statistics.md has the tables
 *   stored_rule_simulation_test --table  prints the tables: all rates, and what the confirmation changes
 *
 * tests/bench/compare/simulated_sessions.h describes the noise. Seeds are fixed, so the results never vary. */
#include <math.h>

#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict.h"
#include "bench/stats/median.h"
#include "os/disk.h"
#include "tests/bench/compare/simulated_sessions.h"
#include "tests/test.h"

enum { CHANGED = 6, EFFECTS = 9, UNCHANGED = 3000, CHANGES = 600, REFERENCE = 3000 };

/* ---- the verdicts on a simulated comparison ------------------------------------------------------------ */

typedef struct outcome {
    bool beyond, regressed, suspect;       /* true for at least one row */
    bool changed_beyond, changed_reported; /* for the row CHANGED: beyond the bound in the run; reported at the end */
    double detects_row, detects_all;
} outcome;

static outcome judge_once(const scene *z, const machine *m, bool confirm)
{
    static const pb_gates gates = {1, {{"s", "step_time", "", 0.15, true}}};
    const pb_series_set base = {(pb_series *)z->base, SCENE_ROWS, NULL},
                        cand = {(pb_series *)z->cand, SCENE_ROWS, NULL};
    const pb_series_set again = {(pb_series *)z->again, SCENE_ROWS, NULL};
    const bool enough = m->sessions >= PB_STORED_SESSIONS && (m->hosts == 1 || m->hosts >= PB_STORED_HOSTS);
    pb_verdicts vs = {0};
    outcome o = {0};
    CHECK_OK(pb_judge(&base, &cand, &gates, NULL, &(pb_judge_opts){.confirmed = confirm ? &again : NULL}, &vs));
    CHECK_OK(pb_verdicts_decide(&vs));
    assert_int_equal(vs.n, SCENE_ROWS + 1);
    for (size_t i = 0; i < vs.n; i++) {
        const pb_verdict *v = &vs.v[i];
        const bool beyond =
            v->evidence.change > 0 && pb_stored_beyond(v->evidence.change, v->evidence.p_adjusted, PB_STORED_ALPHA);
        const bool reported = enough ? v->id == PB_VERDICT_REGRESSED : beyond && v->id == PB_VERDICT_SUSPECT;
        o.beyond |= beyond;
        o.regressed |= reported;
        o.suspect |= v->id == PB_VERDICT_SUSPECT || v->id == PB_VERDICT_REGRESSED;
        if (v->all_rows) o.detects_all = v->evidence.detects;
        else if (v->cand == &z->cand[CHANGED]) {
            o.detects_row = v->evidence.detects;
            o.changed_beyond = beyond;
            o.changed_reported = reported;
        }
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

/* ---- the table of rates in docs/statistics.md ---------------------------------------------------------- */

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
    int flagged[EFFECTS];           /* the same before the confirmation */
    double detects_row, detects_all;
} figures;

static figures simulate(const machine *m, uint64_t seed)
{
    static scene z, changed;
    static double row[UNCHANGED], all[UNCHANGED];
    source r = {seed, 0};
    figures f = {0};
    for (int t = 0; t < UNCHANGED; t++) {
        scene_draw(&r, m, &z);
        const outcome o = judge_scene(&z, m);
        f.beyond += o.beyond, f.regressed += o.regressed && m->sessions >= PB_STORED_SESSIONS, f.suspect += o.suspect;
        row[t] = o.detects_row, all[t] = o.detects_all;
        for (int e = 0; e < EFFECTS && t < CHANGES; e++) {
            changed = z;
            for (int i = 0; i < SCENE_ROWS; i++) {
                changed.base[i].session = changed.of_base[i];
                changed.cand[i].session = &changed.of_cand[i];
                changed.again[i].session = &changed.of_again[i];
            }
            scene_slow_down(&changed, effects[e].row, effects[e].by);
            const outcome c = judge_scene(&changed, m);
            f.found[e] += effects[e].row < 0 ? c.regressed : c.changed_reported;
            f.flagged[e] += effects[e].row < 0 ? c.beyond : c.changed_beyond;
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

/* Writes one line of the table of the confirmation: what n machines of one name show together. */
static void confirmation_line(const machine *m, const figures *f, int n, char *out, size_t size)
{
    const double percent = 100.0 / n / UNCHANGED;
    int beyond = 0, regressed = 0;
    for (int i = 0; i < n; i++) beyond += f[i].beyond, regressed += f[i].regressed;
    size_t used = (size_t)snprintf(out, size, "| %s | %.2f, %.2f %% |", m->name, percent * beyond, percent * regressed);
    for (int e = 0; e < EFFECTS; e++) {
        int flagged = 0, found = 0;
        for (int i = 0; i < n; i++) flagged += f[i].flagged[e], found += f[i].found[e];
        const bool first_of_all = e > 0 && effects[e].row < 0 && effects[e - 1].row >= 0;
        used += (size_t)snprintf(out + used, size - used, "%s %.0f, %.0f",
                                 first_of_all ? " |"
                                 : e          ? " /"
                                              : "",
                                 100.0 * flagged / n / CHANGES, 100.0 * found / n / CHANGES);
    }
    snprintf(out + used, size - used, " |");
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
static const char *const confirmation_head[] = {
    "| machine | unchanged: beyond, REGRESSED | one row slower by 10 / 20 / 30 / 50 / 100 %: beyond, REGRESSED | all "
    "rows slower by 10 / 20 / 30 / 50 %: beyond, REGRESSED |",
    "|---|--:|---|---|",
};
enum { HEAD = sizeof head / sizeof *head, CONFIRMATION_HEAD = sizeof confirmation_head / sizeof *confirmation_head };

/* The number of machines from `at` on that have the name of machines[at]. */
static int same_name(int at)
{
    int n = 0;
    while (at + n < MACHINES && strcmp(machines[at + n].name, machines[at].name) == 0) n++;
    return n;
}

/* Calls use(line, user) for each line of the table of the confirmation. Machines with fewer sessions than REGRESSED
 * needs are left out. */
static void each_confirmation_line(void (*use)(const char *line, void *user), void *user)
{
    const figures *f = all_figures();
    for (int i = 0; i < CONFIRMATION_HEAD; i++) use(confirmation_head[i], user);
    for (int i = 0; i < MACHINES; i++) {
        char line[256];
        if (machines[i].sessions < PB_STORED_SESSIONS) continue;
        confirmation_line(&machines[i], &f[i], same_name(i), line, sizeof line);
        use(line, user);
        i += same_name(i) - 1;
    }
}

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

/* ---- tests of the simulated rates ---------------------------------------------------------------------- */

/* At most 1 % of the runs of unchanged code have a REGRESSED row. About 1 % have a row beyond the bound before the
 * confirmation; if none had, the bound would be too wide to find changes. With fewer than five sessions no row is
 * REGRESSED (judge_once). */
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

/* With five or more sessions, slower code is found in at least `least` percent of the runs. */
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

/* `found` of CHANGES runs minus `percent` of REFERENCE runs, as shares, in standard errors of the difference; one run
 * more or less is no difference. */
static double distance(int found, double percent)
{
    const double p = percent / 100, q = (double)found / CHANGES, both = (p * REFERENCE + found) / (REFERENCE + CHANGES);
    const double away = fmax(fabs(q - p) - 1.0 / CHANGES, 0);
    return away > 0 ? copysign(away / sqrt(both * (1 - both) * (1.0 / CHANGES + 1.0 / REFERENCE)), q - p) : 0;
}

/* A slow row is found as often as by an independent implementation of the formulas, in numpy and scipy, on noise of the
 * same kind (scripts/fixtures/stored_rule_fixtures.py); code that is slower in all rows at least as often, because the
 * program adjusts the second measurement only for the rows that are measured again. */
static void found_as_by_the_formulas(void **state)
{
    const figures *f = all_figures();
    char line[256];
    int lines = 0;
    FILE *file = fopen(PB_SOURCE_DIR "/tests/fixtures/stored_rule.csv", "r");
    (void)state;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file)); /* the names of the columns */
    for (; fgets(line, sizeof line, file); lines++) {
        char *at = strchr(line, ',');
        const long sessions = strtol(at + 1, &at, 10);
        int i = 0;
        while (i < MACHINES &&
               (strncmp(line, machines[i].name, strcspn(line, ",")) != 0 || machines[i].sessions != sessions))
            i++;
        assert_true(i < MACHINES);
        for (int e = 0; e < EFFECTS; e++) {
            assert_int_equal(*at, ',');
            const double percent = strtod(at + 1, &at);
            const double d = distance(f[i].found[e], percent);
            if (!(d >= -4) || !(d <= 4 || effects[e].row < 0))
                fail_msg("%s, %ld sessions, effect %d: found in %d of %d runs, by the formulas in %g %%",
                         machines[i].name, sessions, e, f[i].found[e], CHANGES, percent);
        }
    }
    fclose(file);
    assert_int_equal(lines, 15);
}

/* On a host of one's own, the confirmation removes most false alarms and costs hardly any detection. In a pool the
 * candidate's host is the same in both measurements, so that nothing is promised there. */
static void the_confirmation_pays(void **state)
{
    const figures *f = all_figures();
    int beyond = 0, regressed = 0, flagged = 0, found = 0;
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        if (machines[i].sessions < PB_STORED_SESSIONS) continue;
        assert_true(f[i].regressed <= f[i].beyond);
        for (int e = 0; e < EFFECTS; e++) flagged += f[i].flagged[e], found += f[i].found[e];
        if (machines[i].hosts == 1) beyond += f[i].beyond, regressed += f[i].regressed;
    }
    if (3 * regressed > beyond) fail_msg("%d of %d false alarms are confirmed", regressed, beyond);
    if (100 * found < 98 * flagged) fail_msg("of %d changes beyond the bound %d are confirmed", flagged, found);
}

static void must_be_in(const char *line, void *text)
{
    if (!strstr(text, line))
        fail_msg("docs/statistics.md lacks this line; `stored_rule_simulation_test --table` prints the tables:\n%s",
                 line);
}

static void the_document_has_the_tables(void **state)
{
    char *bytes = NULL;
    size_t n = 0;
    (void)state;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, PB_SOURCE_DIR "/docs/statistics.md", 1 << 20, &bytes, &n));
    each_line(must_be_in, bytes);
    each_confirmation_line(must_be_in, bytes);
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
        cmocka_unit_test(false_alarms_are_rare),       cmocka_unit_test(slow_code_is_found),
        cmocka_unit_test(found_as_by_the_formulas),    cmocka_unit_test(the_confirmation_pays),
        cmocka_unit_test(the_document_has_the_tables),
    };
    if (argc == 2 && !strcmp(argv[1], "--table"))
        return each_line(print_line, NULL), puts(""), each_confirmation_line(print_line, NULL), 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
