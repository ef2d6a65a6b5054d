/* stats.h - the public header of bench/stats: the statistics of measured times, as pure functions on arrays.
 *
 *   inference.h      tests, intervals and bounds for pairs and for stored sessions, detectable changes, the bootstrap
 *   median.h         the median of an array, and a maximum that keeps NaN
 *   distributions.h  tails and quantiles of the normal, Student's t and the beta distribution
 *   variance.h       variances for a comparison with stored sessions: of a median, shrunk towards a prior, between groups
 *   changepoint.h    the points at which the mean of a series changes
 *   trend.h          detects that samples still became faster while they were taken: the warm-up was too short */
#ifndef PB_BENCH_STATS_H
#define PB_BENCH_STATS_H
#include "bench/stats/changepoint.h"
#include "bench/stats/distributions.h"
#include "bench/stats/inference.h"
#include "bench/stats/median.h"
#include "bench/stats/trend.h"
#include "bench/stats/variance.h"
#endif
