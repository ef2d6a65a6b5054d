/* job.c - opens what a subcommand of `train` needs (device, data, trainer), checks that its memory is enough, and
 * evaluates a data set. */
#include "train/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/clock.h"
#include "kernels/engine/op.h"
#include "launch/member.h"
#include "os/memory.h"
#include "os/where.h"
#include "trainer/checkpoint/state.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/peft.h"
#include "trainer/input/fit.h"

/* ---- opening tokenizer and data --------------------------------------------------------------------- */

static void print_bad_lines(const pb_dataset_counts *c)
{
    const size_t kept = c->lines.bad < PB_JSONL_KEPT ? c->lines.bad : PB_JSONL_KEPT;
    for (size_t i = 0; i < kept; i++) fprintf(stderr, "train: skipped bad line %s\n", c->lines.kept[i]);
    if (c->lines.bad > kept) fprintf(stderr, "train: skipped %zu more bad lines\n", c->lines.bad - kept);
}

static void print_data(const char *what, const char *path, const pb_dataset_counts *c, const pb_dataset *d)
{
    printf("%s data %s: %zu conversations in %zu rows, %zu tokens, %zu of them loss tokens", what, path, c->kept,
           pb_dataset_rows(d), c->tokens, c->counted);
    if (c->cut) printf("; %zu were cut", c->cut);
    if (c->split) printf("; %zu were split", c->split);
    if (c->dropped) printf("; %zu were dropped as too long", c->dropped);
    if (c->empty) printf("; %zu were dropped without loss tokens", c->empty);
    if (c->passed_over) printf("; %zu rows were skipped", c->passed_over);
    if (c->lines.bad) printf("; %zu bad lines were skipped", c->lines.bad);
    printf("\n");
}

static pb_status open_dataset(pb_job *j, const char *what, const char *path, const pb_dataset_config *cfg,
                              pb_dataset_counts *counts, pb_dataset **out)
{
    const pb_status s = pb_dataset_open(path, j->tokenizer, cfg, counts, out);
    /* With --bad-lines fail, the first bad line is the error message of pb_dataset_open. */
    if (cfg->bad_lines == PB_BAD_LINES_SKIP && pb_train_leads(j->o)) print_bad_lines(counts);
    if (s == PB_OK && !j->o->quiet) print_data(what, path, counts, *out);
    return s;
}

static void print_text(const pb_job *j)
{
    static const char *const names[] = {
#define X(id, word) word,
        PB_TEMPLATE_MAP(X)
#undef X
    };
    const pb_chat_options *o = &j->data_cfg.chat;
    printf("tokenizer: %s; chat template: %s, from %s", j->input.tokenizer_path ? j->input.tokenizer_path : "bytes",
           names[o->family], j->input.template_from);
    if (o->system && *o->system) printf(", with a default system message of %zu bytes", strlen(o->system));
    printf("\n");
}

static pb_status open_data(pb_job *j)
{
    pb_dataset_config part = j->data_cfg;
    const bool eval = j->cfg.model.frozen;
    PB_TRY(pb_input_open_tokenizer(&j->input, &j->data_cfg.chat, &j->tokenizer));
    if (!j->o->quiet) print_text(j);
    part.evaluation = eval && part.held_out > 0;
    PB_TRY(open_dataset(j, eval ? "evaluation" : "training", j->input.data_path, &part, &j->counts, &j->data));
    if (eval || (!j->o->eval_data && !(part.held_out > 0))) return PB_OK;
    part.evaluation = part.held_out > 0;
    const char *path = j->o->eval_data ? j->o->eval_data : j->input.data_path;
    return open_dataset(j, "evaluation", path, &part, &j->eval_counts, &j->eval_data);
}

/* Allocates the host buffers of one step's rows. */
static pb_status alloc_rows(pb_job *j)
{
    const size_t n = (size_t)j->micro_batches * (size_t)j->groups * (size_t)j->cfg.B * (size_t)j->cfg.S;
    pb_rows *r = &j->rows;
    r->ids = malloc(n * sizeof *r->ids);
    r->targets = malloc(n * sizeof *r->targets);
    r->mask = malloc(n * sizeof *r->mask);
    r->start = malloc(n * sizeof *r->start);
    r->pos = malloc(n * sizeof *r->pos);
    r->used = malloc(n / (size_t)j->cfg.S * sizeof *r->used);
    j->losses = malloc((size_t)j->ranks * sizeof *j->losses);
    if (j->losses && r->ids && r->targets && r->mask && r->start && r->pos && r->used) return PB_OK;
    return pb_fail(PB_ENOMEM, "no memory for the rows of %d micro-batches on %d ranks", j->micro_batches, j->ranks);
}

