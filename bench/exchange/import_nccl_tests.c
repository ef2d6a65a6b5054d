/* import_nccl_tests.c - reads the output of nccl-tests: text with a table whose header names the columns, or JSON. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/exchange/import.h"

enum { MAX_TOKENS = 40, TOKEN = 64, LINE = 1024, MOST_HOSTS = 1024 };
enum { OUT_OF_PLACE, IN_PLACE, NPLACES };
static const char *const places[NPLACES] = {"out", "in"};

/* One result as text: message size, type, operation and root, and for each of the two places (out of place, in place)
 * what was measured. */
typedef struct result {
    const char *size, *type, *redop, *root;
    struct {
        const char *time, *algbw, *busbw, *wrong;
    } at[NPLACES];
} result;

typedef struct report {
    pb_import *im;
    const char *collective, *machine; /* interned */
    int ranks, hosts;
    const char *host[MOST_HOSTS]; /* interned, each name once */
    long long iterations;
} report;

/* Notes the host of a rank. */
static pb_status add_host(report *r, size_t line, const char *name, size_t n)
{
    const char *host = pb_intern(r->im->text, name, n);
    if (!host) return pb_fail(PB_ENOMEM, "import: out of memory");
    for (int i = 0; i < r->hosts; i++)
        if (strcmp(r->host[i], host) == 0) return PB_OK;
    if (r->hosts == MOST_HOSTS) return pb_import_bad(r->im, line, "more than 1024 hosts", "");
    r->host[r->hosts++] = host;
    return PB_OK;
}

/* Writes the collective's name, taken from the path of the program or, if the output names no program, of the file:
 * "/opt/all_reduce_perf" becomes "all_reduce". */
static pb_status collective_of(const report *r, size_t line, const char *program, char *out)
{
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    char text[TOKEN];
    size_t n = strcspn(name, ". \t\r\n");
    snprintf(text, sizeof text, "%.*s", (int)(n < TOKEN ? n : TOKEN - 1), name);
    char *perf = strstr(text, "_perf");
    if (perf && !perf[5]) *perf = 0;
    return pb_import_word(r->im, line, text, out);
}

static pb_status add_place(const report *r, size_t line, const result *x, int place)
{
    pb_case c = {.suite = "nccl-tests"};
    char ranks[16], hosts[16], wrong[96], *end = NULL;
    const char *w = x->at[place].wrong;
    snprintf(ranks, sizeof ranks, "%d", r->ranks);
    snprintf(hosts, sizeof hosts, "%d", r->hosts);
    PB_TRY(collective_of(r, line, r->collective, c.name));
    if (r->hosts > 1) PB_TRY(pb_import_axis(r->im, line, &c, "hosts", hosts));
    PB_TRY(pb_import_axis(r->im, line, &c, "place", places[place]));
    if (r->ranks) PB_TRY(pb_import_axis(r->im, line, &c, "ranks", ranks));
    PB_TRY(pb_import_axis(r->im, line, &c, "redop", x->redop));
    PB_TRY(pb_import_axis(r->im, line, &c, "root", x->root));
    PB_TRY(pb_import_axis(r->im, line, &c, "size", x->size));
    PB_TRY(pb_import_axis(r->im, line, &c, "type", x->type));
    const char *note = strcmp(w, "N/A") == 0 ? "not validated" : "";
    double errors = *note ? 0 : strtod(w, &end);
    if (!*note && (end == w || *end)) return pb_import_bad(r->im, line, "not a number: ", w);
    if (!(errors <= 0)) { /* the time of a wrong result is not imported */
        snprintf(wrong, sizeof wrong, "%s elements were wrong", w);
        return pb_import_outcome(r->im, line, &c, r->machine, "time", PB_ROW_WRONG, wrong);
    }
    PB_TRY(pb_import_figure(r->im, line, &c, r->machine, "time", 1e-6, x->at[place].time, r->iterations, note));
    PB_TRY(pb_import_figure(r->im, line, &c, r->machine, "algorithm_bandwidth", 1e9, x->at[place].algbw, 0, note));
    return pb_import_figure(r->im, line, &c, r->machine, "bus_bandwidth", 1e9, x->at[place].busbw, 0, note);
}

