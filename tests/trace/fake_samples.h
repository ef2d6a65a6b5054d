/* fake_samples.h - between the two parts of the fake libcupti that share its host interface. */
#ifndef PB_FAKE_SAMPLES_H
#define PB_FAKE_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>

/* The value of an event in a sample of the current image. False: nothing is sampled. */
bool pb_fake_sample(size_t index, size_t event, double *value);
#endif
