/* session_hosts.h - which sessions of a base are from the candidate's machine, and from which of its hosts. */
#ifndef PB_SESSION_HOSTS_H
#define PB_SESSION_HOSTS_H
#include "bench/rows/rows.h"

/* True if none of the sessions is from the machine of `host`, the candidate's: they are shown for reference only. False
 * for a run, which the user has named explicitly. */
bool pb_sessions_foreign(const pb_series *base, const char *host);
/* Lists the sessions that the rule uses, oldest first: all sessions of a run or of a foreign base, else those of the
 * candidate's machine. Returns their number. foreign: pb_sessions_foreign(). out: room for base->sessions pointers;
 * NULL: only counts. */
int pb_sessions_used(const pb_series *base, const char *host, bool foreign, const pb_session **out);
/* True if two sessions, or a session and the candidate, are known to be from different hosts: both are verified and
 * their hashes differ. In a foreign base every other text is another host. */
bool pb_hosts_differ(const char *a, const char *b, bool foreign);
#endif