/* ---- reading the text output of nccl-tests --------------------------------------------------------- */

typedef struct table {
    report r;
    size_t line;
    char *token[MAX_TOKENS]; /* words of the current line */
    int ntokens, ncolumns;   /* ntokens: words of the line; ncolumns: columns of the header, 0: no header yet */
    /* column indices; place[0], place[1]: the columns of the out-of-place and the in-place time */
    int size, type, redop, root, place[NPLACES], nplaces;
    int algbw, busbw, wrong; /* column offsets from a place's time */
    bool cut, stamped; /* cut: a table began and has not ended; stamped: the last column is a timestamp of two words */
} table;

static void split(table *t, char *line)
{
    char *rest = NULL;
    t->ntokens = 0;
    for (char *w = strtok_r(line, " \t\r\n", &rest); w && t->ntokens < MAX_TOKENS; w = strtok_r(NULL, " \t\r\n", &rest))
        t->token[t->ntokens++] = w;
}

/* Finds a column by its name, from index `from` on. -1: not found. token[0] is the '#' of the header line. */
static int column(const table *t, int from, const char *name)
{
    for (int i = from; i < t->ncolumns; i++)
        if (!strcmp(t->token[i + 1], name)) return i;
    return -1;
}

/* Reads the header "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong". */
static pb_status header(table *t)
{
    t->ncolumns = t->ntokens - 1;
    t->stamped = !strcmp(t->token[t->ntokens - 1], "timestamp");
    t->ncolumns -= t->stamped;
    if (column(t, 0, "cputime") >= 0)
        return pb_import_bad(t->r.im, t->line, "the times are those of the host (-C), not of the collective", "");
    if (column(t, 0, "#wrong") < 0)
        return pb_import_bad(t->r.im, t->line, "no column '#wrong': this nccl-tests is too old to report wrong results",
                             "");
    t->size = column(t, 0, "size");
    t->type = column(t, 0, "type");
    t->redop = column(t, 0, "redop");
    t->root = column(t, 0, "root");
    t->nplaces = 0;
    for (int i = column(t, 0, "time"); i >= 0 && t->nplaces < NPLACES; i = column(t, i + 1, "time"))
        t->place[t->nplaces++] = i;
    int first = t->nplaces ? t->place[0] : 0;
    t->algbw = column(t, first, "algbw") - first;
    t->busbw = column(t, first, "busbw") - first;
    t->wrong = column(t, first, "#wrong") - first;
    bool apart = t->nplaces == NPLACES && t->algbw > 0 && t->busbw > 0 && t->wrong > 0 &&
                 t->place[1] + t->wrong < t->ncolumns && t->algbw < t->place[1] - first &&
                 t->busbw < t->place[1] - first && t->wrong < t->place[1] - first;
    if (t->size < 0 || t->type < 0 || !apart)
        return pb_import_bad(t->r.im, t->line, "the header lacks a column that nccl-tests prints", "");
    t->cut = true;
    return PB_OK;
}

static pb_status row(table *t)
{
    char counts[64];
    if (!t->ncolumns) return PB_OK; /* not a result: the line begins with a number, but no table has begun */
    if (t->ntokens != t->ncolumns + 2 * t->stamped && t->ntokens != t->ncolumns + t->stamped) {
        snprintf(counts, sizeof counts, "%d fields where the header has %d columns", t->ntokens, t->ncolumns);
        return pb_import_bad(t->r.im, t->line, counts, "");
    }
    result x = {.size = t->token[t->size],
                .type = t->token[t->type],
                .redop = t->redop < 0 ? "none" : t->token[t->redop],
                .root = t->root < 0 ? "-1" : t->token[t->root]};
    for (int p = 0; p < NPLACES; p++) {
        char **at = &t->token[t->place[p]];
        x.at[p].time = at[0];
        x.at[p].algbw = at[t->algbw];
        x.at[p].busbw = at[t->busbw];
        x.at[p].wrong = at[t->wrong];
        PB_TRY(add_place(&t->r, t->line, &x, p));
    }
    return PB_OK;
}

