/* session_hosts.c - tells the hosts of sessions apart. */
#include "bench/compare/session_hosts.h"

#include "bench/machine/machine.h"

bool pb_sessions_foreign(const pb_series *base, const char *host)
{
    if (!pb_stored(base->run_id)) return false;
    for (int i = 0; i < base->sessions; i++)
        if (pb_host_same(base->session[i].host, host)) return false;
    return true;
}

int pb_sessions_used(const pb_series *base, const char *host, bool foreign, const pb_session **out)
{
    const bool all = foreign || !pb_stored(base->run_id);
    const char *last = NULL; /* the host of the previous session, whose text was compared */
    bool same = false;
    int n = 0;
    for (int i = 0; i < base->sessions; i++) {
        const pb_session *s = &base->session[i];
        if (!all && (!i || s->host != last)) same = pb_host_same(s->host, host);
        last = s->host;
        if (!all && !same) continue;
        if (out) out[n] = s;
        n++;
    }
    return n;
}

bool pb_hosts_differ(const char *a, const char *b, bool foreign)
{
    const bool equal = a == b || strcmp(a ? a : "", b ? b : "") == 0;
    if (equal || foreign) return !equal;
    const pb_host x = pb_host_parse(a), y = pb_host_parse(b);
    return x.verified && y.verified && strcmp(x.hash, y.hash) != 0;
}
