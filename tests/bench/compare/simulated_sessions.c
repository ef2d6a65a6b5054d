/* simulated_sessions.c - draws the values of simulated runs from a seeded source. */
#include "tests/bench/compare/simulated_sessions.h"

#include <math.h>
#include <stdio.h>

#include "bench/compare/stored_rule.h"
#include "bench/stats/median.h"
#include "kernels/engine/bind.h"

enum { SCENE_PROCESSES = 3 };

static double uniform(source *s) { return pb_uniform(s->seed, s->at++); }

static double gauss(source *s) /* Box-Muller */
{
    const double radius = sqrt(-2 * log(1 - uniform(s)));
    return radius * cos(6.283185307179586 * uniform(s));
}

/* Returns a random number: normal, but with probability 1/7 larger by 3 standard deviations; then scaled to mean 0 and
 * standard deviation 1. */
static double process_noise(source *s)
{
    const double share = 1.0 / 7, by = 3;
    const double slow = uniform(s) < share ? by : 0;
    return (gauss(s) + slow - share * by) / sqrt(1 + share * (1 - share) * by * by);
}

/* Draws the values of n processes of a row, and stores their median and scatter in *s and *session. */
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

/* Sets the keys of the rows: the first eight are four placebo pairs (mode eager and mode graph of one case); the others
 * are in no pair. */
static void name_rows(scene *z, const machine *m)
{
    for (int r = 0; r < SCENE_ROWS; r++) {
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
                                 .processes = SCENE_PROCESSES * m->sessions,
                                 .scatter = (double)NAN,
                                 .median = 1,
                                 .sessions = m->sessions,
                                 .session = z->of_base[r]};
        z->cand[r] = z->base[r];
        z->cand[r].run_id = "99";
    }
}

void scene_draw(source *r, const machine *m, scene *z)
{
    static const char *const run[SCENE_SESSIONS] = {
        "baseline:00", "baseline:01", "baseline:02", "baseline:03", "baseline:04", "baseline:05", "baseline:06",
        "baseline:07", "baseline:08", "baseline:09", "baseline:10", "baseline:11", "baseline:12", "baseline:13",
        "baseline:14", "baseline:15", "baseline:16", "baseline:17", "baseline:18", "baseline:19"};
    double offset[SCENE_SESSIONS + 1] = {0};
    const int hosts = m->hosts > 1 ? m->hosts : 1;
    name_rows(z, m);
    for (int h = 0; h <= hosts; h++) {
        offset[h] = m->host * gauss(r);
        snprintf(z->host[h], sizeof z->host[h], "%s/%08x", m->host_name, (unsigned)h);
    }
    const int mine = hosts > 1 ? hosts : 0; /* the candidate's host */
    for (int k = 0; k < m->sessions; k++) {
        const double level = offset[k % hosts] + m->session * gauss(r);
        for (int i = 0; i < SCENE_ROWS; i++) {
            pb_series unused;
            draw_processes(r, m, level, SCENE_PROCESSES, &unused, &z->of_base[i][k]);
            z->of_base[i][k].run_id = run[k];
            z->of_base[i][k].host = z->host[k % hosts];
        }
    }
    z->level = m->session * gauss(r);
    for (int i = 0; i < SCENE_ROWS; i++) {
        draw_processes(r, m, offset[mine] + z->level, SCENE_PROCESSES, &z->cand[i], &z->of_cand[i]);
        z->of_cand[i].run_id = "99";
        z->cand[i].host = z->of_cand[i].host = z->host[mine];
    }
    const double again = offset[mine] + 0.7 * z->level + sqrt(1 - 0.49) * m->session * gauss(r);
    for (int i = 0; i < SCENE_ROWS; i++) {
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

void scene_slow_down(scene *z, int row, double by)
{
    for (int i = 0; i < SCENE_ROWS; i++) {
        if (row >= 0 && i != row) continue;
        slow_down(&z->cand[i], &z->of_cand[i], by);
        slow_down(&z->again[i], &z->of_again[i], by);
    }
}
