/* history.c - `bench history`: reads the sessions and writes them in the chosen format. */
#include "bench/history/history_command.h"

#include <string.h>

#include "bench/history/history_formats.h"
#include "os/draft.h"
#include "os/page.h"

static pb_status print(const pb_history_rows *h, const pb_history_opts *o, FILE *out, FILE *notes)
{
    const char *format = o->format ? o->format : "text";
    if (!strcmp(format, "otava")) return pb_history_otava(h, out, notes);
    if (!strcmp(format, "csv")) pb_history_csv(h, out);
    else pb_history_text(h, o, out);
    return PB_OK;
}

static pb_status print_to_file(const pb_history_rows *h, const pb_history_opts *o, FILE *out, FILE *notes)
{
    pb_page p;
    PB_TRY(pb_page_open(&p));
    PB_TRY(pb_page_save(&p, print(h, o, p.f, notes), pb_file_replace, o->out));
    fprintf(out, "wrote %s\n", o->out);
    return PB_OK;
}

/* Writes the configuration next to the CSV file: NAME.yaml for NAME.csv. */
static pb_status save_config(const pb_history_rows *h, const pb_history_opts *o, FILE *out)
{
    char path[PB_PATH_TEXT];
    pb_page p;
    const char *slash = strrchr(o->out, '/'), *dot = strrchr(o->out, '.');
    if (!dot || (slash && dot < slash)) dot = o->out + strlen(o->out);
    const int n = snprintf(path, sizeof path, "%.*s.yaml", (int)(dot - o->out), o->out);
    if (n >= (int)sizeof path) return pb_fail(PB_EINVAL, "--out: the path is too long (%d characters)", n);
    PB_TRY(pb_page_open(&p));
    PB_TRY(pb_page_save(&p, pb_history_otava_config(h, o->out, p.f), pb_file_replace, path));
    fprintf(out, "wrote %s\n", path);
    return PB_OK;
}

static pb_status write_history(const pb_history_rows *h, const pb_history_opts *o, FILE *out, FILE *notes)
{
    if (h->other_version)
        fprintf(notes, "bench: history: %d values left out: they are of another bench_version\n", h->other_version);
    if (o->format && !strcmp(o->format, "svg")) return pb_history_svg(h, o, out);
    if (!o->out) return print(h, o, out, notes);
    PB_TRY(print_to_file(h, o, out, notes));
    return o->format && !strcmp(o->format, "otava") ? save_config(h, o, out) : PB_OK;
}

pb_exit pb_history(const pb_history_opts *o, FILE *out, FILE *notes)
{
    pb_history_rows h;
    pb_status s = pb_history_rows_read(o, &h);
    if (s == PB_OK) s = write_history(&h, o, out, notes);
    pb_history_rows_free(&h);
    return s == PB_OK ? PB_EXIT_OK : (pb_exit)pb_status_exit(s);
}
