/* baseline_show.c - lists stored baselines and their sessions. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/baseline.h"
#include "os/text.h"

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.' && pb_is_printable(e->d_name); }

/* The rows of one session in a baseline file. */
typedef struct stored_session {
    const pb_row *first;
    size_t n;
    long long processes; /* the fewest processes of a row, requirements and crossovers excepted */
} stored_session;

static stored_session session_from(const pb_table *t, size_t from)
{
    stored_session p = {&t->rows[from], 0, t->rows[from].process};
    for (size_t i = from; i < t->n && t->rows[i].run_id == p.first->run_id; i++, p.n++)
        if (t->rows[i].process < p.processes && !pb_baseline_derived(t->rows[i].key)) p.processes = t->rows[i].process;
    return p;
}

static void print_session(stored_session p, FILE *out)
{
    const bool stored = pb_stored(p.first->run_id);
    fprintf(out, "%zu rows, %lld processes, bench_version %s, from %s%s%s\n", p.n, p.processes, p.first->bench_version,
            p.first->run_id + (stored ? strlen(PB_BASELINE_RUN) : 0), *p.first->note ? ": " : "", p.first->note);
}

static pb_status show_file(const char *machine_id, const char *path, const char *name, FILE *out)
{
    pb_table t;
    int sessions = 0;
    PB_TRY(pb_table_read(path, &t));
    for (size_t i = 0; i < t.n; i += session_from(&t, i).n) sessions++;
    if (t.n) fprintf(out, "%s %.*s: ", machine_id, (int)strcspn(name, "."), name);
    if (sessions > 1) fprintf(out, "%d sessions\n", sessions);
    for (size_t i = 0; i < t.n;) {
        const stored_session p = session_from(&t, i);
        if (sessions > 1) fputs("  ", out);
        print_session(p, out);
        i += p.n;
    }
    pb_table_free(&t);
    return PB_OK;
}

static pb_status show_machine(const char *baselines, const char *machine_id, FILE *out, int *shown)
{
    char folder[PB_PATH_TEXT], path[2 * PB_PATH_TEXT];
    struct dirent **files;
    pb_status s = PB_OK;
    snprintf(folder, sizeof folder, "%s/%s", baselines, machine_id);
    int n = scandir(folder, &files, not_hidden, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = files[i]->d_name, *dot = strrchr(name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (s == PB_OK && dot && !strcmp(dot, ".csv")) {
            s = show_file(machine_id, path, name, out);
            ++*shown;
        }
        free(files[i]);
    }
    if (n >= 0) free(files);
    return s;
}

pb_exit pb_baseline_show(const char *machine_id, const pb_baseline_opts *o, FILE *out)
{
    struct dirent **machines;
    pb_status s = PB_OK;
    int shown = 0, n = scandir(pb_baseline_folder(o->baselines), &machines, not_hidden, alphasort);
    if (n < 0) {
        return pb_file_exit(pb_fail_errno(errno, "%s", pb_baseline_folder(o->baselines)));
    }
    for (int i = 0; i < n; i++) {
        if (s == PB_OK && (!machine_id || !strcmp(machine_id, machines[i]->d_name)))
            s = show_machine(pb_baseline_folder(o->baselines), machines[i]->d_name, out, &shown);
        free(machines[i]);
    }
    free(machines);
    if (s == PB_OK && !shown)
        s = pb_fail(PB_EINVAL, "%s: no baseline%s%s; save one with `bench baseline save`",
                    pb_baseline_folder(o->baselines), machine_id ? " of " : "", machine_id ? machine_id : "");
    return pb_file_exit(s);
}
