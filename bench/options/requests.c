/* requests.c - makes from the options of the command line the structs that bench/suites and other folders read. */
#include "bench/options/requests.h"

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
