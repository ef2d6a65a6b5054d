/* groups.c - reads metric groups and evaluates their formulas. */
#include "profiles/groups.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/file.h"

bool pb_group_on_cpu(const pb_counter_group *g) { return strcmp(g->chip, "cpu") == 0; }

/* ---- formulas -------------------------------------------------------------------------------------- */

/* A formula that is being evaluated. counts NULL: only its words are checked. */
typedef struct formula {
    const char *at;
    const pb_counter_group *g;
    const double *counts; /* [g->events], and of a sampled group the seconds after them */
    int depth;
    char error[96]; /* "": none so far */
} formula;

enum { DEPTH = 16 };

static double sum(formula *f);

static char peek(formula *f)
{
    while (*f->at == ' ' || *f->at == '\t') f->at++;
    return *f->at;
}

static double wrong(formula *f, const char *what)
{
    if (!*f->error) snprintf(f->error, sizeof f->error, "%s at '%.40s'", what, *f->at ? f->at : "its end");
    return (double)NAN;
}

static const char seconds[] = "seconds"; /* the length of a sample */

static double event(formula *f)
{
    size_t n = 0;
    while (isalnum((unsigned char)f->at[n]) || f->at[n] == '_') n++;
    for (int i = 0; i < f->g->events + f->g->sampled; i++) {
        const char *name = i < f->g->events ? f->g->event[i].name : seconds;
        if (strlen(name) != n || strncmp(name, f->at, n) != 0) continue;
        f->at += n;
        return f->counts ? f->counts[i] : 1;
    }
    return wrong(f, "no event has this name,");
}

static double operand(formula *f)
{
    const char c = peek(f);
    if (c == '(' && f->depth++ < DEPTH) {
        f->at++;
        const double x = sum(f);
        if (peek(f) != ')') return wrong(f, "a parenthesis is not closed,");
        f->at++;
        f->depth--;
        return x;
    }
    if (isdigit((unsigned char)c) || c == '.') {
        char *end;
        const double x = strtod(f->at, &end);
        if (end == f->at) return wrong(f, "no number,");
        f->at = end;
        return x;
    }
    return isalpha((unsigned char)c) ? event(f) : wrong(f, "a name, a number or a parenthesis is missing");
}

/* A quotient with divisor 0 is NaN, not infinite: the metric then has no value. */
static double product(formula *f)
{
    double x = operand(f);
    while (!*f->error && (peek(f) == '*' || *f->at == '/')) {
        const bool divides = *f->at++ == '/';
        const double y = operand(f);
        x = !divides ? x * y : y > 0 || y < 0 ? x / y : (double)NAN;
    }
    return x;
}

static double sum(formula *f)
{
    double x = product(f);
    while (!*f->error && (peek(f) == '+' || *f->at == '-')) {
        const bool minus = *f->at++ == '-';
        const double y = product(f);
        x = minus ? x - y : x + y;
    }
    return x;
}

static double evaluate(formula *f)
{
    const double x = sum(f);
    return peek(f) && !*f->error ? wrong(f, "an operator is missing") : x;
}

double pb_group_value(const pb_counter_group *g, int i, const double *counts)
{
    formula f = {.at = g->metric[i].formula, .g = g, .counts = counts};
    return evaluate(&f);
}

/* ---- one file -------------------------------------------------------------------------------------- */

typedef enum section { HEAD, EVENTS, METRICS, LONG } section;

/* Splits the first word off *rest and ends it; the rest has no blanks around it. */
static char *word(char **rest)
{
    char *s = *rest, *end = s + strcspn(s, " \t");
    *rest = end + strspn(end, " \t");
    *end = 0;
    return s;
}

/* Copies text into a member of n bytes. False: it is empty or too long. */
static bool keep(char *to, size_t n, const char *text)
{
    const bool fits = *text && strlen(text) < n;
    if (fits) strcpy(to, text); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): it fits */
    return fits;
}

