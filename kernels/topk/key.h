/* key.h - maps scores to unsigned integers that have the order in which topk.h ranks scores. */
#ifndef PB_TOPK_KEY_H
#define PB_TOPK_KEY_H
#include <stdint.h>
#include <string.h>

#ifndef PB_TOPK_FN /* .cu files define it before they include this header, to add __host__ __device__ */
#define PB_TOPK_FN static inline
#endif

/* The key of -inf. Only larger keys may be selected. */
enum { PB_TOPK_UNSEEN = 0x007fffff };

PB_TOPK_FN uint32_t pb_topk_key(float score)
{
    const float x = score + 0.0f; /* turns -0 into 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu; /* every NaN ranks highest */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
#endif
