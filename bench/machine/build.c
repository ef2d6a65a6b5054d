/* build.c - tells from the compiler's flags whether a build is much slower than a normal one. */
#include "bench/machine/build.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool begins(const char *word, size_t n, const char *with)
{
    return n >= strlen(with) && strncmp(word, with, strlen(with)) == 0;
}

const char *pb_build_slow(const char *flags)
{
    bool sanitized = false, counted = false, optimised = false;
    for (const char *word = flags; *(word += strspn(word, " ")); word += strcspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        sanitized |= begins(word, n, "-fsanitize=");
        counted |= begins(word, n, "--coverage") || begins(word, n, "-fprofile-arcs");
        if (begins(word, n, "-O")) optimised = !(n == 3 && word[2] == '0'); /* the last one counts */
    }
    return sanitized   ? "with sanitizers"
           : counted   ? "with coverage counters"
           : optimised ? NULL
                       : "without optimisation";
}
