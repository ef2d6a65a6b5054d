/* plot_impl.h - what the files of `bench plot` share: the data of figures, the scripts, and gnuplot. */
#ifndef PB_PLOT_IMPL_H
#define PB_PLOT_IMPL_H
#include <stdio.h>

#include "bench/rows/series.h"

/* Text for gnuplot's strings: what could end or extend one is left out. */
void pb_plot_plain(char *s);
/* Writes a block a line of the figure: its title, then "tokens ratio" rows. Returns how many. */
int pb_plot_crossover(FILE *f, const pb_series_set *set);
int pb_plot_attention(FILE *f, const pb_series_set *set); /* "tokens seconds" rows */

/* The files plots/NAME.gp, as they were when this program was built; a NULL name ends the table. */
typedef struct pb_plot_script {
    const char *name, *text;
} pb_plot_script;
extern const pb_plot_script pb_plot_scripts[];

typedef struct pb_drawing {
    const char *gnuplot; /* the program */
    const char *name;    /* of the script, for messages */
    const char *script;  /* [script_n], gnuplot's commands */
    const char *term;    /* "svg" or "png" */
    const char *heading; /* plain, as pb_plot_plain leaves it */
    char *data;          /* [data_n] */
    size_t script_n, data_n;
    int arms;
} pb_drawing;

/* Runs gnuplot in a private temporary folder, where all files have fixed names: no name that a user or a file gives
 * reaches gnuplot, which takes some names for commands of the shell. Without the user's init files. *picture: what it
 * drew, [*n], to be freed. EDEVICE: gnuplot is missing or failed; EIO: the folder cannot be written; ENOMEM. */
pb_status pb_gnuplot_draw(const pb_drawing *d, char **picture, size_t *n);
#endif
