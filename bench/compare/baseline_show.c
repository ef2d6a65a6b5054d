/* baseline_show.c - lists stored baselines and kept sessions. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare/baseline.h"
#include "bench/compare/kept_sessions.h"
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

/* True if the header of a CSV file has the column bench_version, as results of `bench run` have. A machine's folder
 * also holds tables of other programs, such as gate_score.csv of scripts/gate-score. */
static bool has_results(const char *path)
{
    char header[512] = "";
    FILE *f = fopen(path, "rb");
    if (!f) return true; /* reading it gives the error */
    const bool read = fgets(header, sizeof header, f) != NULL;
    fclose(f);
    return !read || strstr(header, "bench_version") != NULL;
}

/* Shows the files of a folder. label: what is printed before the name of each suite. */
static pb_status show_folder(const char *parent, const char *name, const char *label, FILE *out, int *shown)
{
    char folder[2 * PB_PATH_TEXT], path[3 * PB_PATH_TEXT];
    struct dirent **files;
    pb_status s = PB_OK;
    snprintf(folder, sizeof folder, "%s/%s", parent, name);
    int n = scandir(folder, &files, not_hidden, alphasort);
    for (int i = 0; i < n; i++) {
        const char *file = files[i]->d_name, *dot = strrchr(file, '.');
        snprintf(path, sizeof path, "%s/%s", folder, file);
        if (s == PB_OK && dot && !strcmp(dot, ".csv")) {
            if (has_results(path)) s = show_file(label, path, file, out);
            else fprintf(out, "%s %s: a table of another program, no sessions\n", label, file);
            ++*shown;
        }
        free(files[i]);
    }
    if (n >= 0) free(files);
    return s;
}

/* Shows the baselines of a machine in `parent`, or its kept sessions: those have a folder for each host. */
static pb_status show_machine(const char *parent, const char *machine_id, bool kept, FILE *out, int *shown)
{
    char machine[2 * PB_PATH_TEXT], label[2 * PB_PATH_TEXT];
    struct dirent **hosts;
    pb_status s = PB_OK;
    if (!kept) return show_folder(parent, machine_id, machine_id, out, shown);
    snprintf(machine, sizeof machine, "%s/%s", parent, machine_id);
    int n = scandir(machine, &hosts, not_hidden, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(label, sizeof label, "kept: %s, host %s,", machine_id, hosts[i]->d_name);
        if (s == PB_OK) s = show_folder(machine, hosts[i]->d_name, label, out, shown);
        free(hosts[i]);
    }
    if (n >= 0) free(hosts);
    return s;
}

/* Shows the machines in `parent`; machine_id NULL: all. EPATH: the folder cannot be read. */
static pb_status show_machines(const char *parent, const char *machine_id, bool kept, FILE *out, int *shown)
{
    struct dirent **machines;
    pb_status s = PB_OK;
    int n = scandir(parent, &machines, not_hidden, alphasort);
    if (n < 0) return pb_fail_errno(errno, "%s", parent);
    for (int i = 0; i < n; i++) {
        if (s == PB_OK && (!machine_id || !strcmp(machine_id, machines[i]->d_name)))
            s = show_machine(parent, machines[i]->d_name, kept, out, shown);
        free(machines[i]);
    }
    free(machines);
    return s;
}

pb_exit pb_baseline_show(const char *machine_id, const pb_baseline_opts *o, FILE *out)
{
    const char *baselines = pb_baseline_folder(o->baselines);
    char kept[PB_PATH_TEXT];
    int shown = 0;
    pb_status s = pb_kept_root(kept, sizeof kept);
    const bool has_kept = s == PB_OK && *kept && access(kept, F_OK) == 0;
    if (has_kept) s = show_machines(kept, machine_id, true, out, &shown);
    else s = PB_OK;
    if (s == PB_OK && !(shown && access(baselines, F_OK) != 0))
        s = show_machines(baselines, machine_id, false, out, &shown);
    if (s == PB_OK && !shown)
        s = pb_fail(PB_EINVAL, "%s: no baseline%s%s; save one with `bench baseline save`", baselines,
                    machine_id ? " of " : "", machine_id ? machine_id : "");
    return pb_file_exit(s);
}
