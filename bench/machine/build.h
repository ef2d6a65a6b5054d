/* build.h - how this program was compiled, and whether the times of such a program may become a session. */
#ifndef PB_BUILD_H
#define PB_BUILD_H

/* The compiler's flags for host code, such as "-O2 -g -DNDEBUG", which run.json records (fingerprint.soft.flags). In a
 * file of its own, so that a test program can link a function of its own in its place. */
const char *pb_build_flags(void);
/* Why the times of a program with these flags are not those of a normal build: "with sanitizers", "with coverage
 * counters" or "without optimisation" (no -O option, or -O0 as the last one). NULL: no such flag. */
const char *pb_build_slow(const char *flags);
#endif
