/* profile.c - implements profile.h. */
#include "trace/profile.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trace/choose.h"
#include "trace/chrome_samples.h"
#include "trace/step_times.h"
#include "trace/manifest.h"
#include "trace/trigger.h"
#include "trace/writing.h"

struct pb_profile {
    const pb_disk *disk;
    pb_profile_options o;
    pb_profile_job job;
    pb_profile_steps steps;
    pb_chosen chosen;
    pb_topology alone; /* of a job without a topology */
    char out[PATH_MAX - 110], topology[64];
    time_t begun;
    long step;              /* steps of this process that have begun */
    pb_profile_phase phase; /* of the step that runs, or ran last */
    bool open, ends;        /* a window is open; it ends with this step */
    bool counting;          /* the ranges of this step are counted, because the next one begins to record */
    uint64_t ranges;        /* of the step that was counted last */
    double counted_s;       /* its begin (CLOCK_MONOTONIC), then its seconds */
    int64_t first, number;  /* of the window's steps; number of the current step */
    long length;            /* steps of the window */
    const char *name;       /* of the window that is open; NULL: none */
    pb_trigger trigger;
    bool gpu_open;
    pb_gpu_sampler *sampler; /* NULL: not open */
    bool sampling;           /* the window that is open is sampled */
    pb_status (*attached)(void *self);
    void *self;
    pb_trigger_request request; /* steps 0: none */
    char remark[512];
    double opening; /* seconds in which the training thread opened the current window */
    pb_step_times times;
    pb_writing w;
    json_t *windows; /* of the rank's file */
    pb_status status;
    char why[512]; /* of the first failure */
};

static double now_s(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_failure(pb_profile *p, pb_status s, const char *why)
{
    if (s == PB_OK || p->status != PB_OK) return;
    p->status = s;
    snprintf(p->why, sizeof p->why, "%s", why);
}

/* ---- folders and JSON files ---------------------------------------------------------------------- */

static pb_status need_new_folder(const char *out)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/manifest.json", out);
    if (stat(path, &st) == 0)
        return pb_fail(PB_EINVAL, "profile: %s holds traces of another run: give a new folder", out);
    return PB_OK;
}

static pb_status write_manifest(const pb_profile *p, bool ended, const pb_clock_report *clocks, size_t n)
{
    const pb_manifest m = {.disk = p->disk,
                           .out = p->out,
                           .program = p->job.program,
                           .version = p->job.version,
                           .libraries = p->job.libraries,
                           .topology = p->topology,
                           .trigger = p->o.trigger,
                           .chosen = &p->chosen,
                           .host = p->job.host,
                           .steps = &p->steps,
                           .begun = p->begun};
    return pb_manifest_write(&m, ended, clocks, n);
}

static pb_status make_folders(pb_profile *p)
{
    static const char *const folders[] = {"traces", "ranks", "records"};
    char path[PATH_MAX];
    PB_TRY(pb_profile_folder(p->disk, p->out));
    if (p->job.rank == 0) PB_TRY(need_new_folder(p->out));
    for (int i = 0; i < 2 + p->o.records; i++) {
        snprintf(path, sizeof path, "%s/%s", p->out, folders[i]);
        PB_TRY(pb_profile_folder(p->disk, path));
    }
    return p->job.rank == 0 ? write_manifest(p, false, NULL, 0) : PB_OK;
}

/* ---- the options --------------------------------------------------------------------------------- */

static pb_status prepare(pb_profile *p)
{
    if (!p->job.topology) {
        PB_TRY(pb_topology_parse(NULL, 1, &p->alone));
        p->job.topology = &p->alone;
    }
    PB_TRY(pb_choose_ranks(p->o.ranks, p->job.topology, p->job.node, &p->chosen));
    PB_TRY(pb_choose_steps(p->o.steps, &p->steps));
    if (!p->chosen.count) return PB_OK;
    if (strlen(p->o.out) >= sizeof p->out) return pb_fail(PB_EINVAL, "profile: the name of the folder is too long");
    snprintf(p->out, sizeof p->out, "%s", p->o.out);
    if (!p->o.limit) p->o.limit = (size_t)1 << 30;
    if (p->o.limit < PB_TRACE_LEAST)
        return pb_fail(PB_EINVAL, "profile: a trace of at most %zu bytes: need %d", p->o.limit, PB_TRACE_LEAST);
    pb_topology_text(p->job.topology, p->topology, sizeof p->topology);
    if (p->o.trigger) pb_trigger_open(p->disk, p->o.trigger, &p->trigger);
    p->windows = json_array();
    if (!p->windows) return pb_fail(PB_ENOMEM, "profile: no memory");
    return make_folders(p);
}

