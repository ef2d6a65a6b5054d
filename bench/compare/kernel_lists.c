/* kernel_lists.c - compares two lists of kernels. */
#include "bench/compare/kernel_lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *name; /* [length] in the list */
    size_t length;
    long long count;
} entry;

/* Reads the next entry of a list; *at is moved after it. False: at the end, or the text is not a list. */
static bool next(const char **at, bool by_op, entry *out)
{
    char *end;
    const char *name = *at + strspn(*at, " ");
    const size_t whole = strcspn(name, " =");
    if (name[whole] != '=') return false;
    out->name = name;
    out->length = by_op && memchr(name, '.', whole) ? strcspn(name, ".") : whole;
    out->count = strtoll(name + whole + 1, &end, 10);
    *at = end;
    return end > name + whole + 1;
}

/* How often the list has this name. */
static long long count_in(const char *list, const entry *e, bool by_op)
{
    long long n = 0;
    for (entry x; next(&list, by_op, &x);)
        if (x.length == e->length && !strncmp(x.name, e->name, x.length)) n += x.count;
    return n;
}

/* True if an entry before `at` has the same name. */
static bool seen(const char *list, const char *at, const entry *e, bool by_op)
{
    for (entry x; list < at && next(&list, by_op, &x) && x.name < e->name;)
        if (x.length == e->length && !strncmp(x.name, e->name, x.length)) return true;
    return false;
}

/* Appends the difference of every name of `from`; those that `skip` has are left out. */
static void append(const char *from, const char *skip, const char *base, const char *cand, bool by_op, char *out,
                   size_t n)
{
    const char *at = from;
    for (entry e; next(&at, by_op, &e);) {
        const long long more = count_in(cand, &e, by_op) - count_in(base, &e, by_op);
        const size_t len = strlen(out);
        if (!more || seen(from, at, &e, by_op) || (skip && count_in(skip, &e, by_op))) continue;
        const int w = snprintf(out + len, n - len, "%s%.*s %+lld", len ? ", " : "", (int)e.length, e.name, more);
        if (w < 0 || (size_t)w + len < n) continue;
        memcpy(out + n - 4, "...", 4);
        return;
    }
}

void pb_kernel_lists_differ(const char *base, const char *cand, bool by_op, char *out, size_t n)
{
    *out = 0;
    if (!*base || !*cand || n < 8) return;
    append(base, NULL, base, cand, by_op, out, n);
    append(cand, base, base, cand, by_op, out, n);
}
