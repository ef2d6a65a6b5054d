/* step_model.c - the time of a data parallel step as a function of the number of ranks. */
#include "bench/project/step_model.h"

pb_step_comm pb_step_schedule(const double *bytes, const double *seconds, int n, double backward)
{
    double all = 0, done = 0, end = 0, sum = 0;
    for (int i = 0; i < n; i++) all += bytes[i];
    for (int i = 0; i < n; i++) {
        done += bytes[i];
        sum += seconds[i];
        const double ready = backward * (done / all);
        end = (ready > end ? ready : end) + seconds[i];
    }
    const double wait = end > backward ? end - backward : 0;
    return (pb_step_comm){wait, sum > wait ? sum - wait : 0};
}

double pb_step_contention(const pb_step_point *p, int n)
{
    double above = 0, below = 0;
    for (int i = 0; i < n; i++) {
        const double w = 1 / (p[i].seconds * p[i].seconds);
        above += w * p[i].comm.hidden * (p[i].seconds - p[i].one - p[i].comm.wait);
        below += w * p[i].comm.hidden * p[i].comm.hidden;
    }
    return above > 0 && below > 0 ? above / below : 0;
}

double pb_step_compute(const pb_step_point *p, int n, double contention)
{
    double above = 0, below = 0;
    for (int i = 0; i < n; i++) {
        const double w = 1 / (p[i].seconds * p[i].seconds);
        above += w * (p[i].seconds - p[i].comm.wait - contention * p[i].comm.hidden);
        below += w;
    }
    return above > 0 ? above / below : 0;
}
