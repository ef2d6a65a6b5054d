/* project_command.h - `bench project`: projects collectives and training steps to other numbers of ranks.
 *
 * Input: runs with collectives (suite comm, or imported from nccl-tests) of several sizes and, for steps, with suite
 * throughput of one rank and of other numbers of ranks (measured.h). For each curve of collectives the alpha-beta model
 * is fitted (alpha_beta.h), for each step its compute time and contention (step_model.h), and both models are checked on
 * measured points that were kept out of the fit (fit.h). Then, for each number of ranks N:
 *
 *   time                   t(25 MiB, N): of a collective with the bytes of a bucket of gradients
 *   step_time              t_step(N) = compute + wait(N) + contention hidden(N)
 *   wait_time              wait(N)
 *   contention_time        contention hidden(N)
 *   tokens_per_second      per rank: tokens of a step of one rank / t_step(N)
 *   scaling_efficiency     measured step_time of one rank / t_step(N): the fraction of tokens per second and rank that
 *                          is left at N ranks (weak scaling: every rank has the same batch)
 *
 * Every one of these figures is labelled "projected", in the text and in the CSV.
 *
 * Where a fit is not accurate (a kept-out point is more than 10 % off, or none could be kept out) nothing that uses it
 * is projected, one line says so, and the exit code is PB_EXIT_INCONCLUSIVE; with `unchecked` it is projected and the
 * line remains. Nothing is projected beyond one host unless a network was measured or given: such a call is refused.
 *
 *   text  tables: the fits, the check of steps, the projections
 *   csv   a line for each figure: basis (fitted, given, kept-out, projected), case, link (in, out or ""), ranks, bytes,
 *         metric, unit, value. Units are SI; errors are fractions */
#ifndef PB_PROJECT_COMMAND_H
#define PB_PROJECT_COMMAND_H
#include <stdbool.h>
#include <stdio.h>

#include "bench/rows/rows.h"

typedef struct pb_project_opts {
    const char *const *runs; /* [nruns]: folders or CSV files */
    int nruns;
    const char *ranks;         /* "64,1024" */
    const char *network;       /* "alpha=SECONDS,bandwidth=BYTES/S"; NULL: not given */
    int host_ranks;            /* 0: the largest number of ranks measured on one host */
    const char *const *filter; /* [nfilter]: patterns of keys (pb_key_matches); 0: all */
    int nfilter;
    double min_bytes; /* smaller collectives are left out */
    bool unchecked, allow_mismatch;
    bool csv;
    const char *out; /* the file to write; NULL: the stream */
} pb_project_opts;

/* Writes the projection to `out` or o->out, and notes to `notes`. PB_EXIT_USAGE: wrong options, a file that cannot be
 * read or is wrong, or too little was measured; PB_EXIT_HARNESS: the machine failed: pb_error() has the message, and
 * nothing is written. PB_EXIT_INCONCLUSIVE: written, but a fit was not accurate and `unchecked` was not given. */
pb_exit pb_project(const pb_project_opts *o, FILE *out, FILE *notes);
#endif
