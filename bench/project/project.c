/* project.c - `bench project`: reads runs, fits the models, checks them, projects, and prints. */
#include <stdlib.h>
#include <string.h>

#include "bench/project/projection.h"
#include "os/draft.h"
#include "os/page.h"
#include "trainer/parallel/buckets.h"

static pb_status no_memory(void) { return pb_fail(PB_ENOMEM, "project: out of memory"); }

/* ---- fitting --------------------------------------------------------------------------------------- */

static pb_status fit_collectives(pb_projection *p, const pb_project_opts *o)
{
    pb_alpha_beta network;
    if (o->network) PB_TRY(pb_project_network(o->network, &network));
    p->fit = calloc((size_t)p->measured.n + 1, sizeof *p->fit);
    if (!p->fit) return no_memory();
    p->fits = 0; /* it is 0 already, which static analysis cannot see */
    for (int i = 0; i < p->measured.n; i++) {
        pb_curve *f = &p->measured.curve[i];
        if (f->op == PB_NCOLLECTIVES) continue;
        pb_fit fit;
        PB_TRY(pb_fit_make(f, o->host_ranks, o->network ? &network : NULL, &fit));
        p->fit[p->fits++] = fit;
    }
    return PB_OK;
}

/* Finds the fit of all-reduce in the type of the step's gradients. */
static pb_status reduction_of(const pb_projection *p, const pb_curve *step, const pb_fit **out)
{
    *out = NULL;
    for (int i = 0; i < p->fits; i++) {
        const pb_curve *f = p->fit[i].curve;
        if (f->op != PB_COLLECTIVE_all_reduce || strcmp(f->dtype, step->dtype) != 0) continue;
        if (*out)
            return pb_fail(PB_EINVAL, "project: both %s and %s can be the reduction of %s; --filter selects one",
                           (*out)->curve->name, f->name, step->name);
        *out = &p->fit[i];
    }
    return *out ? PB_OK
                : pb_fail(PB_EINVAL, "project: %s needs measured collectives: all_reduce in %s", step->name,
                          step->dtype);
}

static pb_status fit_step(pb_projection *p, pb_curve *f)
{
    const pb_fit *reduce;
    double *bytes = NULL, tokens = 0;
    int buckets = 0;
    PB_TRY(reduction_of(p, f, &reduce));
    PB_TRY(pb_step_buckets(&f->first, &bytes, &buckets, &tokens));
    const pb_status s = pb_step_fit_make(f, reduce, bytes, buckets, tokens, &p->step[p->steps]);
    p->steps++; /* also after a failure: pb_step_fit_free() frees `bytes` */
    return s;
}

static pb_status fit_steps(pb_projection *p)
{
    p->step = calloc((size_t)p->measured.n + 1, sizeof *p->step);
    if (!p->step) return no_memory();
    for (int i = 0; i < p->measured.n; i++)
        if (p->measured.curve[i].op == PB_NCOLLECTIVES) PB_TRY(fit_step(p, &p->measured.curve[i]));
    return pb_step_fit_all(p->step, p->steps);
}

/* ---- projecting ------------------------------------------------------------------------------------ */

bool pb_projects_collective(const pb_fit *f, pb_place place, bool unchecked)
{
    return unchecked || pb_fit_accurate(f, place);
}

bool pb_projects_step(const pb_step_fit *f, pb_place place, bool unchecked)
{
    return unchecked || (pb_accurate(&f->accuracy) && pb_fit_accurate(f->reduce, place));
}

static pb_status project_collectives(pb_projection *p, const pb_project_opts *o)
{
    for (int i = 0; i < p->fits; i++)
        for (int r = 0; r < p->nranks; r++) {
            pb_projected x = {.collective = &p->fit[i]};
            PB_TRY(pb_fit_place(&p->fit[i], p->ranks[r], &x.place));
            x.seconds = pb_fit_seconds(&p->fit[i], PB_BUCKET_BYTES, x.place);
            if (pb_projects_collective(&p->fit[i], x.place, o->unchecked)) p->projected[p->n++] = x;
            else p->refused++;
        }
    return PB_OK;
}

static pb_status project_steps(pb_projection *p, const pb_project_opts *o)
{
    for (int i = 0; i < p->steps; i++)
        for (int r = 0; r < p->nranks; r++) {
            pb_projected x = {.step = &p->step[i]};
            pb_step_comm c;
            PB_TRY(pb_fit_place(p->step[i].reduce, p->ranks[r], &x.place));
            PB_TRY(pb_step_fit_comm(&p->step[i], x.place, &c));
            x.wait = c.wait;
            x.contention_time = p->step[i].contention * c.hidden;
            x.seconds = p->step[i].compute + x.wait + x.contention_time;
            if (pb_projects_step(&p->step[i], x.place, o->unchecked)) p->projected[p->n++] = x;
            else p->refused++;
        }
    return PB_OK;
}

static pb_status make(pb_projection *p, const pb_project_opts *o)
{
    const pb_measured_opts read = {o->filter, o->nfilter, o->min_bytes, o->allow_mismatch};
    if (!o->nruns) return pb_fail(PB_EINVAL, "project: name the runs with measured collectives and steps");
    PB_TRY(pb_project_ranks(o->ranks, p));
    PB_TRY(pb_measured_read(o->runs, o->nruns, &read, &p->measured));
    PB_TRY(fit_collectives(p, o));
    if (!p->fits) return pb_fail(PB_EINVAL, "project: the runs have no collectives: need suite comm, or nccl-tests");
    PB_TRY(fit_steps(p));
    p->projected = calloc((size_t)(p->fits + p->steps) * (size_t)p->nranks, sizeof *p->projected);
    if (!p->projected) return no_memory();
    PB_TRY(project_collectives(p, o));
    return project_steps(p, o);
}

static void end(pb_projection *p)
{
    for (int i = 0; i < p->steps; i++) pb_step_fit_free(&p->step[i]);
    free(p->fit);
    free(p->step);
    free(p->projected);
    pb_measured_free(&p->measured);
}

/* ---- writing --------------------------------------------------------------------------------------- */

static pb_status print(const pb_projection *p, const pb_project_opts *o, FILE *out)
{
    if (!o->csv) return pb_projection_text(p, o, out);
    pb_projection_csv(p, out);
    return PB_OK;
}

static pb_status write_out(const pb_projection *p, const pb_project_opts *o, FILE *out)
{
    pb_page page;
    if (!o->out) return print(p, o, out);
    PB_TRY(pb_page_open(&page));
    PB_TRY(pb_page_save(&page, print(p, o, page.f), pb_file_replace, o->out));
    fprintf(out, "%s\n", o->out);
    return PB_OK;
}

pb_exit pb_project(const pb_project_opts *o, FILE *out, FILE *notes)
{
    pb_projection p = {0};
    pb_status s = make(&p, o);
    if (s == PB_OK) s = write_out(&p, o, out);
    if (s == PB_OK) {
        fflush(out); /* notes on another stream must not overtake it */
        pb_projection_notes(&p, o, notes);
    }
    const pb_exit refused = p.refused ? PB_EXIT_INCONCLUSIVE : PB_EXIT_OK;
    end(&p);
    return s == PB_OK ? refused : (pb_exit)pb_status_exit(s);
}
