/* cmd_history.c - `bench history`: passes the options to bench/history. */
#define _GNU_SOURCE
#include <langinfo.h>
#include <locale.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/history/history.h"

/* True if the user's locale is UTF-8. Without a locale, or with one that is not installed, text is ASCII. */
static bool utf8_locale(void)
{
    const locale_t l = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!l) return false;
    const bool utf8 = strcmp(nl_langinfo_l(CODESET, l), "UTF-8") == 0;
    freelocale(l);
    return utf8;
}

pb_exit pb_cmd_history(const pb_options *o)
{
    const double least = 1.0 / (PB_CHANGE_SHUFFLES + 1), alpha = o->alpha >= 0 ? o->alpha : 0.01;
    if (!(alpha >= least && alpha < 1)) {
        pb_fail(PB_EINVAL, "history: --alpha %g: need at least %g, which %d shuffles can show, and less than 1", alpha,
                least, PB_CHANGE_SHUFFLES);
        return pb_complain(PB_EXIT_USAGE);
    }
    const pb_history_opts opts = {.baselines = o->baseline,
                                  .runs = o->runs,
                                  .gates = o->gates,
                                  .keys = o->args.v,
                                  .nkeys = o->args.n,
                                  .machine = o->machine,
                                  .metric = o->metric,
                                  .all = o->all,
                                  .ascii = o->ascii || !utf8_locale(),
                                  .format = o->format,
                                  .out = o->out,
                                  .rule = {alpha, o->min_effect >= 0 ? o->min_effect : 0.01}};
    const pb_exit code = pb_history(&opts, stdout, stderr);
    return code == PB_EXIT_OK ? code : pb_complain(code);
}