static void destroy(pb_profile *p)
{
    pb_chosen_free(&p->chosen);
    pb_chosen_free(&p->request.ranks);
    json_decref(p->windows);
    free(p);
}

/* Without samples, the GPU's work is still recorded. */
static void open_sampler(pb_profile *p)
{
    const pb_status s = pb_gpu_sampler_open(p->o.sampling, p->o.sampling_us, 0, &p->sampler);
    keep_failure(p, s, pb_error());
}

/* Attaches CUPTI. Without it, the ranges of the host are still recorded. */
static void attach(pb_profile *p)
{
    if (!p->o.gpu || p->gpu_open || p->o.no_traces) return;
    pb_status s = pb_gpu_open(p->o.gpu_limit, p->o.graphs);
    keep_failure(p, s, pb_error());
    p->o.gpu = p->gpu_open = s == PB_OK;
    if (s == PB_OK && p->o.sampling) open_sampler(p);
    if (s != PB_OK || !p->attached) return;
    s = p->attached(p->self);
    keep_failure(p, s, pb_error());
}

void pb_profile_on_attach(pb_profile *p, pb_status (*attached)(void *self), void *self)
{
    if (!p) return;
    p->attached = attached;
    p->self = self;
}

pb_status pb_profile_open(const pb_disk *d, const pb_profile_options *o, const pb_profile_job *job, char *why,
                          pb_profile **out)
{
    *out = NULL;
    pb_profile *p = calloc(1, sizeof *p);
    if (!p) return pb_fail(PB_ENOMEM, "profile: no memory");
    p->disk = d;
    p->begun = time(NULL);
    p->o = *o;
    p->job = *job;
    const pb_status s = prepare(p);
    if (s == PB_OK) snprintf(why, sizeof p->chosen.why, "%s", p->chosen.why);
    if (s == PB_OK && p->chosen.count && p->chosen.rank[job->rank] && !(o->trigger && o->attach_late)) attach(p);
    if (s != PB_OK || !p->chosen.count) destroy(p);
    else *out = p;
    return s;
}

/* ---- windows ------------------------------------------------------------------------------------- */

/* Waits for the writing thread and notes what it did. */
static void finish_writing(pb_profile *p)
{
    const pb_status s = pb_writing_finish(&p->w, p->windows);
    keep_failure(p, s, pb_error());
}

static void begin_writing(pb_profile *p, bool truncated)
{
    pb_writing *w = &p->w;
    w->disk = p->disk;
    w->out = p->out;
    w->unit = p->o.unit ? p->o.unit : "step";
    w->last = p->first + p->length - 1;
    w->keeps_records = p->o.records;
    w->clocks = p->job.clocks;
    w->ranks = p->request.ranks;
    p->request.ranks = (pb_chosen){0};
    w->about = (pb_trace_about){.rank = p->job.rank,
                                .ranks = p->chosen.ranks,
                                .host = p->job.host ? p->job.host[p->job.rank] : "?",
                                .topology = p->topology,
                                .version = p->job.version,
                                .backend = p->job.backend,
                                .device = p->job.device,
                                .first_step = p->first,
                                .last_step = p->number,
                                .name = p->name,
                                .truncated = truncated,
                                .compared = p->job.clocks != NULL,
                                .expected = w->ranks.rank,
                                .limit = p->o.limit};
    w->opening = p->opening;
    w->sampler = p->sampling ? p->sampler : NULL;
    const pb_status s = pb_writing_begin(w);
    keep_failure(p, s, pb_error());
}

/* Sampling begins last and ends first, so that all samples are in the window. */
static void begin_sampling(pb_profile *p)
{
    const pb_status s = p->sampler ? pb_gpu_sampler_begin(p->sampler) : PB_OK;
    keep_failure(p, s, pb_error());
    p->sampling = p->sampler && s == PB_OK;
}