/* ---- opening the device and the trainer, loading weights ---------------------------------------------- */

/* Loads weights and adapters from files into the trainer's model. */
static pb_status load_files(const pb_job *j, pb_trainer *t, pb_load_report *r)
{
    if (j->cfg.model.blank) PB_TRY(pb_model_load_hf(pb_trainer_model(t), j->o->model, r));
    return j->o->adapter ? pb_peft_load(pb_trainer_model(t), j->o->adapter) : PB_OK;
}

/* Checks before any large allocation that the weight files match the configuration and that memory suffices; otherwise
 * loading would fill the host's memory before it failed. */
static pb_status check_size(const pb_job *j)
{
    const double tokens = (double)j->micro_batches * j->groups * j->cfg.B * j->cfg.S;
    return pb_fit_check(&(pb_fit){.cfg = &j->cfg,
                                  .device = j->device,
                                  .number = pb_job_device_number(j),
                                  .name = j->o->model,
                                  .path = j->input.path,
                                  .adapter = j->o->adapter,
                                  .prefer = j->ctx.prefer,
                                  .rank = j->rank,
                                  .ranks = j->ranks,
                                  .shares = j->topology.size[PB_AXIS_CP],
                                  .share = pb_topology_at(&j->topology, j->rank, PB_AXIS_CP),
                                  .local_size = pb_world_member_of(j->o->world, j->rank)->local_size,
                                  .copy = j->o->save_async ? pb_state_copy_bytes : NULL,
                                  .more = tokens * (4 * sizeof(int32_t) + sizeof(float))});
}

static pb_status load(pb_job *j)
{
    pb_load_report r = {0};
    const double start = pb_clock_seconds();
    PB_TRY(load_files(j, j->trainer, &r));
    if (!j->o->quiet && j->cfg.model.blank)
        printf("loaded %zu tensors, %.1f MB in %.2f s\n", r.tensors, 1e-6 * (double)r.bytes,
               pb_clock_seconds() - start);
    if (r.unused && pb_train_leads(j->o))
        fprintf(stderr, "train: note: the model does not use %zu tensors of the files: %s\n", r.unused, r.names);
    return PB_OK;
}

int pb_job_device_number(const pb_job *j)
{
    return j->ranks > 1 && j->device != PB_CPU ? pb_world_local_rank(j->o->world) : j->number;
}

static pb_status open_device(pb_job *j, bool plan)
{
    const int device = pb_job_device_number(j);
    char text[24];
    snprintf(text, sizeof text, "GPU %d", device);
    if (j->device != PB_CPU && !plan) pb_launch_device(text);
    pb_device_facts facts;
    if (j->device != PB_CPU && pb_backend_facts(j->device, device, &facts) == PB_EUNSUPPORTED) return PB_EUNSUPPORTED;
    PB_TRY(plan ? pb_ctx_open_plan(&j->ctx, j->device) : pb_ctx_open(&j->ctx, j->device, device));
    if (j->o->prefer && !pb_impl_exists(j->device, j->o->prefer))
        return pb_fail(
            PB_EINVAL,
            "--prefer %.60s: no op has an implementation of this name on %s; `bench list kernels` prints all",
            j->o->prefer, pb_backend_name(j->device));
    j->ctx.prefer = j->o->prefer;
    j->ctx.deterministic = j->o->deterministic;
    return PB_OK;
}

/* Opens the communicator of the ranks that differ on some axes only. */
static pb_status open_group(pb_job *j, bool plan, const char *role, unsigned axes, pb_comm **out)
{
    const pb_topology *t = &j->topology;
    const int index = pb_topology_index(t, j->rank, axes), size = pb_topology_group_size(t, axes);
    if (size == 1) return PB_OK;
    if (plan) return pb_comm_open_plan(&j->ctx, role, index, size, out);
    return pb_comm_open(j->o->world, &j->ctx, role, pb_topology_colour(t, j->rank, axes), index, out);
}

/* Fails on all ranks if they do not agree on how they are arranged: they would open other communicators. */
static pb_status compare_arrangement(const pb_job *j)
{
    char text[64];
    pb_topology_text(&j->topology, text, sizeof text);
    PB_TRY(pb_world_same(j->o->world, "--topology", text));
    return pb_world_same(j->o->world, "--slices", j->o->slices);
}

