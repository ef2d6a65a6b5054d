/* fake_samples.h - the function by which fake_counters.c reads sampled values from fake_samples.c; both are parts of the
 * fake libcupti. */
#ifndef PB_FAKE_SAMPLES_H
#define PB_FAKE_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>

/* The value of an event in a sample of the current image. False: nothing is sampled. */
bool pb_fake_sample(size_t index, size_t event, double *value);
#endif
