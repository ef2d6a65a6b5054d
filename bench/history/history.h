/* history.h - the public header of bench/history: how metrics developed over sessions, and where they changed.
 *
 *   history_command.h  `bench history`: text, CSV, pictures, and the input of Apache Otava */
#ifndef PB_BENCH_HISTORY_H
#define PB_BENCH_HISTORY_H
#include "bench/history/history_command.h"
#endif