/* Opens the communicators between the ranks. Gradients are added over all of them. */
static pb_status open_comm(pb_job *j, bool plan)
{
    pb_device_facts facts = {0};
    if (j->ranks == 1) return PB_OK;
    if (!plan) PB_TRY(compare_arrangement(j));
    if (!plan && j->device != PB_CPU) PB_TRY(pb_backend_facts(j->device, pb_job_device_number(j), &facts));
    if (!plan) PB_TRY(pb_world_check_devices(j->o->world, facts.bus));
    PB_TRY(open_group(j, plan, "dp", PB_ON(DP) | PB_ON(CP), &j->comm));
    return open_group(j, plan, "cp", PB_ON(CP), &j->context);
}

/* Another rank is lost. On the helper thread: the collectives that the training thread waits for return with EDEVICE,
 * and it closes the job: first the graphs, then the communicator (NCCL waits for the graphs that hold it). */
static void end_collectives(void *job, int code, const char *why)
{
    const pb_job *j = job;
    (void)code, (void)why; /* the monitor has printed why; main() asks for the code */
    if (j->context) pb_comm_abort(j->context);
    pb_comm_abort(j->comm);
}

static pb_status open_trainer(pb_job *j, bool plan)
{
    if (!j->cfg.cached) PB_TRY(open_data(j));
    if (!j->cfg.cached) PB_TRY(alloc_rows(j));
    PB_TRY(pb_trainer_open(&j->ctx, &j->cfg, &j->trainer));
    if (!plan) PB_TRY(load(j));
    return pb_trainer_shard(j->trainer);
}

pb_status pb_job_open(pb_job *j, bool plan)
{
    pb_status s = open_device(j, plan);
    if (s == PB_OK && !plan) s = check_size(j);
    PB_TRY(pb_job_agree(j, "opening the device", s));
    PB_TRY(open_comm(j, plan));
    j->cfg.comm = j->comm;
    j->cfg.context = j->context;
    /* A slow GPU shows only in a phase without collectives, because in these all ranks wait for it. */
    j->cfg.time_forward = j->comm && !j->context && j->cfg.shard < PB_SHARD_PARAMETERS && !plan;
    if (j->comm && !plan) pb_launch_on_lost(end_collectives, j);
    return pb_job_agree(j, "opening the job", open_trainer(j, plan));
}

pb_status pb_job_agree(const pb_job *j, const char *what, pb_status s) { return pb_world_agree(j->o->world, what, s); }

pb_status pb_job_explain_lost_device(pb_job *j, pb_status s)
{
    if (s == PB_EDEVICE && j->ctx.be) (void)pb_device_check(&j->ctx);
    return s;
}

pb_status pb_job_alone(pb_job *j, pb_status s)
{
    char why[1024];
    if (s == PB_OK || !j->comm || pb_launch_lost() >= 0) return s;
    snprintf(why, sizeof why, "%s", pb_error());
    if (!pb_world_speaks(j->o->world)) fprintf(stderr, "train: rank %d: %s\n", j->rank, why);
    if (j->context) pb_comm_abort(j->context);
    pb_comm_abort(j->comm); /* the others may never enter a collective again */
    return pb_fail(s, "%s", why);
}

void pb_job_close(pb_job *j)
{
    pb_launch_on_lost(NULL, NULL);
    pb_trainer_close(j->trainer);
    pb_comm_close(j->context);
    pb_comm_close(j->comm);
    pb_dataset_close(j->data);
    pb_dataset_close(j->eval_data);
    pb_tokenizer_close(j->tokenizer);
    free(j->rows.ids);
    free(j->rows.targets);
    free(j->rows.mask);
    free(j->rows.start);
    free(j->rows.pos);
    free(j->rows.used);
    free(j->losses);
    if (j->ctx.be) pb_ctx_close(&j->ctx);
}

pb_status pb_job_memory(const pb_job *j, double *bytes)
{
    const pb_memory m = pb_trainer_memory(j->trainer);
    if (j->ctx.id == PB_CPU && !j->ctx.planning) return pb_memory_peak(bytes);
    if (j->ctx.id == PB_CPU) {
        PB_TRY(pb_memory_peak(bytes)); /* memory in use before training: program, data, libraries */
        *bytes += (double)pb_plan_peak(&j->ctx);
        return PB_OK;
    }
    *bytes = j->ctx.planning ? (double)pb_plan_peak(&j->ctx)
                             : (double)(m.weights + m.grads + m.moments + m.activations + j->ctx.scratch_bytes);
    return PB_OK;
}

bool pb_job_warn_of_loss(const pb_job *j, const char *what, double loss)
{
    const int V = j->cfg.model.geometry->V;
    if (!j->input.path || !(loss > log((double)V))) return false;
    if (pb_train_leads(j->o))
        fprintf(stderr,
                "train: note: %s has the loss %.4g, above ln V = %.4g of equal probabilities for all %d tokens: is the "
                "model trained, and do tokenizer and chat template belong to it?\n",
                what, loss, log((double)V), V);
    return true;
}

