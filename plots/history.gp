# history.gp - a metric of one case over the sessions of a machine, with the mean between change points, and the change
# at each. Run by `bench history --format svg`, which sets
#   data       three blocks: "number value date" for each session, "from to mean" for each stretch between change points,
#              "number change" for each change point
#   variants   number of change points
#   out, term  the file to write, and its type: svg or png
#   heading    the title of the figure
set encoding utf8
if (term eq "svg") set terminal svg size 960,540 noenhanced font "sans,13" background rgb "white"
if (term eq "png") set terminal pngcairo size 1440,810 noenhanced font "sans,13"
set output out
set title heading font "sans,9"
set xlabel "session"
set format y "%.3s%c"
set grid ytics linecolor rgb "#dddddd"
set border 3
set tics nomirror out
set xtics rotate by -30
set offsets 0.5, 0.5, graph 0.1, graph 0.1
unset key
set y2range [0:1]
unset y2tics
plot for [i=1:(variants>0)] data index 2 using 1:(0):(0):(1) axes x1y2 with vectors nohead linecolor rgb "#bbbbbb" \
        dashtype 2, \
    for [i=1:(variants>0)] data index 2 using 1:(0.98):2 axes x1y2 with labels textcolor rgb "#aa3377", \
    data index 1 using 1:3:($2-$1):(0) with vectors nohead linewidth 2 linecolor rgb "#ee6677", \
    data index 0 using 1:2:xticlabels(3) with linespoints linewidth 1 pointtype 7 pointsize 0.6 linecolor rgb "#4477aa"
