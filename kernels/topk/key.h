/* key.h - scores as integers that sort as topk.h ranks them. */
#ifndef PB_TOPK_KEY_H
#define PB_TOPK_KEY_H
#include <stdint.h>
#include <string.h>

#ifndef PB_TOPK_FN /* device code says more */
#define PB_TOPK_FN static inline
#endif

/* The key of -inf: what is not larger is never picked. */
enum { PB_TOPK_UNSEEN = 0x007fffff };

PB_TOPK_FN uint32_t pb_topk_key(float score)
{
    const float x = score + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu; /* NaN */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
#endif