/* Reads "#  Rank  0 Group  0 Pid  31 on host device  0 [0000:04:00] NVIDIA H200": counts the ranks and
 * their hosts, and takes the device's name from the first rank. */
static pb_status rank_line(table *t, const char *line, const char **device)
{
    const char *name = strchr(line, ']'), *host = strstr(line, " on ");
    t->r.ranks++;
    if (host) {
        host += 4 + strspn(host + 4, " ");
        PB_TRY(add_host(&t->r, t->line, host, strcspn(host, " \r\n")));
    }
    if (name && !**device) {
        name += 1 + strspn(name + 1, " ");
        *device = pb_intern(t->r.im->text, name, strcspn(name, "\r\n"));
        if (!*device) return pb_fail(PB_ENOMEM, "import: out of memory");
    }
    t->r.machine = pb_import_machine(t->r.im, t->r.ranks, *device);
    return t->r.machine ? PB_OK : pb_fail(PB_ENOMEM, "import: out of memory");
}

static pb_status comment(table *t, char *line, const char **device)
{
    static const char starting[] = "# Collective test starting:";
    const char *iters = strstr(line, " warmup iters: "), *of = iters ? strstr(iters + 15, " iters: ") : NULL;
    if (!strncmp(line, starting, strlen(starting))) {
        const char *name = line + strlen(starting) + strspn(line + strlen(starting), " ");
        t->r.collective = pb_intern(t->r.im->text, name, strcspn(name, "\r\n"));
        if (!t->r.collective) return pb_fail(PB_ENOMEM, "import: out of memory");
    }
    if (of) t->r.iterations = strtoll(of + 8, NULL, 10) > 0 ? strtoll(of + 8, NULL, 10) : 0;
    if (strstr(line, "Using devices")) t->r.ranks = t->r.hosts = 0, *device = "";
    if (strstr(line, "Out of bounds values")) t->cut = false;
    if (!strncmp(line + 1 + strspn(line + 1, " "), "Rank ", 5)) return rank_line(t, line, device);
    split(t, line);
    bool names = t->ntokens > 3 && !strcmp(t->token[1], "size") && !strcmp(t->token[2], "count");
    return names ? header(t) : PB_OK;
}

/* Reads a comment ('#') or a row (its first word is a number). Other lines are ignored: they come from NCCL's log or
 * from mpirun. */
static pb_status read_line(table *t, char *line, const char **device)
{
    size_t blanks = strspn(line, " \t");
    if (line[blanks] == '#') return comment(t, line + blanks, device);
    if (!isdigit((unsigned char)line[blanks])) return PB_OK;
    split(t, line);
    for (const char *c = t->ntokens ? t->token[0] : ""; *c; c++)
        if (!isdigit((unsigned char)*c)) return PB_OK;
    return row(t);
}

static pb_status read_text(pb_import *im, const char *bytes, size_t n)
{
    table t = {.r = {.im = im, .collective = im->file, .machine = ""}, .line = 1};
    char line[LINE];
    const char *device = "";
    for (; n; t.line++) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) + 1 : n;
        if (!end) return pb_import_bad(im, t.line, "cut off: the last line has no newline", "");
        snprintf(line, sizeof line, "%.*s", (int)(len < LINE ? len : LINE - 1), bytes);
        PB_TRY(read_line(&t, line, &device));
        bytes += len;
        n -= len;
    }
    if (!t.ncolumns) return pb_import_bad(im, 0, "not what nccl-tests prints: no line '# size count ...'", "");
    if (t.cut) return pb_import_bad(im, t.line - 1, "cut off: no line '# Out of bounds values' ends the table", "");
    return PB_OK;
}

/* ---- reading the JSON of nccl-tests ---------------------------------------------------------------- */

static pb_status bad(const report *r, size_t i, const char *what, const char *detail)
{
    char text[160];
    snprintf(text, sizeof text, "results[%zu]: %s", i, what);
    return pb_import_bad(r->im, 0, text, detail);
}

