/* cmd_completion.c - `bench completion bash`: prints a completion script generated from the tables of commands, options
 * and suites. */
#include <string.h>

#include "bench/commands.h"

pb_exit pb_cmd_completion(const pb_options *o)
{
    if (o->args.n != 1 || strcmp(o->args.v[0], "bash") != 0) {
        pb_fail(PB_EINVAL, "completion: only bash is supported: bench completion bash");
        return pb_complain(PB_EXIT_USAGE);
    }
    pb_cli_print_bash(&pb_bench_cli, stdout);
    return PB_EXIT_OK;
}
