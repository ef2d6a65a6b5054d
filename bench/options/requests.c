/* requests.c - makes from the options of the command line the structs that bench/suites and other folders read. */
#include "bench/options/requests.h"

#include <stdlib.h>
#include <string.h>

pb_plan_request pb_options_plan(const pb_options *o)
{
    return (pb_plan_request){.full_grid = strcmp(o->grid, "full") == 0,
                             .axes = o->axis,
                             .counting = o->instructions != NULL,
                             .uncontrolled = o->counters || o->profile_out,
                             .filters = {o->filter, o->args},
                             .impl = o->impl,
                             .prefer = o->prefer,
                             .ranks = o->ranks,
                             .no_ceilings = o->ceilings && strcmp(o->ceilings, "no") == 0,
                             .only = o->child_only,
                             .input = {o->data, o->tokenizer, o->template, o->loss_mask_type}};
}

pb_status pb_options_environment(void)
{
    static const struct {
        const char *name, *words;
    } variables[] = {{"PB_CONTROLS", "yes|no"}, {"PB_DISTURBANCE", "ignore"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i].name), *rest = variables[i].words;
        char word[16] = "";
        if (!value || !*value) continue;
        while (strcmp(word, value) != 0 && (rest = pb_next_item(rest, '|', word, sizeof word))) continue;
        if (!rest)
            return pb_fail(PB_EINVAL, "%s=%.60s: need one of %s, or no such variable", variables[i].name, value,
                           variables[i].words);
    }
    return PB_OK;
}