/* Returns a JSON number, or a string such as "nan", as interned text. NULL: another type, or out of memory. */
static const char *number_text(const report *r, const json_t *v)
{
    char text[64];
    if (json_is_integer(v)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else if (json_is_number(v)) snprintf(text, sizeof text, "%.17g", json_number_value(v));
    else if (json_is_string(v)) {
        const char *s = json_string_value(v);
        snprintf(text, sizeof text, "%.60s", s + strspn(s, " "));
    } else return NULL;
    return pb_intern(r->im->text, text, strlen(text));
}

static pb_status json_place(const report *r, size_t i, const json_t *o, int place, result *x)
{
    const json_t *wrong = json_object_get(o, "nwrong");
    if (json_object_get(o, "cpu_time"))
        return bad(r, i, "the times are those of the host (-C), not of the collective", "");
    x->at[place].time = number_text(r, json_object_get(o, "time"));
    x->at[place].algbw = number_text(r, json_object_get(o, "alg_bw"));
    x->at[place].busbw = number_text(r, json_object_get(o, "bus_bw"));
    x->at[place].wrong = json_is_null(wrong) ? "N/A" : number_text(r, wrong);
    if (!x->at[place].time || !x->at[place].algbw || !x->at[place].busbw || !x->at[place].wrong)
        return bad(r, i, "time, alg_bw, bus_bw or nwrong is missing; place: ", places[place]);
    return add_place(r, 0, x, place);
}

static pb_status json_result(const report *r, size_t i, const json_t *o)
{
    static const char *const names[NPLACES] = {"out_of_place", "in_place"};
    result x = {.size = number_text(r, json_object_get(o, "size")),
                .type = json_string_value(json_object_get(o, "type")),
                .redop = json_string_value(json_object_get(o, "redop")),
                .root = number_text(r, json_object_get(o, "root"))};
    int measured = 0;
    if (!x.size || !x.type || !x.redop || !x.root) return bad(r, i, "size, type, redop or root is missing", "");
    for (int p = 0; p < NPLACES; p++) {
        const json_t *at = json_object_get(o, names[p]);
        if (!json_is_object(at)) continue;
        PB_TRY(json_place(r, i, at, p, &x));
        measured++;
    }
    return measured ? PB_OK : bad(r, i, "out_of_place and in_place are missing", "");
}

static pb_status read_document(pb_import *im, const json_t *root)
{
    const json_t *results = json_object_get(root, "results"), *config = json_object_get(root, "config");
    const json_t *devices = json_object_get(config, "devices"), *args = json_object_get(root, "args");
    report r = {.im = im, .collective = im->file, .machine = ""};
    const char *program = json_string_value(json_array_get(args, 0));
    const char *device = json_string_value(json_object_get(json_array_get(devices, 0), "device_info"));
    if (!json_is_array(results)) return pb_import_bad(im, 0, "not the JSON of nccl-tests: no list 'results'", "");
    if (!json_is_object(json_object_get(root, "out_of_bounds")))
        return pb_import_bad(im, 0, "cut off: no 'out_of_bounds' ends the results", "");
    /* `devices` has an entry per process. */
    double ranks = json_number_value(json_object_get(config, "nthreads")) *
                   json_number_value(json_object_get(config, "ngpus")) * (double)json_array_size(devices);
    if (ranks >= 1 && ranks < 1e6) r.ranks = (int)ranks;
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *host = json_string_value(json_object_get(json_array_get(devices, i), "hostname"));
        if (host) PB_TRY(add_host(&r, 0, host, strlen(host)));
    }
    r.iterations = json_integer_value(json_object_get(config, "iterations"));
    if (r.iterations < 0) r.iterations = 0;
    if (program) r.collective = program;
    if (device) r.machine = pb_import_machine(im, r.ranks, device);
    if (!r.machine) return pb_fail(PB_ENOMEM, "import: out of memory");
    for (size_t i = 0; i < json_array_size(results); i++) PB_TRY(json_result(&r, i, json_array_get(results, i)));
    return PB_OK;
}

pb_status pb_import_nccl_tests(pb_import *im, const char *bytes, size_t n)
{
    json_t *root;
    if (!pb_import_is_json(bytes, n)) return read_text(im, bytes, n);
    PB_TRY(pb_import_json(im, bytes, n, &root));
    pb_status s = read_document(im, root);
    json_decref(root);
    return s;
}
