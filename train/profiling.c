/* profiling.c - implements profiling.h. */
#include "train/profiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of each rank's host, and the number of the host: hosts are numbered by their lowest rank. */
static pb_status find_hosts(const pb_job *j, pb_profiling *p)
{
    int nodes = 0;
    p->node = calloc((size_t)j->ranks, sizeof *p->node);
    p->host = calloc((size_t)j->ranks, sizeof *p->host);
    if (!p->node || !p->host) return pb_fail(PB_ENOMEM, "profile: no memory for the names of %d hosts", j->ranks);
    for (int r = 0; r < j->ranks; r++) {
        p->host[r] = pb_world_member_of(j->o->world, r)->host;
        p->node[r] = -1;
        for (int other = 0; other < r && p->node[r] < 0; other++)
            if (strcmp(p->host[other], p->host[r]) == 0) p->node[r] = p->node[other];
        if (p->node[r] < 0) p->node[r] = nodes++;
    }
    return PB_OK;
}

/* The versions of the libraries that the device and the collectives use. */
static void find_libraries(const pb_job *j, pb_profiling *p)
{
    pb_device_facts f;
    char comm[100] = "", cuda[100] = "";
    if (pb_backend_facts(j->device, pb_job_device_number(j), &f) == PB_OK)
        snprintf(cuda, sizeof cuda, "CUDA driver %d.%d, CUDA runtime %d.%d, cuBLASLt %zu.%zu.%zu", f.driver / 1000,
                 f.driver / 10 % 100, f.runtime / 1000, f.runtime / 10 % 100, f.blas / 10000, f.blas / 100 % 100,
                 f.blas % 100);
    pb_comm_library(j->comm, comm, sizeof comm);
    snprintf(p->libraries, sizeof p->libraries, "%s%s%s", cuda, *cuda && *comm ? ", " : "", comm);
}

/* Whether the GPU lets this user sample is known only when CUPTI is attached. */
static pb_status find_sampling(const pb_job *j, pb_profiling *p)
{
    const pb_train_options *o = j->o;
    if (!o->profile_sampling) return PB_OK;
    PB_TRY(pb_group_find(o->profile_sampling, &p->sampling));
    if (!p->sampling.sampled)
        return pb_fail(PB_EINVAL,
                       "--profile-sampling %s: this group is counted, not sampled; give one such as TIMELINE",
                       o->profile_sampling);
    if (o->profile_sampling_interval < PB_SAMPLE_US_LEAST || o->profile_sampling_interval > PB_SAMPLE_US_MOST)
        return pb_fail(PB_EINVAL, "--profile-sampling-interval %ld: need %d to %d microseconds",
                       o->profile_sampling_interval, PB_SAMPLE_US_LEAST, PB_SAMPLE_US_MOST);
    if (o->profile_counters)
        return pb_fail(PB_EINVAL, "--profile-sampling and --profile-counters: a GPU counts for one of them; give one");
    if (j->device == PB_CPU)
        return pb_fail(PB_EINVAL, "--profile-sampling samples counters of a GPU: give --device cuda");
    return PB_OK;
}

static pb_status open_profile(const pb_job *j, const char *ranks, pb_profiling *p, char *why)
{
    p->topology = j->topology;
    PB_TRY(find_sampling(j, p));
    PB_TRY(find_hosts(j, p));
    find_libraries(j, p);
    if (j->device == PB_CPU) snprintf(p->device, sizeof p->device, "cpu");
    else snprintf(p->device, sizeof p->device, "%s:%d", pb_backend_name(j->device), pb_job_device_number(j));
    const pb_profile_job job = {.topology = &p->topology,
                                .rank = j->rank,
                                .node = p->node,
                                .host = p->host,
                                .program = "train",
                                .version = pb_train_commit(),
                                .libraries = *p->libraries ? p->libraries : NULL,
                                .backend = pb_backend_name(j->device),
                                .device = p->device,
                                .clocks = p->clocks};
    const char *records = getenv("PB_PROFILE_RECORDS");
    const pb_profile_options o = {.ranks = ranks,
                                  .steps = j->o->profile_steps,
                                  .out = j->o->profile_out,
                                  .trigger = j->o->profile_on_demand,
                                  .attach_late = strcmp(j->o->profile_attach, "window") == 0,
                                  .no_traces = j->o->profile_counters != NULL,
                                  .limit = (size_t)j->o->profile_limit << 20,
                                  .gpu = j->device != PB_CPU,
                                  .graphs = strcmp(j->o->profile_graphs, "graph") == 0 ? PB_GPU_GRAPHS_GRAPH
                                                                                       : PB_GPU_GRAPHS_NODE,
                                  .sampling = j->o->profile_sampling ? &p->sampling : NULL,
                                  .sampling_us = (int)j->o->profile_sampling_interval,
                                  .records = records && *records};
    PB_TRY(pb_choose_ranks(ranks, &p->topology, p->node, &p->chosen));
    PB_TRY(pb_choose_steps(o.steps, &p->steps));
    return pb_profile_open(&pb_disk_posix, &o, &job, why, &p->p);
}

