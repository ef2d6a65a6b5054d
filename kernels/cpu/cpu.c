/* cpu.c - which instruction sets this processor supports. */
#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)
bool pb_cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && pb_cpu_has_avx2();
}
bool pb_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#else
bool pb_cpu_has_avx512(void) { return false; }
bool pb_cpu_has_avx2(void) { return false; }
#endif
