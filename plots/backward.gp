# backward.gp - time of the backward pass and clip. Each case is a cluster of bars, one for each variant (eager or
# graph, and which clip), with whiskers from the fastest to the slowest process. Run by `bench plot`, which sets
#   data       one line per case: "label" median least largest median least largest ..., in seconds; NaN: no value
#   variants   number of bars in a cluster
#   out, term  the file to write, and its type: svg or png
#   heading    the title of the figure
set encoding utf8
if (term eq "svg") set terminal svg size 960,540 noenhanced font "sans,13" background rgb "white"
if (term eq "png") set terminal pngcairo size 1440,810 noenhanced font "sans,13"
set output out
set datafile missing "NaN"
set title heading
set ylabel "backward and clip [ms]"
set yrange [0:*]
set grid ytics linecolor rgb "#dddddd"
set border 3
set tics nomirror out
set key outside bottom center horizontal
set style data histograms
set style histogram errorbars gap 1.2 linewidth 1
set style fill solid 0.85 border rgb "#333333"
set boxwidth 0.9
array colour[8] = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#000000"]
plot for [a=1:variants] data using (1e3*column(3*a-1)):(1e3*column(3*a)):(1e3*column(3*a+1)):xticlabels(1) \
    title columnheader(3*a-1) linecolor rgb colour[(a-1)%8+1]
