/* cupti_library.h - loads libcupti at run time, for the two users of it: records of activity (gpu.h) and hardware
 * counters (gpu_counters.h). `what` begins the messages. */
#ifndef PB_CUPTI_LIBRARY_H
#define PB_CUPTI_LIBRARY_H
#include "os/status.h"

/* Loads libcupti, or returns it if it is loaded; it stays loaded. EUNSUPPORTED: it was not found. */
pb_status pb_cupti_library(const char *what, void **out);
/* The address of a function of a loaded library. EUNSUPPORTED: it has none of this name. */
pb_status pb_cupti_symbol(const char *what, void *library, const char *name, void **out);
#endif
