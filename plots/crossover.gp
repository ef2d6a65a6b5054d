# crossover.gp - the gain of a graph: eager time over graph time, by tokens of a step. Cases that differ only in batch
# and seq are one curve. Run by `bench plot --figure crossover`, which sets
#   data       blocks of lines "tokens ratio"; the first line of a block is its title
#   variants   number of blocks
#   out, term  the file to write, and its type: svg or png
#   heading    the title of the figure
set encoding utf8
if (term eq "svg") set terminal svg size 960,540 noenhanced font "sans,13" background rgb "white"
if (term eq "png") set terminal pngcairo size 1440,810 noenhanced font "sans,13"
set output out
set title heading
set xlabel "tokens a step"
set ylabel "eager time / graphed time"
set logscale x 2
set yrange [0:*]
set grid linecolor rgb "#dddddd"
set border 3
set tics nomirror out
set key top right
set arrow from graph 0, first 1 to graph 1, first 1 nohead linecolor rgb "#888888" dashtype 2
array colour[8] = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#000000"]
plot for [i=0:variants-1] data index i using 1:2 smooth unique with linespoints linewidth 2 pointtype 7 pointsize 0.6 \
    linecolor rgb colour[i%8+1] title columnheader(2)
