/* cpu.c - detects which instruction sets this processor and operating system support. */
#include "kernels/cpu/cpu.h"

/* Bits of CPUID that the x86-64 psABI lists for a level, leaf by leaf, and the register states that the operating
 * system must save and restore (XCR0). */
enum {
    V2_ECX1 = 1 << 0 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23,   /* SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT */
    V2_ECX81 = 1 << 0,                                                   /* LAHF */
    V3_ECX1 = V2_ECX1 | 1 << 12 | 1 << 22 | 1 << 27 | 1 << 28 | 1 << 29, /* FMA, MOVBE, OSXSAVE, AVX, F16C */
    V3_ECX81 = V2_ECX81 | 1 << 5,                                        /* LZCNT */
    V3_EBX7 = 1 << 3 | 1 << 5 | 1 << 8,                                  /* BMI1, AVX2, BMI2 */
    V3_XCR0 = 1 << 1 | 1 << 2,                                           /* XMM, YMM */
    V4_EBX7 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30,                     /* AVX-512 F, DQ, CD, BW; VL is bit 31 */
    V4_XCR0 = V3_XCR0 | 1 << 5 | 1 << 6 | 1 << 7                         /* k0-7, upper halves of ZMM0-15, ZMM16-31 */
};

static bool has(uint32_t bits, uint32_t need) { return (bits & need) == need; }

bool pb_cpu_is_v3(const pb_cpuid *c)
{
    return has(c->ecx1, V3_ECX1) && has(c->ecx81, V3_ECX81) && has(c->ebx7, V3_EBX7) && has(c->xcr0, V3_XCR0);
}

bool pb_cpu_is_v4(const pb_cpuid *c)
{
    return pb_cpu_is_v3(c) && has(c->ebx7, V4_EBX7 | 1u << 31) && has(c->xcr0, V4_XCR0);
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>

/* Asked once: every op call selects an implementation, and in a virtual machine each CPUID is a trap of
 * microseconds. */
static pb_cpuid own;

static void ask(void)
{
    pb_cpuid c = {0};
    uint32_t a, b, d, high;
    __get_cpuid(1, &a, &b, &c.ecx1, &d);
    __get_cpuid_count(7, 0, &a, &c.ebx7, &b, &d);
    __get_cpuid(0x80000001, &a, &b, &c.ecx81, &d);
    /* The instruction xgetbv is illegal unless CPUID reports OSXSAVE (bit 27). */
    if (c.ecx1 & 1u << 27) __asm__ volatile("xgetbv" : "=a"(c.xcr0), "=d"(high) : "c"(0));
    own = c;
}

static const pb_cpuid *this_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, ask);
    return &own;
}

bool pb_cpu_has_avx512(void) { return pb_cpu_is_v4(this_cpu()); }
bool pb_cpu_has_avx2(void) { return pb_cpu_is_v3(this_cpu()); }
#else
bool pb_cpu_has_avx512(void) { return false; }
bool pb_cpu_has_avx2(void) { return false; }
#endif
