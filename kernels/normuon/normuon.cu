/* normuon.cu - the NorMuon ops on a GPU. */
#include "kernels/normuon/normuon.h"

extern "C" const pb_impl pb_normuon_momentum_cuda[] = {{0}};
extern "C" const pb_impl pb_normuon_check_cuda[] = {{0}};
extern "C" const pb_impl pb_normuon_rows_cuda[] = {{0}};
extern "C" const pb_impl pb_normuon_apply_cuda[] = {{0}};