static const char *head_line(pb_counter_group *g, const char *key, const char *value)
{
    char *end;
    if (strcmp(key, "SHORT") == 0)
        return keep(g->summary, sizeof g->summary, value) ? NULL : "SHORT needs up to 119 characters";
    if (strcmp(key, "CHIP") == 0)
        return keep(g->chip, sizeof g->chip, value) ? NULL : "CHIP needs the name of a chip, or cpu";
    if (strcmp(key, "READ") == 0) {
        g->sampled = strcmp(value, "sampled") == 0;
        return g->sampled || strcmp(value, "counted") == 0 ? NULL : "READ needs counted or sampled";
    }
    if (strcmp(key, "PASSES") != 0) return "a line of the head begins with SHORT, CHIP, PASSES or READ";
    const long n = strtol(value, &end, 10);
    if (n < 1 || n > 1000 || *end) return "PASSES needs a number from 1 to 1000";
    g->passes = (int)n;
    return NULL;
}

static const char *event_line(pb_counter_group *g, const char *name, const char *counter)
{
    static const char total[] = ".sum";
    const size_t n = strlen(counter), end = sizeof total - 1;
    if (g->events == PB_GROUP_EVENTS) return "a group has at most 24 events";
    pb_group_event *e = &g->event[g->events];
    if (!isalpha((unsigned char)*name) || !keep(e->name, sizeof e->name, name) ||
        !keep(e->counter, sizeof e->counter, counter) || strpbrk(counter, " \t"))
        return "an event has a name for formulas, and the name of one counter";
    if (!pb_group_on_cpu(g) && !g->sampled && (n <= end || strcmp(counter + n - end, total) != 0))
        return "a counter of a GPU must be a sum, NAME.sum, because the kernels of a call are added";
    if (g->sampled && strcmp(name, seconds) == 0) return "seconds is the length of a sample, so no event has this name";
    for (int i = 0; i < g->events; i++)
        if (strcmp(g->event[i].name, name) == 0) return "an event before has this name";
    g->events++;
    return NULL;
}

static const char *metric_line(pb_counter_group *g, const char *name, char *rest)
{
    static _Thread_local char why[128];
    const char *unit = word(&rest);
    if (g->metrics == PB_GROUP_METRICS) return "a group has at most 24 metrics";
    pb_group_metric *m = &g->metric[g->metrics];
    if (!keep(m->name, sizeof m->name, name) || !keep(m->unit, sizeof m->unit, unit) ||
        !keep(m->formula, sizeof m->formula, rest))
        return "a metric has a name, a unit and a formula";
    for (int i = 0; i < g->metrics; i++)
        if (strcmp(g->metric[i].name, name) == 0) return "a metric before has this name";
    formula f = {.at = m->formula, .g = g};
    (void)evaluate(&f);
    snprintf(why, sizeof why, "the formula is wrong: %s", f.error);
    if (*f.error) return why;
    g->metrics++;
    return NULL;
}

/* Returns what the head lacks, or says against itself; NULL: nothing. */
static const char *check_head(const pb_counter_group *g)
{
    if (!*g->summary || !*g->chip || !g->passes) return "SHORT, CHIP and PASSES must come first";
    if (g->sampled && (pb_group_on_cpu(g) || g->passes > 1)) return "a sampled group is of a GPU, and has PASSES 1";
    return NULL;
}

/* Reads a line into the group. Returns what is wrong with it; NULL: nothing. */
static const char *line_of(pb_counter_group *g, section *in, char *line)
{
    static const char *const titles[] = {NULL, "EVENTS", "METRICS", "LONG"};
    char *rest = line, *first = word(&rest);
    for (section s = EVENTS; s <= LONG && !*rest; s++) {
        if (strcmp(first, titles[s]) != 0) continue;
        if (s != *in + 1) return "the sections are EVENTS, METRICS and LONG, in this order";
        *in = s;
        return s == EVENTS ? check_head(g) : NULL;
    }
    if (*in == HEAD) return head_line(g, first, rest);
    return *in == EVENTS ? event_line(g, first, rest) : metric_line(g, first, rest);
}

