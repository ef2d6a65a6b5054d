/* cmd_analyze.c - `bench analyze`: passes the command-line options to pb_analyze(), pb_analyze_nan() or
 * pb_analyze_counters(). */
#include <string.h>

#include "bench/analyze/analyze.h"
#include "bench/commands.h"

pb_exit pb_cmd_analyze(const pb_options *o)
{
    const char *const words[] = {"text", "markdown", "csv"};
    int format = 0;
    while (format < 2 && strcmp(o->format, words[format]) != 0) format++;
    if (o->args.n == 2 && strcmp(o->args.v[0], "nan") == 0) {
        if (!o->against && !o->ceilings_run && !o->timeline && format == 0) return pb_analyze_nan(o->args.v[1], stdout);
        pb_fail(PB_EINVAL, "analyze nan: it has no options");
        return pb_complain(PB_EXIT_USAGE);
    }
    if (o->args.n == 2 && strcmp(o->args.v[0], "counters") == 0) {
        if (!o->against && !o->timeline)
            return pb_analyze_counters(o->args.v[1], o->ceilings_run, (pb_analyze_format)format, stdout);
        pb_fail(PB_EINVAL, "analyze counters: its options are --ceilings-run and --format");
        return pb_complain(PB_EXIT_USAGE);
    }
    if (o->args.n > 1) {
        pb_fail(PB_EINVAL, "analyze: one folder, not %d; another one to compare with is --against", (int)o->args.n);
        return pb_complain(PB_EXIT_USAGE);
    }
    return pb_analyze(o->args.n ? o->args.v[0] : "profile", o->against, o->ceilings_run, o->timeline,
                      (pb_analyze_format)format, stdout);
}
