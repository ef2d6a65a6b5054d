/* kernel_lists.h - compares two lists of kernels, as the note of kernel_digest holds them: "cast.avx512=2
 * linear_fwd.avx512=30". */
#ifndef PB_KERNEL_LISTS_H
#define PB_KERNEL_LISTS_H
#include <stdbool.h>
#include <stddef.h>

/* Writes how often more or less `cand` launches its kernels than `base`: "swiglu_fwd.avx512 -30, silu_fwd.avx512 +30".
 * by_op: implementations are added up for each op, for lists of two instruction sets. At most n bytes with the final
 * NUL; what does not fit is replaced by "...". "": no difference, or a list is empty. */
void pb_kernel_lists_differ(const char *base, const char *cand, bool by_op, char *out, size_t n);
#endif
