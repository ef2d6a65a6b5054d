/* kept_sessions.h - kept sessions: `bench run` stores complete runs by itself as sessions in the user's state folder.
 *
 * The files are <state>/<machine_id>/<host>/<suite>.csv, in the format of a stored baseline (baseline.h). A run is not
 * kept with --no-keep, with too few processes, if an option changed how it measures, or if the program was built with
 * sanitizers, coverage counters or without optimisation. <state> is $PB_STATE, else
 * $XDG_STATE_HOME/plumb, else ~/.local/state/plumb; with PB_STATE set to "" nothing is kept and nothing is read. <host>
 * is the name of the machine if it has one, else the hash, else (of an unverified host) "unverified-HASH".
 *
 * A file holds at most PB_BASELINE_SESSIONS values of each row (key and metric), the newest ones. It is limited by row,
 * so that many runs of one case do not push out the sessions of the others.
 *
 * A comparison with stored sessions uses both those of baselines/ and the kept ones of the run's own host. Kept
 * sessions say only what values to expect. What a candidate lacks is judged by baselines/ alone: of a kept session, a
 * comparison reads only the rows that the candidate has. Exact counters (exact_rule.h) are compared with baselines/
 * alone too: a kept session may be of a program that was changed on purpose. */
#ifndef PB_KEPT_SESSIONS_H
#define PB_KEPT_SESSIONS_H
#include "bench/compare/gates.h"
#include "bench/rows/rows.h"

/* Writes the folder of all kept sessions, <state>, to out; "": nothing is kept. EINVAL: HOME is not set, or the path is
 * too long. */
pb_status pb_kept_root(char *out, size_t n);
/* Writes the name of the folder of a host to out: <host> above. host: the column's text (host_identity.h). */
void pb_kept_host(const char *host, char *out, size_t n);

/* Keeps a run as a session of each of its suites. *said: the last file that was written, or "" if none was, because
 * nothing is kept or the run is a session already. EINVAL: the run cannot become a session (pb_session_check), or a
 * file has a fault. EPATH, EIO, ENOMEM: a file cannot be written. */
pb_status pb_kept_add(const pb_table *run, const pb_series_set *set, const pb_gates *gates, char *said, size_t n);
/* Adds kept rows of the suite to *t, which is a stored baseline or all zero. A row is added if it was measured on the
 * run's host, if `run` has its key and metric too, and if its session is neither in *t nor made from `run` itself.
 * Exact counters are not added. If the file does not exist, *t stays unchanged. The caller frees *t, also on failure.
 * EINVAL: a file has a fault. EPATH, ENOMEM. */
pb_status pb_kept_join(pb_table *t, const pb_table *run, const pb_series_set *set, const char *suite);
#endif