pb_batch pb_job_batch(const pb_job *j, int micro, int S, double count)
{
    const size_t number = (size_t)micro * (size_t)j->groups + (size_t)j->group;
    const size_t at = number * (size_t)j->cfg.B * (size_t)S;
    const pb_rows *r = &j->rows;
    return (pb_batch){.ids = r->ids + at,
                      .targets = r->targets + at,
                      .mask = r->mask + at,
                      .count = count,
                      .start = j->cfg.packed ? r->start + at : NULL,
                      .pos = j->cfg.packed ? r->pos + at : NULL,
                      .S = S};
}

/* ---- evaluating a data set ---------------------------------------------------------------------------- */

/* Adds the loss of this rank's tokens of its batch, which begins at token `at` of j->rows, to *e. */
static pb_status add_batch(pb_job *j, size_t at, float *nll, pb_evaluation *e)
{
    PB_TRY(pb_trainer_nll(j->trainer, nll));
    for (size_t i = 0; i < pb_trainer_tokens(j->trainer); i++) {
        const double mask = (double)j->rows.mask[at + pb_trainer_token(j->trainer, i)];
        e->loss += mask * (double)nll[i];
        e->tokens += mask;
    }
    return PB_OK;
}

/* Evaluates this rank's batch of the next rows: batch number `index` of the epoch. After the last batch its rows are
 * blank, and *e stays empty; the rank runs the forward pass all the same, because it may gather weights. */
static pb_status evaluate_batch(pb_job *j, size_t index, pb_batch_fn each, void *self, float *nll, pb_evaluation *e)
{
    const size_t rows = pb_dataset_rows(j->evaluated), B = (size_t)j->cfg.B, S = (size_t)j->cfg.S, first = index * B;
    const size_t n = first >= rows ? 0 : rows - first < B ? rows - first : B;
    const pb_batch batch = pb_job_batch(j, 0, j->cfg.S, 0);
    PB_TRY(pb_trainer_set_batch(j->trainer, &batch));
    PB_TRY(pb_phase_forward(&j->ctx, j->trainer));
    if (each && n) PB_TRY(each(self, j, first, (int)n));
    PB_TRY(pb_phase_loss(&j->ctx, j->trainer));
    return add_batch(j, (size_t)j->group * B * S, nll, e);
}

/* Fills j->rows with the next batches, one per group; what is left after the last row of the epoch is blank. */
static void draw_batches(pb_job *j, size_t first)
{
    const size_t rows = pb_dataset_rows(j->evaluated), all = (size_t)j->groups * (size_t)j->cfg.B;
    const size_t n = rows - first < all ? rows - first : all;
    pb_dataset_next(j->evaluated, (int)n, &j->rows);
    pb_dataset_blank(j->evaluated, (int)n, (int)all, &j->rows);
}

static pb_status evaluate(pb_job *j, pb_batch_fn each, void *self, float *nll, pb_evaluation *all, pb_evaluation *e)
{
    const size_t rows = pb_dataset_rows(j->evaluated), ranks = (size_t)j->ranks, B = (size_t)j->cfg.B;
    for (size_t first = 0; first < rows; first += (size_t)j->groups * B) {
        pb_evaluation own = {0};
        draw_batches(j, first);
        PB_TRY(pb_job_alone(j, evaluate_batch(j, first / B + (size_t)j->group, each, self, nll, &own)));
        PB_TRY(pb_world_gather(j->o->world, "the evaluation", &own, sizeof own, all));
        pb_where_progress();
        for (size_t i = 0; i < ranks; i++) {
            e->loss += all[i].loss;
            e->tokens += all[i].tokens;
        }
    }
    e->loss /= e->tokens;
    return PB_OK;
}

pb_status pb_job_evaluate(pb_job *j, pb_dataset *d, pb_batch_fn each, void *self, pb_evaluation *out)
{
    float *nll = malloc((size_t)j->cfg.B * (size_t)j->cfg.S * sizeof *nll);
    pb_evaluation *all = malloc((size_t)j->ranks * sizeof *all), e = {0};
    pb_status s = nll && all ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the losses of a batch");
    if (s == PB_OK) s = pb_dataset_seek(d, (pb_data_position){0, 0});
    j->evaluated = d;
    pb_where_phase("evaluation");
    pb_trainer_evaluates(j->trainer, true);
    if (s == PB_OK) s = evaluate(j, each, self, nll, all, &e);
    pb_trainer_evaluates(j->trainer, false);
    if (s == PB_OK) pb_where_phase(NULL);
    free(nll);
    free(all);
    if (s == PB_OK) *out = e;
    return s;
}
