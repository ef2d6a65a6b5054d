/* stub */
#include "kernels/swiglu/swiglu.h"
#include "tests/test.h"
int main(void) { return 0; }