static pb_status read_lines(FILE *f, const char *path, pb_counter_group *g)
{
    char line[256];
    section in = HEAD;
    for (int n = 1; fgets(line, sizeof line, f); n++) {
        size_t len = strcspn(line, "\n");
        if (!line[len] && len == sizeof line - 1) return pb_fail(PB_EINVAL, "%s:%d: the line is too long", path, n);
        while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r')) len--;
        line[len] = 0;
        if (in == LONG || !*line || *line == '#') continue;
        const char *why = line_of(g, &in, line + strspn(line, " \t"));
        if (why) return pb_fail(PB_EINVAL, "%s:%d: %s", path, n, why);
    }
    if (ferror(f)) return pb_fail(PB_EIO, "%s: it cannot be read", path);
    return g->metrics ? PB_OK : pb_fail(PB_EINVAL, "%s: it has no metrics", path);
}

pb_status pb_group_read(const char *path, pb_counter_group *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    FILE *f;
    *out = (pb_counter_group){.passes = 0};
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(name, "."), name);
    PB_TRY(pb_file_read(path, &f));
    const pb_status s = read_lines(f, path, out);
    fclose(f);
    return s;
}

/* ---- the folder ------------------------------------------------------------------------------------ */

const char *pb_group_folder(char buffer[PB_GROUP_PATH])
{
    char exe[512];
    const char *env = getenv("PB_GROUPS");
    if (env) {
        snprintf(buffer, PB_GROUP_PATH, "%s", env);
        return buffer;
    }
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[len < 0 ? 0 : len] = 0;
    for (int up = 0; up < 2; up++) { /* PREFIX/bin/bench becomes PREFIX */
        char *slash = strrchr(exe, '/');
        if (slash) *slash = 0;
    }
    snprintf(buffer, PB_GROUP_PATH, "%s/share/plumb/groups", exe);
    if (access(buffer, R_OK) != 0) snprintf(buffer, PB_GROUP_PATH, "%s", PB_SOURCE_GROUPS);
    return buffer;
}

static int is_group(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');
    return dot && dot != d->d_name && strcmp(dot, ".txt") == 0;
}

/* Lists the files of the groups, sorted; the caller frees the list with free_files(). */
static pb_status files(const char *folder, struct dirent ***out, int *n)
{
    *n = scandir(folder, out, is_group, alphasort);
    return *n >= 0 ? PB_OK : pb_fail(PB_EPATH, "%s: the folder of the metric groups cannot be read", folder);
}

static void free_files(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
}

static pb_status read_in(const char *folder, const char *file, pb_counter_group *out)
{
    char *path;
    PB_TRY(pb_path_join(folder, file, &path));
    const pb_status s = pb_group_read(path, out);
    free(path);
    return s;
}

pb_status pb_group_find(const char *name, pb_counter_group *out)
{
    char folder[PB_GROUP_PATH], names[256] = "", file[280];
    struct dirent **list;
    int n, at = -1;
    PB_TRY(files(pb_group_folder(folder), &list, &n));
    snprintf(file, sizeof file, "%.200s.txt", name);
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(names);
        if (strcmp(list[i]->d_name, file) == 0) at = i;
        snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "", (int)strlen(list[i]->d_name) - 4,
                 list[i]->d_name);
    }
    const pb_status s = at >= 0 ? read_in(folder, list[at]->d_name, out)
                                : pb_fail(PB_EINVAL, "there is no metric group '%.60s'; there are %s", name, names);
    free_files(list, n);
    return s;
}

pb_status pb_group_each(pb_status (*each)(void *user, const pb_counter_group *g), void *user)
{
    char folder[PB_GROUP_PATH];
    struct dirent **list;
    pb_counter_group g;
    pb_status s = PB_OK;
    int n;
    PB_TRY(files(pb_group_folder(folder), &list, &n));
    for (int i = 0; i < n && s == PB_OK; i++) {
        s = read_in(folder, list[i]->d_name, &g);
        if (s == PB_OK) s = each(user, &g);
    }
    free_files(list, n);
    return s;
}
