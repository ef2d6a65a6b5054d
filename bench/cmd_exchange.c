/* cmd_exchange.c - `bench export` writes a run in another tool's format; `bench import` turns another tool's results
 * into a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/exchange/exchange.h"
#include "bench/machine/machine.h"
#include "bench/rows/rows.h"
#include "bench/run/run.h"
#include "os/draft.h"
#include "os/file.h"
#include "os/page.h"

/* ---- bench export --------------------------------------------------------------------------------- */

static pb_status export_file(const char *run, const pb_export_opts *o, const char *path)
{
    char results[PB_PATH_TEXT + 16];
    pb_page p;
    snprintf(results, sizeof results, "%s/results.csv", run);
    if (pb_same_file(path, run) || pb_same_file(path, results))
        return pb_fail(PB_EINVAL, "--out %.400s: these are the results to be exported", path);
    if (pb_is_run_file(path))
        return pb_fail(PB_EINVAL, "--out %.400s: this file belongs to a run: give another name", path);
    PB_TRY(pb_page_open(&p));
    PB_TRY(pb_page_save(&p, pb_export(run, o, p.f, stderr), pb_file_replace, path));
    printf("%s\n", path);
    return PB_OK;
}

/* Writes the two files that github-action-benchmark needs, one per direction: NAME.smaller.json holds metrics where
 * smaller is better, NAME.bigger.json those where bigger is better. */
static pb_status export_both(const char *run, pb_export_opts o, const char *out)
{
    static const char *const parts[2][2] = {{"lower", "smaller"}, {"higher", "bigger"}};
    char path[PB_PATH_TEXT];
    bool written = false; /* true: at least one file was written; a run may lack metrics of one direction */
    const char *slash = strrchr(out, '/'), *dot = strrchr(out, '.');
    if (!dot || (slash && dot < slash)) dot = out + strlen(out);
    for (int i = 0; i < 2; i++) {
        o.better = parts[i][0];
        int n = snprintf(path, sizeof path, "%.*s.%s%s", (int)(dot - out), out, parts[i][1], dot);
        if (n >= (int)sizeof path) return pb_fail(PB_EINVAL, "--out: the path is too long (%d characters)", n);
        pb_status s = export_file(run, &o, path);
        if (s != PB_OK && (s != PB_EFORMAT || (i && !written))) return s;
        written |= s == PB_OK;
    }
    return PB_OK;
}

pb_exit pb_cmd_export(const pb_options *o)
{
    const pb_export_opts opts = {.to = o->to, .runs = o->runs, .better = o->better};
    const char *run = o->args.n ? o->args.v[0] : NULL;
    const bool gab = o->to && !strcmp(o->to, "gab");
    char newest[PB_PATH_TEXT];
    pb_status s = o->args.n > 1 ? pb_fail(PB_EINVAL, "export takes at most 1 argument") : PB_OK;
    if (s == PB_OK && o->better && !gab) s = pb_fail(PB_EINVAL, "--better is only for --to gab");
    if (s == PB_OK && gab && !o->better && !o->out)
        s = pb_fail(PB_EINVAL,
                    "--to gab writes one direction per file: add --better lower|higher, or --out NAME.json for both");
    if (s == PB_OK && !run && o->out) {
        s = pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
        run = newest;
    }
    if (s == PB_OK)
        s = gab && !o->better ? export_both(run, opts, o->out)
            : o->out          ? export_file(run, &opts, o->out)
                              : pb_export(run, &opts, stdout, stderr);
    return s == PB_OK ? PB_EXIT_OK : pb_complain_of(s);
}

/* ---- bench import --------------------------------------------------------------------------------- */

static pb_status read_files(const pb_options *o, pb_import *im)
{
    for (int i = 1; i < o->args.n; i++) PB_TRY(pb_import_file(im, o->args.v[i]));
    return pb_import_finish(im);
}

/* Sets `out` to this machine's id when an imported row has no machine id of its own; otherwise to "". */
static pb_status this_machine(const pb_import *im, char out[PB_MACHINE_TEXT])
{
    bool needed = false;
    *out = 0;
    for (size_t i = 0; i < im->n; i++) needed |= !*im->row[i].machine;
    json_t *fingerprint = needed ? pb_fingerprint(PB_CPU, 0) : NULL;
    if (needed && !fingerprint) return PB_ENOMEM;
    if (needed) pb_machine_id(fingerprint, out);
    json_decref(fingerprint);
    return PB_OK;
}

static json_t *describe(const pb_options *o, const pb_run_name *name, const char *machine_id)
{
    json_t *files = json_array();
    for (int i = 1; i < o->args.n; i++) {
        json_t *path = json_string(o->args.v[i]);
        json_array_append_new(files, path ? path : json_string("(not UTF-8)"));
    }
    return json_pack("{s:s,s:s,s:s,s:s,s:{s:s,s:o}}", "bench_version", o->args.v[0], "run_id", name->run_id,
                     "machine_id", machine_id, "time_utc", name->time_utc, "imported", "tool", o->args.v[0], "files",
                     files);
}

static pb_status fill_folder(const pb_options *o, const pb_import *im, const pb_run_name *name, const char *machine,
                             const char *results)
{
    pb_page p;
    PB_TRY(pb_page_open(&p));
    pb_import_write(im, name->run_id, machine, p.f);
    PB_TRY(pb_page_save(&p, PB_OK, pb_file_replace, results));
    json_t *about = describe(o, name, *im->row[0].machine ? im->row[0].machine : machine);
    const pb_status s =
        about ? pb_run_json_write(name->dir, about, false) : pb_fail(PB_ENOMEM, "out of memory for run.json");
    json_decref(about);
    return s;
}

/* Creates all files of the run. After a failure it removes them again, so that the command can be repeated with the
 * same folder. */
static pb_status write_run(const pb_options *o, const pb_import *im)
{
    static const char *const made[] = {"results.csv", "samples.csv", "run.json"};
    pb_run_name name;
    char machine[PB_MACHINE_TEXT], path[PB_PATH_TEXT + 16];
    PB_TRY(this_machine(im, machine));
    pb_run_name_new(im->tool, o->out, &name);
    PB_TRY(pb_run_make_folder(name.dir));
    PB_TRY(pb_results_create(name.dir));
    snprintf(path, sizeof path, "%s/results.csv", name.dir);
    const pb_status s = fill_folder(o, im, &name, machine, path);
    for (size_t i = 0; s != PB_OK && i < sizeof made / sizeof *made; i++) (void)pb_folder_remove(name.dir, made[i]);
    PB_TRY(s);
    printf("imported %zu rows from %d file%s\n", im->n, im->nfiles, im->nfiles == 1 ? "" : "s");
    if (im->left_out)
        fprintf(stderr, "bench: %s: %zu values are left out, because bench has no metric for them\n", im->tool,
                im->left_out);
    printf("results: %s\n", path);
    return PB_OK;
}

pb_exit pb_cmd_import(const pb_options *o)
{
    pb_import im;
    pb_status s = pb_import_open(o->args.n ? o->args.v[0] : "", &im);
    if (s != PB_OK) return pb_complain_of(s);
    s = read_files(o, &im);
    if (s == PB_OK) s = write_run(o, &im);
    pb_import_close(&im);
    return s == PB_OK ? PB_EXIT_OK : pb_complain_of(s);
}
