/* profile.c - implements profile.h. */
#include "trace/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trace/choose.h"
#include "trace/chrome.h"
#include "trace/step_times.h"
#include "trace/manifest.h"
#include "trace/trigger.h"
#include "trace/window.h"

/* A window that has ended, and the thread that writes it. */
typedef struct writing {
    pthread_t thread;
    bool running;
    const pb_disk *disk;
    pb_ring_window window;
    bool gpu; /* the window has records of a GPU */
    pb_window_gpu of_gpu;
    pb_trace_about about;
    pb_chosen ranks; /* of a window on demand */
    pb_clocks *clocks;
    char path[PATH_MAX], records[PATH_MAX];
    pb_trace_size size;
    double seconds; /* CPU seconds of the thread */
    pb_status status;
    char why[512];
} writing;

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
    int64_t first, number;  /* of the window's steps; number of the current step */
    long length;            /* steps of the window */
    const char *name;       /* of the window that is open; NULL: none */
    pb_trigger trigger;
    bool gpu_open;
    pb_status (*attached)(void *self);
    void *self;
    pb_trigger_request request; /* steps 0: none */
    char remark[512];
    double opening, closing; /* seconds of the training thread in the current window */
    pb_step_times times;
    writing w;
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

static pb_status make_folder(const pb_disk *d, const char *path)
{
    if (d->mkdir(d->self, path) == 0 || errno == EEXIST) return PB_OK;
    return pb_fail_errno(errno, "profile: the folder %s cannot be made", path);
}

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
    PB_TRY(make_folder(p->disk, p->out));
    if (p->job.rank == 0) PB_TRY(need_new_folder(p->out));
    for (int i = 0; i < 2 + p->o.records; i++) {
        snprintf(path, sizeof path, "%s/%s", p->out, folders[i]);
        PB_TRY(make_folder(p->disk, path));
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

/* Attaches CUPTI. Without it, the ranges of the host are still recorded. */
static void attach(pb_profile *p)
{
    if (!p->o.gpu || p->gpu_open) return;
    pb_status s = pb_gpu_open(p->o.gpu_limit, p->o.graphs);
    keep_failure(p, s, pb_error());
    p->o.gpu = p->gpu_open = s == PB_OK;
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
    if (s == PB_OK && p->chosen.count && p->chosen.rank[job->rank] && !o->trigger) attach(p);
    if (s != PB_OK || !p->chosen.count) destroy(p);
    else *out = p;
    return s;
}

/* ---- windows ------------------------------------------------------------------------------------- */

static void *write_window(void *self)
{
    writing *w = self;
    const double start = now_s(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < 2 && w->about.compared; i++) w->about.clock[i] = pb_clocks_wait(w->clocks, i, 3);
    const pb_window_files files = {.trace = w->path, .records = *w->records ? w->records : NULL, .gpu = w->gpu};
    w->status = pb_window_write(w->disk, &files, &w->about, &w->window, &w->of_gpu, &w->size);
    if (w->status != PB_OK) snprintf(w->why, sizeof w->why, "%s", pb_error());
    w->seconds = now_s(CLOCK_THREAD_CPUTIME_ID) - start;
    return NULL;
}

/* Waits for the writing thread and notes what it did. */
static void finish_writing(pb_profile *p)
{
    writing *w = &p->w;
    if (!w->running) return;
    (void)pthread_join(w->thread, NULL);
    w->running = false;
    keep_failure(p, w->status, w->why);
    json_array_append_new(
        p->windows,
        json_pack(
            "{s:s*, s:[I,I], s:[I,I], s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:{s:I, s:I, s:I, s:I, "
            "s:I, s:I}}",
            "name", w->about.name, "steps", (json_int_t)w->about.first_step, (json_int_t)w->about.last_step,
            "window_ns", (json_int_t)w->window.begin_ns, (json_int_t)w->window.end_ns, "written", w->status == PB_OK,
            "truncated", w->about.truncated || w->size.omitted > 0, "events", (json_int_t)w->size.events, "dropped",
            (json_int_t)w->window.dropped, "omitted", (json_int_t)w->size.omitted, "json_bytes",
            (json_int_t)w->size.json, "file_bytes", (json_int_t)w->size.file, "opening_s", p->opening, "closing_s",
            p->closing, "writer_cpu_s", w->seconds, "clock_stepped_ns", w->window.stepped_ns, "gpu", "kernels",
            (json_int_t)w->size.kernels, "unjoined", (json_int_t)w->size.unjoined, "replayed",
            (json_int_t)w->of_gpu.replayed, "unplaced", (json_int_t)w->of_gpu.unplaced, "dropped",
            (json_int_t)w->of_gpu.dropped, "record_bytes", (json_int_t)w->of_gpu.buffer_bytes));
    pb_ring_free(&w->window);
    pb_chosen_free(&w->ranks);
}

static void begin_writing(pb_profile *p, bool truncated)
{
    writing *w = &p->w;
    char window[64], folder[PATH_MAX - 32];
    w->disk = p->disk;
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
    w->size = (pb_trace_size){0};
    snprintf(window, sizeof window, "%.20s%" PRId64 "-%" PRId64, p->o.unit ? p->o.unit : "step", p->first,
             p->first + p->length - 1);
    snprintf(folder, sizeof folder, "%s/traces/%s", p->out, window);
    snprintf(w->path, sizeof w->path, "%s/rank%d.json.gz", folder, p->job.rank);
    *w->records = 0;
    if (p->o.records)
        snprintf(w->records, sizeof w->records, "%s/records/%s-rank%d.records.gz", p->out, window, p->job.rank);
    const pb_status s = make_folder(p->disk, folder);
    keep_failure(p, s, pb_error());
    const int error = s == PB_OK ? pthread_create(&w->thread, NULL, write_window, w) : 0;
    w->running = s == PB_OK && error == 0;
    if (w->running) return;
    if (error) keep_failure(p, PB_EIO, "profile: the thread that writes traces could not be started");
    pb_ring_free(&w->window);
    pb_chosen_free(&w->ranks);
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
    pb_clocks_ask(p->job.clocks, 0, p->number);
    p->first = p->number;
    p->length = p->o.trigger ? p->request.steps : p->steps.active;
    p->name = NULL;
    p->opening = now_s(CLOCK_MONOTONIC) - start;
}

static void close_window(pb_profile *p, bool keep, bool truncated)
{
    const double start = now_s(CLOCK_MONOTONIC);
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
    p->closing = now_s(CLOCK_MONOTONIC) - start;
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
    if (!p->chosen.rank[p->job.rank]) return;
    p->counting = p->phase == PB_PROFILE_OFF && phase_at(p, p->step) != PB_PROFILE_OFF;
    if (p->counting) pb_ranges_count(true);
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
    p->ranges = pb_ranges_counted();
    pb_ranges_count(false);
}

bool pb_profile_expects(const pb_profile *p, double kernels, pb_profile_expected *out)
{
    if (!p || !p->counting) return false;
    const bool warm = phase_at(p, p->step) == PB_PROFILE_WARM;
    const double steps = (double)p->steps.active, ranges = (double)p->ranges;
    const int64_t first = p->number + 1 + (warm ? p->steps.warmup : 0);
    const double json = steps * (ranges * PB_TRACE_RANGE_BYTES + (p->o.gpu ? kernels : 0) * PB_TRACE_KERNEL_BYTES);
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
