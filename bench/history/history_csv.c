/* history_csv.c - writes a history as CSV: a line for each row and session, or for Apache Otava a line for each
 * session. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bench/history/history_formats.h"
#include "bench/rows/rows.h"

/* ---- csv ------------------------------------------------------------------------------------------- */

static void put_texts(FILE *out, int n, const char *const *text)
{
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', out);
        pb_csv_text(out, text[i]);
    }
}

static void put_numbers(FILE *out, int n, const double *x)
{
    for (int i = 0; i < n; i++) {
        fputc(',', out);
        if (x) pb_csv_number(out, x[i]);
    }
}

void pb_history_csv(const pb_history_rows *h, FILE *out)
{
    fputs("machine_id,key,metric,unit,better,run_id,time_utc,commit,value,change,before,after,p_shuffle,p_t,commits\n",
          out);
    for (const pb_history_row *r = h->row; r < h->row + h->n; r++)
        for (int i = 0, next = 0; i < r->n; i++) {
            const pb_history_value *v = &r->v[i];
            const pb_change_point *c = next < r->changes && r->change[next].at == i ? &r->change[next++] : NULL;
            char when[PB_HISTORY_TIME], commits[PB_HISTORY_COMMITS] = "";
            const bool known = pb_history_time(v->run_id, when);
            if (c) pb_history_commits(r, c, commits);
            put_texts(out, 8,
                      (const char *const[]){v->machine_id, v->key, v->metric, v->unit, v->better, v->run_id,
                                            known ? when : "", v->commit});
            put_numbers(out, 1, &v->value);
            put_numbers(out, 5, c ? (const double[]){c->change, c->before, c->after, c->p_shuffle, c->p_t} : NULL);
            fputc(',', out);
            pb_csv_text(out, commits);
            fputc('\n', out);
        }
}

/* ---- otava ----------------------------------------------------------------------------------------- */

static int by_run(const void *a, const void *b)
{
    const pb_history_value *x = *(const pb_history_value *const *)a, *y = *(const pb_history_value *const *)b;
    return strcmp(x->run_id, y->run_id);
}

/* The sessions of all rows, oldest first: a value of each. The caller frees *out. */
static pb_status sessions_of(const pb_history_rows *h, const pb_history_value ***out, int *n)
{
    size_t all = 0;
    int kept = 0;
    const pb_history_value **v = malloc((h->values + 1) * sizeof *v);
    if (!v) return pb_fail(PB_ENOMEM, "history: out of memory");
    for (int i = 0; i < h->n; i++)
        for (int k = 0; k < h->row[i].n; k++) v[all++] = &h->row[i].v[k];
    qsort(v, all, sizeof *v, by_run);
    for (size_t i = 0; i < all; i++)
        if (!kept || strcmp(v[kept - 1]->run_id, v[i]->run_id) != 0) v[kept++] = v[i];
    *out = v;
    *n = kept;
    return PB_OK;
}

/* The name of a row's column, "key metric". */
typedef struct column {
    char text[PB_KEY_TEXT + PB_AXIS_TEXT];
} column;

static column column_of(const pb_history_row *r)
{
    column c;
    snprintf(c.text, sizeof c.text, "%s %.63s", r->v->key, r->v->metric);
    return c;
}

/* Writes the line of session number i: its time, its commit and the values of the rows that have all n sessions. */
static pb_status put_session(const pb_history_rows *h, const pb_history_value *session, int i, int n, FILE *out)
{
    char when[PB_HISTORY_TIME];
    if (!pb_history_time(session->run_id, when))
        return pb_fail(PB_EINVAL, "history: otava needs times, but the run_id '%.80s' does not begin with one",
                       session->run_id);
    put_texts(out, 2, (const char *const[]){when, session->commit});
    for (int k = 0; k < h->n; k++)
        if (h->row[k].n == n) put_numbers(out, 1, &h->row[k].v[i].value);
    fputc('\n', out);
    return PB_OK;
}

static pb_status one_machine(const pb_history_rows *h)
{
    const char *first = h->row[0].v->machine_id, *last = h->row[h->n - 1].v->machine_id;
    return strcmp(first, last) == 0
               ? PB_OK
               : pb_fail(PB_EINVAL,
                         "history: a file for Otava is of one machine, but there are rows of %s and %s; "
                         "--machine NAME selects one",
                         first, last);
}

pb_status pb_history_otava(const pb_history_rows *h, FILE *out, FILE *notes)
{
    const pb_history_value **session;
    int n, columns = 0;
    PB_TRY(one_machine(h));
    PB_TRY(sessions_of(h, &session, &n));
    fputs("time,commit", out);
    for (int k = 0; k < h->n; k++) {
        if (h->row[k].n != n) continue;
        fputc(',', out);
        pb_csv_text(out, column_of(&h->row[k]).text);
        columns++;
    }
    fputc('\n', out);
    pb_status s = columns ? PB_OK
                          : pb_fail(PB_EINVAL,
                                    "history: no row has a value in each of the %d sessions, as Otava needs; "
                                    "a KEY selects rows of one suite",
                                    n);
    for (int i = 0; i < n && s == PB_OK; i++) s = put_session(h, session[i], i, n, out);
    free(session);
    if (s == PB_OK && columns < h->n)
        fprintf(notes, "bench: otava: %d left out: they have no value in some of the %d sessions\n", h->n - columns, n);
    return s;
}

/* A JSON string is also a quoted string of YAML. */
static pb_status put_quoted(FILE *out, const char *text)
{
    json_t *word = json_string(text);
    const bool ok = word && json_dumpf(word, out, JSON_ENCODE_ANY) == 0;
    json_decref(word);
    return ok ? PB_OK : pb_fail(PB_EINVAL, "history: '%.80s' is not UTF-8", text);
}

pb_status pb_history_otava_config(const pb_history_rows *h, const char *csv, FILE *out)
{
    const pb_history_value **session;
    int n;
    PB_TRY(sessions_of(h, &session, &n));
    free(session);
    fputs("tests:\n  plumb:\n    type: csv\n    file: ", out);
    PB_TRY(put_quoted(out, csv));
    fputs("\n    time_column: time\n    attributes: [commit]\n    metrics:\n", out);
    for (int k = 0; k < h->n; k++) {
        if (h->row[k].n != n) continue;
        const column c = column_of(&h->row[k]);
        fputs("      ", out);
        PB_TRY(put_quoted(out, c.text));
        fputs(":\n        column: ", out);
        PB_TRY(put_quoted(out, c.text));
        fprintf(out, "\n        direction: %d\n", strcmp(h->row[k].v->better, "higher") ? -1 : 1);
    }
    return PB_OK;
}
