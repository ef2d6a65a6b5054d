/* cmd_bisect_backends.c - `bench bisect-backends`: runs a training step of a model on the CPU and on another backend,
 * or with another implementation, side by side, and names the first op whose output differs. */
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/options/options.h"
#include "bench/suites/suites.h"
#include "trainer/step/divergence.h"

/* Results of the tensors of a case that were compared so far. */
typedef struct result {
    pb_divergence first, worst; /* first: beyond its bound; worst: the largest error in units of its bound */
    int compared, differ;
    bool all;
} result;

static double share(const pb_divergence *d) { return d->bound > 0 ? d->error / d->bound : d->error > 0 ? 1e300 : 0; }

static void print_place(const pb_divergence *d)
{
    if (d->place.row >= 0) printf(", batch row %ld", d->place.row);
    if (d->place.token >= 0) printf(", token %ld", d->place.token);
    if (d->place.head >= 0) printf(", head %ld", d->place.head);
    printf(", row %zu, column %zu: %.6g, on the CPU %.6g", d->row, d->col, d->is, d->want);
}

static void print_line(const pb_divergence *d)
{
    printf("  %-28s %-40s %9.2e of %.0e  %s\n", d->name, d->ops, d->error, d->bound,
           pb_diverges(d) ? "DIFFERS" : "agrees");
}

/* Prints a line for each tensor that differs, or with --all for each. */
static void take(void *self, const pb_divergence *d)
{
    result *r = self;
    r->compared++;
    if (pb_diverges(d) && !r->differ++) r->first = *d;
    if (r->compared == 1 || !(share(d) <= share(&r->worst))) r->worst = *d;
    if (r->all || pb_diverges(d)) print_line(d);
}

static void conclude(const result *r)
{
    if (!r->differ) {
        printf("no op differs: %d tensors are within their bounds; closest to its bound: %s, %.2e of %.0e\n",
               r->compared, r->worst.name, r->worst.error, r->worst.bound);
        return;
    }
    printf("first difference: ");
    if (r->first.layer >= 0) printf("layer %d, ", r->first.layer);
    printf("op %s, %s: relative error %.3g, bound %.0e; largest at", r->first.ops, r->first.name, r->first.error,
           r->first.bound);
    print_place(&r->first);
    printf("; %d of %d tensors differ\n", r->differ, r->compared);
}

static pb_status compare_case(const pb_options *o, const pb_case *c, pb_backend_id device, bool *differs)
{
    pb_ctx cpu, other;
    pb_trainer *a = NULL, *b = NULL;
    result r = {.all = o->all};
    PB_TRY(pb_ctx_open(&cpu, PB_CPU, 0));
    pb_status s = pb_ctx_open(&other, device, 0);
    if (s != PB_OK) return pb_ctx_close(&cpu), s;
    other.prefer = o->prefer;
    printf("%s\n", c->key);
    s = pb_train_case_open_all(&cpu, c, &a);
    if (s == PB_OK) s = pb_train_case_open_all(&other, c, &b);
    if (s == PB_OK) s = pb_diverge(a, b, take, &r);
    if (s == PB_OK) conclude(&r);
    *differs = *differs || r.differ;
    pb_trainer_close(b);
    pb_trainer_close(a);
    pb_ctx_close(&other);
    pb_ctx_close(&cpu);
    return s;
}

/* The cases are those of suite backward with one mode and one clip, in which the step is the same. */
static bool is_wanted(const pb_case *c) { return pb_case_is(c, "mode", "eager") && pb_case_is(c, "clip", "fused"); }

static pb_status compare_all(const pb_options *o, pb_backend_id device, bool *differs)
{
    const pb_suite *suite = pb_suite_find("backward");
    pb_plan_request request = pb_options_plan(o);
    pb_plan p;
    pb_ctx plan;
    int n = 0;
    request.no_ceilings = request.uncontrolled = true;
    request.prefer = NULL; /* of one side only */
    PB_TRY(pb_ctx_open_plan(&plan, PB_CPU));
    pb_status s = pb_plan_make(&plan, suite, &request, &p);
    pb_ctx_close(&plan);
    PB_TRY(s);
    for (int i = p.ceilings; s == PB_OK && i < p.n; i++)
        if (strcmp(p.cases[i].name, "step") == 0 && is_wanted(&p.cases[i])) {
            s = compare_case(o, &p.cases[i], device, differs);
            n++;
        }
    pb_plan_free(&p);
    if (s == PB_OK && !n) s = pb_fail(PB_EINVAL, "bisect-backends: no case has mode=eager and clip=fused");
    return s;
}

pb_exit pb_cmd_bisect_backends(const pb_options *o)
{
    pb_backend_id device = PB_CPU;
    bool differs = false;
    pb_status s = o->args.n ? pb_fail(PB_EINVAL, "bisect-backends takes no argument; the model is --model") : PB_OK;
    if (s == PB_OK) s = pb_options_backend(o, &device);
    if (s == PB_OK && device == PB_CPU && !o->prefer)
        s = pb_fail(PB_EINVAL, "bisect-backends: both sides would be the CPU's: use --device cuda, or --prefer NAME");
    if (s == PB_OK && o->prefer && !pb_impl_exists(device, o->prefer))
        s = pb_fail(PB_EINVAL, "--prefer %.60s: no op has an implementation of this name on %s", o->prefer,
                    pb_backend_name(device));
    if (s == PB_OK) s = compare_all(o, device, &differs);
    if (s != PB_OK) return pb_complain_of(s);
    return differs ? PB_EXIT_REGRESSION : PB_EXIT_OK;
}
