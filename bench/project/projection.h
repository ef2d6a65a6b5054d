/* projection.h - the fits of a call of `bench project` and what they project, and how both are printed. */
#ifndef PB_PROJECTION_H
#define PB_PROJECTION_H
#include "bench/project/fit.h"
#include "bench/project/project_command.h"

enum { PB_PROJECT_RANKS = 32 }; /* most numbers of ranks in one call */

/* A projected figure. */
typedef struct pb_projected {
    const pb_fit *collective; /* NULL: a step */
    const pb_step_fit *step;  /* NULL: a collective */
    pb_place place;
    double seconds;         /* time of a collective, or step_time */
    double wait;            /* of a step: for its gradients, after the backward pass */
    double contention_time; /* of a step: contention times hidden collectives */
} pb_projected;

typedef struct pb_projection {
    pb_measured measured;
    pb_fit *fit;             /* [fits] of collectives */
    pb_step_fit *step;       /* [steps] */
    pb_projected *projected; /* [n]: collectives before steps, in the order of their fits, then of the ranks */
    int fits, steps, n;
    int ranks[PB_PROJECT_RANKS], nranks;
    int refused; /* fits whose projections are missing because they are not accurate */
} pb_projection;

/* Parse the options. EINVAL: the message names the option. */
pb_status pb_project_ranks(const char *text, pb_projection *p);
pb_status pb_project_network(const char *text, pb_alpha_beta *out);

/* True if a projection of this fit to this place may be shown. */
bool pb_projects_collective(const pb_fit *f, pb_place place, bool unchecked);
bool pb_projects_step(const pb_step_fit *f, pb_place place, bool unchecked);

pb_status pb_projection_text(const pb_projection *p, const pb_project_opts *o, FILE *out);
void pb_projection_csv(const pb_projection *p, FILE *out);
/* Prints a line for each thing that the reader of the figures must know: fits that are not accurate, projections to
 * more bytes than were measured, rows that are left out. */
void pb_projection_notes(const pb_projection *p, const pb_project_opts *o, FILE *notes);
#endif
