/* compressor_test.c - skeleton */
#include "kernels/compressor/compressor.h"
#include "tests/test.h"
int main(void) { return 0; }