const char *pb_profiling_ranks(const pb_job *j)
{
    const char *ranks = j->o->profile_ranks ? j->o->profile_ranks : getenv("PB_PROFILE_RANKS");
    return ranks && *ranks ? ranks : NULL;
}

/* The expected size of a window follows from the step before it. */
static const char *unknown_size(const pb_profiling *p)
{
    bool first, last;
    const pb_profile_phase begins = pb_profile_phase_of(&p->steps, 0, &first, &last);
    if (begins != PB_PROFILE_WARM && begins != PB_PROFILE_ON) return "";
    return "\nprofile: recording begins with the first step, so the size of its traces is not known; --profile-limit "
           "bounds it";
}

/* Checks that no option is given that has an effect only on ranks that are profiled. Which ranks these are may also be
 * given by an environment variable, so needs.def cannot say it. ranks: as pb_profiling_ranks() returns it. */
static pb_status check_options(const pb_train_options *o, const char *ranks)
{
    static const char *const options[] = {"profile_on_demand", "profile_counters", "profile_sampling",
                                          "profile_steps",     "profile_graphs",   "profile_limit",
                                          "profile_out",       "capture_tensors"};
    for (size_t i = 0; !ranks && i < sizeof options / sizeof *options; i++) {
        char text[PB_OPTION_TEXT];
        if (!pb_cli_changed(&pb_train_cli, o, options[i])) continue;
        pb_option_text(&(pb_option_info){.name = options[i]}, text, sizeof text);
        return pb_fail(PB_EINVAL, "%s needs --profile-ranks, such as --profile-ranks auto", text);
    }
    return PB_OK;
}

pb_status pb_profiling_check(const pb_job *j)
{
    const char *ranks = pb_profiling_ranks(j);
    PB_TRY(pb_world_same(j->o->world, "--profile-ranks or PB_PROFILE_RANKS", ranks ? ranks : "nothing"));
    return pb_job_agree(j, "the options of profiling", check_options(j->o, ranks));
}

pb_status pb_profiling_open(const pb_job *j, pb_profiling *out)
{
    char why[200] = "";
    const char *ranks = pb_profiling_ranks(j);
    *out = (pb_profiling){.on_demand = j->o->profile_on_demand != NULL};
    if (!ranks) return PB_OK;
    PB_TRY(pb_clocks_open(j->o->world, &out->clocks));
    PB_TRY(pb_job_agree(j, "the profile", open_profile(j, ranks, out, why)));
    if (!out->p) snprintf(out->why, sizeof out->why, "profile: %s", why);
    else if (j->o->profile_on_demand)
        snprintf(out->why, sizeof out->why, "profile: %s, whenever %s is changed, into %s", why,
                 j->o->profile_on_demand, j->o->profile_out);
    else
        snprintf(out->why, sizeof out->why, "profile: %s, steps %s, into %s%s", why, j->o->profile_steps,
                 j->o->profile_out, unknown_size(out));
    return PB_OK;
}

bool pb_profiling_expects(const pb_profiling *p, double launches, double replays, double nodes,
                          char out[PB_PROFILING_TEXT])
{
    pb_profile_expected e;
    char kernels[32] = "";
    if (!pb_profile_expects(p->p, launches + replays * (nodes - 1), &e)) return false;
    if (e.kernels > 0) snprintf(kernels, sizeof kernels, " and %.0f kernels", e.kernels);
    snprintf(
        out, PB_PROFILING_TEXT,
        "profile: steps %lld-%lld: %.0f ranges%s a step; the trace of a rank will have about %.3g MB of JSON, %.2g MB "
        "compressed%s%s",
        (long long)e.first, (long long)e.last, e.ranges, kernels, 1e-6 * e.json, 1e-6 * e.packed,
        e.cut ? "; --profile-limit will leave events out" : "",
        e.overwrites ? "; more ranges than the ring of a thread holds: the oldest may be lost" : "");
    return true;
}

long pb_profiling_first(const pb_profiling *p)
{
    return p->p && !p->on_demand ? p->steps.skip + p->steps.wait + p->steps.warmup : -1;
}

bool pb_profiling_chosen(const pb_profiling *p, int rank, long step)
{
    bool first, last;
    return p->p && p->chosen.rank[rank] && pb_profile_phase_of(&p->steps, step, &first, &last) == PB_PROFILE_ON;
}

pb_status pb_profiling_close(pb_profiling *p)
{
    const pb_status s = pb_profile_close(p->p);
    pb_clocks_close(p->clocks);
    pb_chosen_free(&p->chosen);
    free(p->node);
    free(p->host);
    *p = (pb_profiling){0};
    return s;
}
