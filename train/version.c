/* version.c - the commit of the program `train`, which all ranks of a job must have in common. */
#include "train/options.h"

const char *pb_train_commit(void) { return PB_COMMIT; }
