/* sparkline.c - draws values as a line of characters. */
#include <stdio.h>

#include "bench/history/history_formats.h"

enum { HEIGHTS = 8 };

static double mean_of(const pb_history_value *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i].value / n;
    return sum;
}

/* 0 to HEIGHTS - 1. */
static int height_of(double x, double min, double max)
{
    const int h = max > min ? (int)((x - min) / (max - min) * HEIGHTS) : HEIGHTS / 2 - 1;
    return h < HEIGHTS ? h : HEIGHTS - 1;
}

void pb_sparkline(const pb_history_value *v, int n, bool ascii, char out[PB_SPARKLINE_TEXT])
{
    static const char *const blocks[HEIGHTS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[HEIGHTS] = {"_", ".", "-", "~", "=", "+", "*", "#"};
    const int groups = n < PB_SPARKLINE_MOST ? n : PB_SPARKLINE_MOST;
    double x[PB_SPARKLINE_MOST], min = 0, max = 0;
    size_t at = 0;
    for (int g = 0; g < groups; g++) {
        const int from = (int)((long long)n * g / groups), to = (int)((long long)n * (g + 1) / groups);
        x[g] = mean_of(v + from, to - from);
        if (!g || x[g] < min) min = x[g];
        if (!g || x[g] > max) max = x[g];
    }
    *out = 0;
    for (int g = 0; g < groups; g++)
        at += (size_t)snprintf(out + at, PB_SPARKLINE_TEXT - at, "%s",
                               (ascii ? plain : blocks)[height_of(x[g], min, max)]);
}
