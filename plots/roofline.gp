# roofline.gp - the rate of each op by its arithmetic intensity, below the ceilings of the run. Run by
# `bench plot --figure roofline`, which sets
#   data       blocks of lines "FLOPs-per-byte FLOPs-per-second"; the first line of a block is its title. The first two
#              blocks are the ceilings of products in bf16 and in f32; each other block is a family of ops
#   variants   number of blocks
#   out, term  the file to write, and its type: svg or png
#   heading    the title of the figure
set encoding utf8
if (term eq "svg") set terminal svg size 1100,640 noenhanced font "sans,12" background rgb "white"
if (term eq "png") set terminal pngcairo size 1650,960 noenhanced font "sans,12"
set output out
set title heading
set xlabel "arithmetic intensity: floating-point operations per byte, the least that the op needs"
set ylabel "floating-point operations per second"
set logscale xy
set autoscale fix
set offsets graph 0.02, graph 0.02, graph 0.04, graph 0.02
set format x "%g"
set format y "%.0e"
set grid linecolor rgb "#dddddd"
set border 3
set tics nomirror out
set key outside right top samplen 1 spacing 0.9
array colour[8] = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#999999", "#000000"]
array shape[5] = [7, 5, 9, 11, 13]
plot data index 0 using 1:2 with lines linewidth 2 linecolor rgb "#000000" title columnheader(2), \
    data index 1 using 1:2 with lines linewidth 2 dashtype 2 linecolor rgb "#000000" title columnheader(2), \
    for [i=2:variants-1] data index i using 1:2 with points pointtype shape[(i-2)/8%5+1] pointsize 0.6 \
    linecolor rgb colour[(i-2)%8+1] title columnheader(2)
