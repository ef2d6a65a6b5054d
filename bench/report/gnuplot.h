/* gnuplot.h - draws figures with gnuplot: their data, the scripts, and the call of the program. */
#ifndef PB_GNUPLOT_H
#define PB_GNUPLOT_H
#include <stdio.h>

#include "bench/rows/rows.h"

/* Makes s safe inside a quoted string of gnuplot: quotes, backslashes and control characters become '_'. */
void pb_plot_plain(char *s);
/* These functions write the data of a figure: for each line of the figure, or group of points, a block with a title and
 * rows of two numbers: "tokens ratio" for the crossover, "tokens seconds" for attention, "FLOPs-per-byte
 * FLOPs-per-second" for the roofline. They return the number of blocks, 0 if there is nothing to draw. */
int pb_plot_crossover(FILE *f, const pb_series_set *set);
int pb_plot_attention(FILE *f, const pb_series_set *set);
int pb_plot_roofline(FILE *f, const pb_series_set *set);

/* The files plots/NAME.gp as they were when the program was built. The table ends with a NULL name. */
typedef struct pb_plot_script {
    const char *name, *text;
} pb_plot_script;
extern const pb_plot_script pb_plot_scripts[];
/* The text of plots/NAME.gp; NULL: the program was built without it. */
const char *pb_plot_script_text(const char *name);

typedef struct pb_drawing {
    const char *gnuplot; /* gnuplot's program */
    const char *name;    /* name of the script, for messages */
    const char *script;  /* [script_n]: gnuplot commands */
    const char *term;    /* "svg" or "png" */
    const char *heading; /* made safe by pb_plot_plain() */
    char *data;          /* [data_n]: the data file */
    size_t script_n, data_n;
    int variants; /* variants or lines in the data */
} pb_drawing;

/* Runs gnuplot in a private temporary folder and returns the picture in *picture, [*n], which the caller frees. All
 * files in the folder have fixed names, because gnuplot runs some file names as shell commands: no name from a user or
 * a file reaches it. EDEVICE: gnuplot is missing or failed; EIO: the folder cannot be written; ENOMEM. */
pb_status pb_gnuplot_draw(const pb_drawing *d, char **picture, size_t *n);
#endif
