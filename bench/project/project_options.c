/* project_options.c - parses the options --ranks and --network of `bench project`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/project/projection.h"
#include "cli/options.h"

pb_status pb_project_ranks(const char *text, pb_projection *p)
{
    char word[32], *end;
    p->nranks = 0;
    for (const char *rest = text; (rest = pb_next_item(rest, ',', word, sizeof word));) {
        const long n = strtol(word, &end, 10);
        if (end == word || *end || n < 2 || n > 1 << 24)
            return pb_fail(PB_EINVAL, "--ranks %.60s: need whole numbers from 2 to %d, separated by commas", text,
                           1 << 24);
        if (p->nranks == PB_PROJECT_RANKS) return pb_fail(PB_EINVAL, "--ranks: more than %d numbers", PB_PROJECT_RANKS);
        p->ranks[p->nranks++] = (int)n;
    }
    return p->nranks ? PB_OK : pb_fail(PB_EINVAL, "project: need --ranks N1,N2: the numbers of ranks to project to");
}

pb_status pb_project_network(const char *text, pb_alpha_beta *out)
{
    double alpha = (double)NAN, bandwidth = (double)NAN;
    const struct {
        const char *name;
        double *value;
    } parts[] = {{"alpha=", &alpha}, {"bandwidth=", &bandwidth}};
    char word[64], *end = word;
    for (const char *rest = text; (rest = pb_next_item(rest, ',', word, sizeof word));) {
        size_t i = 0;
        while (i < 2 && strncmp(word, parts[i].name, strlen(parts[i].name)) != 0) i++;
        const char *number = i < 2 ? word + strlen(parts[i].name) : "";
        const double v = strtod(number, &end);
        if (i == 2 || end == number || *end || !isnan(*parts[i].value)) {
            alpha = (double)NAN;
            break;
        }
        *parts[i].value = v;
    }
    if (!(isfinite(alpha) && alpha >= 0 && isfinite(bandwidth) && bandwidth > 0))
        return pb_fail(PB_EINVAL,
                       "--network %.80s: need alpha=SECONDS,bandwidth=BYTES/S, such as "
                       "alpha=5e-6,bandwidth=25e9",
                       text);
    *out = (pb_alpha_beta){alpha, 1 / bandwidth};
    return PB_OK;
}
