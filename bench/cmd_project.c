/* cmd_project.c - `bench project`: passes the command-line options to pb_project(). Its option --ranks is that of an
 * axis (pb_options.axis), because rows have the axis ranks. */
#include <limits.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/project/project.h"

pb_exit pb_cmd_project(const pb_options *o)
{
    if (o->host_ranks > INT_MAX) {
        pb_fail(PB_EINVAL, "--host-ranks %ld: need at most %d", o->host_ranks, INT_MAX);
        return pb_complain(PB_EXIT_USAGE);
    }
    if (o->axis.n > 1) {
        pb_fail(PB_EINVAL, "--ranks is given twice: separate numbers by commas");
        return pb_complain(PB_EXIT_USAGE);
    }
    const pb_project_opts opts = {.runs = o->args.v,
                                  .nruns = o->args.n,
                                  .ranks = o->axis.n ? o->axis.v[0].values : NULL,
                                  .network = o->network,
                                  .host_ranks = o->host_ranks > 0 ? (int)o->host_ranks : 0,
                                  .filter = o->filter.v,
                                  .nfilter = o->filter.n,
                                  .min_bytes = o->min_bytes > 0 ? (double)o->min_bytes : 0,
                                  .unchecked = o->unchecked,
                                  .allow_mismatch = o->allow_mismatch,
                                  .csv = !strcmp(o->format, "csv"),
                                  .out = o->out};
    const pb_exit code = pb_project(&opts, stdout, stderr);
    return code == PB_EXIT_USAGE || code == PB_EXIT_HARNESS ? pb_complain(code) : code;
}
