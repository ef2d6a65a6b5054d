# attention.gp - what lists buy: seconds of attention, forward and backward, against the length of a sequence, a line for
# every set of cases that differ in their length alone. Drawn by `bench plot --figure attention`, which sets
#   data  blocks of "tokens seconds", each with its title on top      variants  number of blocks
#   out, term  what to write, svg or png      heading  one line
set encoding utf8
if (term eq "svg") set terminal svg size 960,540 noenhanced font "sans,13" background rgb "white"
if (term eq "png") set terminal pngcairo size 1440,810 noenhanced font "sans,13"
set output out
set title heading
set xlabel "tokens of a sequence"
set ylabel "seconds, forward and backward"
set logscale xy
set logscale x 2
set format y "%.0e"
set grid linecolor rgb "#dddddd"
set border 3
set tics nomirror out
set key top left
array colour[8] = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#000000"]
plot for [i=0:variants-1] data index i using 1:2 smooth unique with linespoints linewidth 2 pointtype 7 pointsize 0.6 \
    linecolor rgb colour[i%8+1] title columnheader(2)
