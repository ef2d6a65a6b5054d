/* plot_impl.h - what the figures of `bench plot` share. */
#ifndef PB_PLOT_IMPL_H
#define PB_PLOT_IMPL_H
#include <stdio.h>

#include "bench/series.h"

/* Text for gnuplot's "..." strings and for its command line: what could end or extend one is left out. */
void pb_plot_plain(char *s);
/* Writes a block a line of the figure: its title, then "tokens ratio" rows. Returns how many. */
int pb_plot_crossover(FILE *f, const pb_series_set *set);
int pb_plot_attention(FILE *f, const pb_series_set *set); /* "tokens seconds" rows */
#endif
