/* step_counters.c - implements step_counters.h. */
#include "train/step_counters.h"

#include <stdio.h>
#include <string.h>

#include "os/draft.h"
#include "os/file.h"
#include "os/page.h"
#include "trace/gpu_counters.h"
#include "train/tensor_capture.h"

enum { PATH = 1024 };

/* Reads GROUP[:step|phase|op]. */
static pb_status read_option(const char *text, pb_step_counters *c)
{
    static const pb_range_kind kinds[] = {PB_RANGE_step, PB_RANGE_phase, PB_RANGE_op};
    char name[sizeof c->group.name + 1];
    const size_t n = strcspn(text, ":");
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    c->kind = PB_RANGE_step;
    PB_TRY(pb_group_find(name, &c->group));
    if (!text[n]) return PB_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(text + n + 1, pb_range_kinds[kinds[i]]) == 0) return c->kind = kinds[i], PB_OK;
    return pb_fail(PB_EINVAL, "--profile-counters %s: after the colon, give step, phase or op", text);
}

/* Whether the group can be counted in one pass is known without a GPU; whether the GPU lets this user count, only when
 * counting begins. */
static pb_status check_group(const pb_job *j, const pb_counter_group *g)
{
    int passes;
    if (pb_group_on_cpu(g))
        return pb_fail(PB_EINVAL, "--profile-counters: group %s is of a CPU; give one of a GPU, such as STEP", g->name);
    if (g->sampled)
        return pb_fail(PB_EINVAL, "--profile-counters: group %s is sampled: give it to --profile-sampling", g->name);
    if (j->device == PB_CPU) return pb_fail(PB_EINVAL, "--profile-counters counts events of a GPU: give --device cuda");
    const pb_status s = pb_gpu_counters_passes(g, &passes);
    if (s == PB_EINVAL) return s;
    if (s == PB_OK && passes > 1)
        return pb_fail(PB_EINVAL,
                       "--profile-counters: group %s needs %d passes on %s, and a step of training runs once: give a "
                       "group of one pass, such as STEP",
                       g->name, passes, g->chip);
    return PB_OK; /* what CUPTI itself lacks is said when counting begins */
}

static pb_status check(const pb_job *j, pb_step_counters *c)
{
    const pb_train_options *o = j->o;
    if (!o->profile_counters) return PB_OK;
    if (o->profile_on_demand) return pb_fail(PB_EINVAL, "--profile-counters needs a schedule, not --profile-on-demand");
    if (pb_tensor_capture_between_ops(j))
        return pb_fail(PB_EINVAL,
                       "--profile-counters and --capture-tensors with %s: both change how a step runs; give one",
                       o->capture_gradients ? "--capture-gradients" : "--recompute");
    PB_TRY(read_option(o->profile_counters, c));
    return check_group(j, &c->group);
}

pb_status pb_step_counters_check(const pb_job *j, pb_step_counters *out)
{
    *out = (pb_step_counters){0};
    return pb_job_agree(j, "the counters", check(j, out));
}

static pb_status make_folder(const pb_job *j)
{
    char folder[PATH];
    if (snprintf(folder, PATH, "%s/counters", j->o->profile_out) >= PATH / 2)
        return pb_fail(PB_EINVAL, "--profile-out: the path is longer than %d bytes", PATH / 2);
    return pb_make_folder(folder);
}

pb_status pb_step_counters_open(const pb_job *j, const pb_profiling *p, pb_step_counters *c)
{
    if (!j->o->profile_counters) return PB_OK;
    c->on = p->p != NULL;
    return pb_job_agree(j, "the folder of counters", c->on ? make_folder(j) : PB_OK);
}

/* Keeps the first failure, and returns it when it is the first. */
static pb_status keep(pb_step_counters *c, pb_status s)
{
    if (s == PB_OK || c->status != PB_OK) return PB_OK;
    c->status = s;
    snprintf(c->why, sizeof c->why, "%s", pb_error());
    pb_range_counts_close(c->counts);
    c->counts = NULL;
    return s;
}

pb_status pb_step_counters_begin(pb_step_counters *c, const pb_job *j, const pb_profiling *p, bool *eager)
{
    bool first, mine = false, any = false;
    if (!c->on) return PB_OK;
    for (int i = 0; i < j->ranks; i++) {
        const bool chosen = pb_profiling_chosen(p, i, c->steps);
        any |= chosen;
        if (i == j->rank) mine = chosen;
    }
    (void)pb_profile_phase_of(&p->steps, c->steps++, &first, &c->last);
    c->eager = any && c->kind != PB_RANGE_step;
    *eager |= c->eager;
    c->now = mine && c->status == PB_OK;
    if (!c->now) return PB_OK;
    pb_status s = c->counts ? PB_OK : pb_range_counts_open(&c->group, c->kind, &c->counts);
    if (s == PB_OK) s = pb_range_counts_begin(c->counts);
    c->now = s == PB_OK;
    return keep(c, s);
}

static pb_status write_step(const pb_step_counters *c, const pb_job *j, long number)
{
    char path[PATH];
    pb_page page;
    PB_TRY(pb_page_open(&page));
    pb_range_counts_head(c->counts, page.f);
    pb_range_counts_rows(c->counts, page.f, number, j->rank, j->graph && !c->eager ? "graph" : "eager");
    snprintf(path, PATH, "%s/counters/step%ld-rank%d.csv", j->o->profile_out, number, j->rank);
    return pb_page_save(&page, PB_OK, pb_file_replace, path);
}

pb_status pb_step_counters_end(pb_step_counters *c, const pb_job *j, long number)
{
    if (!c->now) return PB_OK;
    c->now = false;
    pb_status s = pb_range_counts_end(c->counts);
    if (s == PB_OK) s = write_step(c, j, number);
    if (s == PB_OK && c->last) pb_range_counts_release(c->counts);
    return keep(c, s);
}

pb_status pb_step_counters_close(pb_step_counters *c, pb_status s)
{
    if (s == PB_OK && c->status != PB_OK) s = pb_fail(c->status, "%s", c->why);
    pb_range_counts_close(c->counts);
    *c = (pb_step_counters){0};
    return s;
}
