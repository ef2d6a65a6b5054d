/* text.h - the public header of bench/text: writes text that people read: figures, labels and tables.
 *
 *   format.h  values with SI prefix and unit; the keys of cases, shortened to the axes that differ
 *   grid.h    a table for a terminal
 *   markup.h  escapes text for Markdown and XML, and writes test cases as JUnit XML
 *   json.h    reads run.json and compare.json, and cleans the user's words that are written to them */
#ifndef PB_BENCH_TEXT_H
#define PB_BENCH_TEXT_H
#include "bench/text/format.h"
#include "bench/text/grid.h"
#include "bench/text/json.h"
#include "bench/text/markup.h"
#endif
