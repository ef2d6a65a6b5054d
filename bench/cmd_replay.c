/* cmd_replay.c - `bench replay`: runs the op calls of a capture again, and prints how their outputs compare with the
 * captured ones. */
#include <string.h>

#include "bench/commands.h"
#include "bench/text/text.h"
#include "cli/hint.h"
#include "trainer/capture/replay.h"

enum { ROOM = PB_CAPTURE_CALLS * PB_MAX_BOUND };

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const char *const heads[] = {"call",  "tensor", "shape",       "ran",     "not finite", "now",
                                    "moved", "first",  "relative L2", "largest", "bound",      "result"};
enum { COLUMNS = sizeof heads / sizeof *heads, LABELS = 2 };

/* Writes the cells of a row. "not finite": elements when it was captured; "now": in this replay. The first element that
 * moved, or is not finite, is shown as "row,column". */
static void print_row(const pb_replay_row *r, pb_grid *g, int row)
{
    char text[COLUMNS][64];
    const bool special = r->captured || r->now;
    snprintf(text[0], 64, "%d", r->call);
    snprintf(text[1], 64, "%s", r->tensor);
    snprintf(text[2], 64, "[%zu,%zu]", r->rows, r->cols);
    snprintf(text[3], 64, "%s", r->impl);
    snprintf(text[4], 64, "%zu", r->captured);
    snprintf(text[5], 64, "%zu", r->now);
    snprintf(text[6], 64, "%zu", r->moved);
    if (special) snprintf(text[7], 64, "%zu,%zu", r->first / r->cols, r->first % r->cols);
    else snprintf(text[7], 64, "-");
    snprintf(text[8], 64, "%.3g", r->rel);
    snprintf(text[9], 64, "%.3g", r->max);
    snprintf(text[10], 64, "%.3g", r->bound);
    snprintf(text[11], 64, "%s", !r->agrees ? "DIFFERS" : r->same_bits ? "same bits" : "agrees");
    for (int i = 0; i < COLUMNS; i++) pb_grid_set(g, row, i, text[i]);
}

static pb_status print_table(const pb_replay_row *rows, int n)
{
    pb_strings *text = pb_strings_new();
    pb_grid g;
    if (!text || !pb_grid_open(&g, text, n + 1, COLUMNS, LABELS)) {
        pb_strings_free(text);
        return pb_fail(PB_ENOMEM, "no memory for the table");
    }
    for (int i = 0; i < COLUMNS; i++) pb_grid_set(&g, 0, i, heads[i]);
    for (int i = 0; i < n; i++) print_row(&rows[i], &g, i + 1);
    pb_grid_print(&g, stdout);
    pb_grid_close(&g);
    pb_strings_free(text);
    return PB_OK;
}

static void print_head(const pb_captured *c)
{
    static const char *const names[PB_CAPTURE_NOTES] = {
#define X(key, what) #key,
        PB_CAPTURE_NOTE_MAP(X)
#undef X
    };
    for (int k = 0; k < PB_CAPTURE_NOTES; k++)
        if (pb_captured_note(c, (pb_capture_key)k))
            printf("%-8s %s\n", names[k], pb_captured_note(c, (pb_capture_key)k));
    for (int i = 0; i < pb_captured_calls(c); i++) printf("call %d   %s\n", i, pb_captured_text(c, i));
}

/* ---- running ----------------------------------------------------------------------------------------------- */

/* The implementation must be one of an op of the capture: a misspelt one must not count as a replay. */
static pb_status check_impl(const pb_captured *c, pb_backend_id backend, const char *impl)
{
    pb_hint hint = {.word = impl};
    if (!impl) return PB_OK;
    for (int i = 0; i < pb_captured_calls(c); i++)
        for (const pb_impl *x = pb_captured_op(c, i)->impls[backend]; x->name; x++) {
            if (strcmp(x->name, impl) == 0) return PB_OK;
            pb_hint_try(&hint, x->name);
        }
    return pb_fail(PB_EINVAL, "--impl %.40s: no op of the capture has it on %s%s", impl, pb_backend_name(backend),
                   pb_hint_text(&hint));
}

static pb_status replay(const pb_captured *c, pb_ctx *ctx, const char *impl, bool *agree)
{
    pb_replay_row rows[ROOM];
    int n = 0;
    for (int i = 0; i < pb_captured_calls(c); i++) {
        int more;
        PB_TRY(pb_captured_replay(c, i, ctx, impl, rows + n, &more));
        n += more;
    }
    *agree = true;
    for (int i = 0; i < n; i++) *agree = *agree && rows[i].agrees;
    print_head(c);
    return print_table(rows, n);
}

pb_exit pb_cmd_replay(const pb_options *o)
{
    pb_captured *c = NULL;
    pb_backend_id backend = PB_CPU;
    pb_ctx ctx;
    bool agree = false;
    pb_status s =
        o->args.n == 1 ? PB_OK : pb_fail(PB_EINVAL, "replay needs one FILE, a capture; %d were given", o->args.n);
    if (s == PB_OK) s = pb_captured_open(o->args.v[0], &c);
    if (s == PB_OK && !pb_captured_calls(c))
        s = pb_fail(PB_EINVAL, "%s: it has tensors, but no call to run again", o->args.v[0]);
    if (s == PB_OK) s = pb_options_backend(o, &backend);
    if (s == PB_OK) s = check_impl(c, backend, o->impl);
    if (s == PB_OK) s = pb_ctx_open(&ctx, backend, 0);
    if (s == PB_OK) {
        s = replay(c, &ctx, o->impl, &agree);
        pb_ctx_close(&ctx);
    }
    pb_captured_close(c);
    if (s != PB_OK) return pb_complain_of(s);
    return agree ? PB_EXIT_OK : PB_EXIT_REGRESSION;
}
