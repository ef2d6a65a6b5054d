/* topology.c - parses --topology, and converts between rank numbers, coordinates and groups. */
#include "ranks/topology.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word, *what;
    int most;
} axes[PB_NAXES] = {
#define X(id, word, most, what) {word, what, most},
    PB_AXIS_MAP(X)
#undef X
};

static int axis_named(const char *word, size_t n)
{
    for (int a = 0; a < PB_NAXES; a++)
        if (strlen(axes[a].word) == n && memcmp(axes[a].word, word, n) == 0) return a;
    return -1;
}

/* Parses one "word=size" of n bytes into size[]. */
static pb_status parse_axis(const char *part, size_t n, int size[PB_NAXES])
{
    const char *equals = memchr(part, '=', n);
    const int axis = axis_named(part, equals ? (size_t)(equals - part) : n);
    char *end = NULL;
    if (axis < 0)
        return pb_fail(
            PB_EINVAL,
            "--topology: '%.*s' names no axis; the axes are dp and cp, and tp, pp and ep, which can only be 1", (int)n,
            part);
    if (size[axis]) return pb_fail(PB_EINVAL, "--topology: %s is given twice", axes[axis].word);
    const bool digit = equals && equals + 1 < part + n && equals[1] >= '1' && equals[1] <= '9';
    const long value = digit ? strtol(equals + 1, &end, 10) : 0;
    if (!digit || end != part + n || value > 1 << 24)
        return pb_fail(PB_EINVAL, "--topology: '%.*s' needs a positive number, as in %s=2", (int)n, part,
                       axes[axis].word);
    if (axes[axis].most && value > axes[axis].most)
        return pb_fail(PB_EINVAL, "--topology: %s=%ld is not supported: %s are not divided between ranks, so %s is %d",
                       axes[axis].word, value, axes[axis].what, axes[axis].word, axes[axis].most);
    size[axis] = (int)value;
    return PB_OK;
}

/* Gives dp the ranks that the other axes leave, if it was not named, and compares the product with `ranks`. */
static pb_status fit(const char *text, int ranks, int size[PB_NAXES])
{
    long long others = 1;
    for (int a = 0; a < PB_NAXES; a++)
        if (a != PB_AXIS_DP) {
            size[a] = size[a] ? size[a] : 1;
            others *= size[a];
        }
    if (!size[PB_AXIS_DP]) {
        if (others > ranks || ranks % others)
            return pb_fail(PB_EINVAL, "--topology %s: %d ranks do not divide by %lld", text, ranks, others);
        size[PB_AXIS_DP] = (int)(ranks / others);
    }
    if (others * size[PB_AXIS_DP] != ranks)
        return pb_fail(PB_EINVAL, "--topology %s needs %lld ranks, but the job has %d", text, others * size[PB_AXIS_DP],
                       ranks);
    return PB_OK;
}

pb_status pb_topology_parse(const char *text, int ranks, pb_topology *out)
{
    pb_topology t = {.ranks = ranks};
    if (ranks < 1) return pb_fail(PB_EINVAL, "a job needs at least one rank, not %d", ranks);
    if (!text) text = "";
    for (const char *part = text; *part;) {
        const size_t n = strcspn(part, ",");
        PB_TRY(parse_axis(part, n, t.size));
        part += n;
        if (*part == ',' && !*++part) return pb_fail(PB_EINVAL, "--topology %s ends with a comma", text);
    }
    PB_TRY(fit(text, ranks, t.size));
    *out = t;
    return PB_OK;
}

void pb_topology_text(const pb_topology *t, char *out, size_t n)
{
    static const pb_axis order[PB_NAXES] = {PB_AXIS_DP, PB_AXIS_CP, PB_AXIS_TP, PB_AXIS_PP, PB_AXIS_EP};
    size_t len = 0;
    if (n) snprintf(out, n, "dp=1");
    for (int i = 0; i < PB_NAXES; i++) {
        const pb_axis a = order[i];
        if (t->size[a] == 1) continue;
        const int w = len < n ? snprintf(out + len, n - len, "%s%s=%d", len ? "," : "", axes[a].word, t->size[a]) : 0;
        len += w > 0 ? (size_t)w : 0;
    }
}

int pb_topology_at(const pb_topology *t, int rank, pb_axis axis)
{
    for (int a = 0; a < (int)axis; a++) rank /= t->size[a];
    return rank % t->size[axis];
}

int pb_topology_rank(const pb_topology *t, const int at[PB_NAXES])
{
    int rank = 0;
    for (int a = PB_NAXES - 1; a >= 0; a--) rank = rank * t->size[a] + at[a];
    return rank;
}

/* The number whose digits are the coordinates of `rank` on the axes of the set. */
static int number_on(const pb_topology *t, int rank, unsigned set)
{
    int number = 0;
    for (int a = PB_NAXES - 1; a >= 0; a--)
        if (set & 1u << a) number = number * t->size[a] + pb_topology_at(t, rank, (pb_axis)a);
    return number;
}

int pb_topology_group_size(const pb_topology *t, unsigned set)
{
    int size = 1;
    for (int a = 0; a < PB_NAXES; a++)
        if (set & 1u << a) size *= t->size[a];
    return size;
}

int pb_topology_colour(const pb_topology *t, int rank, unsigned set) { return number_on(t, rank, ~set); }
int pb_topology_index(const pb_topology *t, int rank, unsigned set) { return number_on(t, rank, set); }

int pb_topology_member(const pb_topology *t, int rank, unsigned set, int index)
{
    int at[PB_NAXES];
    for (int a = 0; a < PB_NAXES; a++) {
        at[a] = pb_topology_at(t, rank, (pb_axis)a);
        if (!(set & 1u << a)) continue;
        at[a] = index % t->size[a];
        index /= t->size[a];
    }
    return pb_topology_rank(t, at);
}
