/* compare.h - the public header of bench/compare: compares results with other results or with stored baselines, and
 * gives each row a verdict.
 *
 *   compare_results.h  `bench compare` of two results, or of a run with the baselines of its machine
 *   stored_rule.h      the rule that compares a run with stored sessions
 *   verdict.h          the verdict of every row, and the figures that it is based on
 *   outlook.h          what a run says of its own noise, without any stored session
 *   gates.h            baselines/gates.csv: which metrics may fail a comparison, and by how much
 *   exact.h            compares exact counters, and adds the rows that changed to a comparison
 *   exact_store.h      stored exact counters: baselines/exact/<suite>.csv
 *   baseline.h         stored baselines: saves, updates and shows the sessions of a machine
 *   kept_sessions.h    the sessions that bench stores by itself in the user's state folder
 *   compare_render.h   prints a comparison as text, Markdown or JUnit XML */
#ifndef PB_BENCH_COMPARE_H
#define PB_BENCH_COMPARE_H
#include "bench/compare/baseline.h"
#include "bench/compare/compare_render.h"
#include "bench/compare/compare_results.h"
#include "bench/compare/exact.h"
#include "bench/compare/exact_store.h"
#include "bench/compare/gates.h"
#include "bench/compare/kept_sessions.h"
#include "bench/compare/outlook.h"
#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict.h"
#endif