/* Samples that were taken before a failure are still written. */
static void end_sampling(pb_profile *p)
{
    const pb_status s = p->sampling ? pb_gpu_sampler_end(p->sampler) : PB_OK;
    keep_failure(p, s, pb_error());
}

static void open_window(pb_profile *p)
{
    const double start = now_s(CLOCK_MONOTONIC);
    finish_writing(p);
    attach(p);
    const pb_status s = pb_ring_start(&p->o.ring);
    keep_failure(p, s, pb_error());
    p->open = s == PB_OK;
    if (p->open && p->o.gpu) {
        const pb_status gpu = pb_gpu_begin();
        keep_failure(p, gpu, pb_error());
        p->w.gpu = gpu == PB_OK;
    }
    if (p->open) begin_sampling(p);
    pb_clocks_ask(p->job.clocks, 0, p->number);
    p->first = p->number;
    p->length = p->o.trigger ? p->request.steps : p->steps.active;
    p->name = NULL;
    p->opening = now_s(CLOCK_MONOTONIC) - start;
}

static void close_window(pb_profile *p, bool keep, bool truncated)
{
    const double start = now_s(CLOCK_MONOTONIC);
    end_sampling(p);
    if (p->w.gpu) {
        const pb_status gpu = pb_gpu_end();
        keep_failure(p, gpu, pb_error());
        p->w.gpu = gpu == PB_OK;
    }
    const pb_status s = pb_ring_stop(&p->w.window);
    if (keep) pb_clocks_ask(p->job.clocks, 1, p->first);
    p->open = false;
    keep_failure(p, s, pb_error());
    if (s != PB_OK) return;
    if (keep) begin_writing(p, truncated);
    else pb_ring_free(&p->w.window);
    p->w.closing = now_s(CLOCK_MONOTONIC) - start;
}

static pb_profile_phase phase_at(const pb_profile *p, long step)
{
    bool first, last;
    return pb_profile_phase_of(&p->steps, step, &first, &last);
}

/* ---- windows on demand --------------------------------------------------------------------------- */

static void drop_request(pb_profile *p)
{
    pb_chosen_free(&p->request.ranks);
    p->request.steps = 0;
}

/* Looks at the trigger file. A request that cannot be read is remarked, and forgotten. */
static void look_for_request(pb_profile *p)
{
    if (!pb_trigger_fired(&p->trigger)) return;
    pb_trigger_request *r = &p->request;
    const pb_status s =
        pb_trigger_read(&p->trigger, p->job.topology, p->job.node, &p->chosen, p->number, p->steps.active, r);
    if (s != PB_OK) snprintf(p->remark, sizeof p->remark, "profile: no window is opened: %s", pb_error());
    else
        snprintf(p->remark, sizeof p->remark, "profile: steps %" PRId64 "-%" PRId64 ", %s", r->first,
                 r->first + r->steps - 1, r->ranks.why);
}

static void begin_on_demand(pb_profile *p)
{
    *p->remark = 0;
    if (p->open) p->ends = p->number == p->first + p->length - 1;
    if (p->open || !p->chosen.rank[p->job.rank]) return;
    pb_trigger_request *r = &p->request;
    if (r->steps && p->number >= r->first + r->steps) drop_request(p); /* the window has ended */
    if (!r->steps) look_for_request(p);
    if (!r->steps || p->number != r->first || !r->ranks.rank[p->job.rank]) return;
    open_window(p);
    p->phase = PB_PROFILE_ON;
    p->ends = p->length == 1;
    if (!p->open) drop_request(p);
}

const char *pb_profile_remark(const pb_profile *p) { return p && *p->remark ? p->remark : NULL; }

