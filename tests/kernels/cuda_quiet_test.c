/* cuda_quiet_test.c - an op that has run once only enqueues work: later calls allocate no memory, load no code,
 * create no stream and never synchronise. CUPTI reports every driver call; this test counts the forbidden ones.
 *
 * On a machine without a GPU it says so and passes. */
#include <cupti.h>

#include "tests/kernels/calls.h"

/* Prefixes of forbidden driver functions. Copies are allowed when they are asynchronous. */
static const char *const forbidden[] = {
    "cuMemAlloc",          "cuMemCreate",        "cuMemFree",         "cuMemHostAlloc",
    "cuMemAddressReserve", "cuModuleLoad",       "cuModuleUnload",    "cuLibraryLoad",
    "cuLinkCreate",        "cuStreamCreate",     "cuEventCreate",     "cuCtxSynchronize",
    "cuStreamSynchronize", "cuEventSynchronize", "cuStreamWaitEvent", "cuMemPoolCreate",
};

typedef struct watch {
    int calls;
    char first[64]; /* name of the first forbidden call */
} watch;

static void note(watch *w, const char *name)
{
    if (!w->calls++) snprintf(w->first, sizeof w->first, "%s", name);
}

static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    watch *w = user;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED) note(w, "a module was loaded");
        return;
    }
    const CUpti_CallbackData *call_data = data;
    const char *name = call_data->functionName;
    if (call_data->callbackSite != CUPTI_API_ENTER || !name) return;
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (strncmp(name, forbidden[i], strlen(forbidden[i])) == 0) note(w, name);
    if (strncmp(name, "cuMemcpy", 8) == 0 && !strstr(name, "Async")) note(w, name);
}

static pb_ctx cpu, gpu;
static watch seen;

static void check_quiet(const pb_op *op, const pb_impl *impl, const int *dim, pb_dtype t)
{
    call inputs = call_inputs(&cpu, op, dim, t), c = call_bind(&gpu, op, dim, t);
    gpu.impl = impl->name;
    if (call_takes(impl, &c)) {
        call_fresh(&c, &inputs);
        CHECK_OK(call_run(&gpu, &c));
        CHECK_OK(pb_sync(&gpu));
        seen = (watch){0};
        CHECK_OK(call_run(&gpu, &c));
        const watch w = seen;
        CHECK_OK(pb_sync(&gpu));
        if (w.calls)
            fail_msg("%s.%s %s: %d forbidden calls, first %s", op->name, impl->name, pb_dtype_name(t), w.calls,
                     w.first);
    }
    gpu.impl = NULL;
    call_unbind(&inputs), call_unbind(&c);
}

static void cupti_reports_allocations(void **state)
{
    void *p;
    (void)state;
    seen = (watch){0};
    CHECK_OK(pb_alloc(&gpu, 1 << 20, &p));
    assert_int_not_equal(seen.calls, 0);
    seen = (watch){0};
    CHECK_OK(pb_sync(&gpu));
    assert_int_not_equal(seen.calls, 0);
    pb_release(&gpu, p);
}

static void a_warm_op_only_enqueues(void **state)
{
    (void)state;
    for (const pb_op *const *op = pb_ops; *op; op++)
        for (int t = 0; t < ((*op)->f32_only ? 1 : PB_NFLOAT); t++)
            for (const pb_dims *dim = (*op)->edge; (*dim)[0]; dim++)
                for (const pb_impl *i = (*op)->impls[PB_CUDA]; i->name; i++) check_quiet(*op, i, *dim, (pb_dtype)t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cupti_reports_allocations),
                                       cmocka_unit_test(a_warm_op_only_enqueues)};
    CUpti_SubscriberHandle watcher;
    if (pb_ctx_open(&gpu, PB_CUDA, 0) != PB_OK || pb_ctx_open(&cpu, PB_CPU, 0) != PB_OK) {
        printf("not on this machine: %s\n", pb_error());
        return 0;
    }
    if (cuptiSubscribe(&watcher, on_call, &seen) != CUPTI_SUCCESS ||
        cuptiEnableDomain(1, watcher, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS ||
        cuptiEnableDomain(1, watcher, CUPTI_CB_DOMAIN_RESOURCE) != CUPTI_SUCCESS) {
        printf("CUPTI does not watch this device\n");
        return 1;
    }
    const int failed = cmocka_run_group_tests_name("cuda_quiet", tests, NULL, NULL);
    (void)cuptiUnsubscribe(watcher);
    pb_ctx_close(&gpu), pb_ctx_close(&cpu);
    return failed;
}