void pb_profile_begin_step(pb_profile *p, int64_t number)
{
    bool first;
    if (!p) return;
    p->number = number;
    if (p->o.trigger) {
        begin_on_demand(p);
        return;
    }
    const bool after = p->ends;
    p->phase = pb_profile_phase_of(&p->steps, p->step++, &first, &p->ends);
    pb_step_times_begin(&p->times, p->phase != PB_PROFILE_OFF ? PB_STEP_recorded : after ? PB_STEP_after : PB_STEP_off);
    if (!p->chosen.rank[p->job.rank] || p->o.no_traces) return;
    p->counting = p->phase == PB_PROFILE_OFF && phase_at(p, p->step) != PB_PROFILE_OFF;
    if (p->counting) pb_ranges_count(true);
    if (p->counting) p->counted_s = now_s(CLOCK_MONOTONIC);
    if (p->phase == PB_PROFILE_OFF) return;
    if (first && p->open) close_window(p, false, false); /* the records of the warm-up */
    if (!p->open && (first || p->phase == PB_PROFILE_WARM)) open_window(p);
}

void pb_profile_name_window(pb_profile *p, const char *name)
{
    if (p) p->name = name;
}

void pb_profile_end_step(pb_profile *p)
{
    if (p && !p->o.trigger) pb_step_times_end(&p->times);
    if (p && p->open && p->ends) close_window(p, true, false);
    if (!p || !p->counting) return;
    p->counted_s = now_s(CLOCK_MONOTONIC) - p->counted_s;
    p->ranges = pb_ranges_counted();
    pb_ranges_count(false);
}

/* Bytes of JSON of the samples of a step. */
static double sample_bytes(const pb_profile *p)
{
    if (!p->sampler) return 0;
    return 1e6 * p->counted_s / p->o.sampling_us * p->o.sampling->metrics * PB_TRACE_SAMPLE_BYTES;
}

bool pb_profile_expects(const pb_profile *p, double kernels, pb_profile_expected *out)
{
    if (!p || !p->counting) return false;
    const bool warm = phase_at(p, p->step) == PB_PROFILE_WARM;
    const double steps = (double)p->steps.active, ranges = (double)p->ranges;
    const int64_t first = p->number + 1 + (warm ? p->steps.warmup : 0);
    const double json =
        steps * (ranges * PB_TRACE_RANGE_BYTES + (p->o.gpu ? kernels : 0) * PB_TRACE_KERNEL_BYTES + sample_bytes(p));
    *out = (pb_profile_expected){.first = first,
                                 .last = first + p->steps.active - 1,
                                 .ranges = ranges,
                                 .kernels = p->o.gpu ? kernels : 0,
                                 .json = json,
                                 .packed = json / PB_TRACE_PACKING,
                                 .cut = json > (double)p->o.limit,
                                 .overwrites = steps * ranges > (double)pb_ring_records(&p->o.ring)};
    return true;
}

pb_status pb_profile_close(pb_profile *p)
{
    char name[64];
    if (!p) return PB_OK;
    if (p->counting) pb_ranges_count(false);
    if (p->open) close_window(p, p->phase == PB_PROFILE_ON, true);
    finish_writing(p);
    pb_gpu_sampler_close(p->sampler);
    snprintf(name, sizeof name, "ranks/rank%d.json", p->job.rank);
    const bool chosen = p->chosen.rank[p->job.rank];
    const pb_status written =
        pb_profile_json(p->disk, p->out, name,
                        json_pack("{s:i, s:s, s:i, s:b, s:I, s:O, s:I, s:f, s:o}", "rank", p->job.rank, "host",
                                  p->job.host ? p->job.host[p->job.rank] : "?", "pid", (int)getpid(), "profiled",
                                  chosen, "ring_bytes", (json_int_t)(chosen ? pb_ring_bytes(&p->o.ring) : 0), "windows",
                                  p->windows, "trigger_looks", (json_int_t)p->trigger.looks, "trigger_s",
                                  p->trigger.seconds, "step_times", pb_step_times_json(&p->times)));
    keep_failure(p, written, pb_error());
    if (p->job.rank == 0) {
        const pb_clock_report *reports = NULL;
        const size_t n = p->job.clocks ? pb_clocks_reports(p->job.clocks, 2, &reports) : 0;
        const pb_status s = write_manifest(p, true, reports, n);
        keep_failure(p, s, pb_error());
    }
    const pb_status s = p->status;
    if (s != PB_OK) (void)pb_fail(s, "%s", p->why);
    destroy(p);
    return s;
}
