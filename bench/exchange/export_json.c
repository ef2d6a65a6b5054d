/* export_json.c - writes the JSON of two dashboards: github-action-benchmark (custom tools) and Bencher. */
#include <jansson.h>
#include <string.h>

#include "bench/exchange/export.h"

static pb_status dump(json_t *root, FILE *out)
{
    int failed = json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    fputc('\n', out);
    json_decref(root);
    return failed ? pb_fail(PB_ENOMEM, "export: out of memory") : PB_OK;
}

/* True for a series to export: ok, from one machine, version and unit. Others are counted as omitted, except
 * requirements, which export.c counts. */
static bool usable(pb_export_page *p, const pb_series *s)
{
    if (pb_key_of(s->key, "requirement")) return false;
    if (pb_series_ok(s) && s->processes && !s->mixed) return true;
    pb_export_leave_out(p, s->mixed ? "have processes of several machines, versions or units" : PB_NO_FIGURE);
    return false;
}

/* ---- github-action-benchmark's JSON --------------------------------------------------------------- */

static json_t *gab_entry(const pb_series *s)
{
    json_t *e = json_object();
    const double spread = pb_export_value(s->max - s->min, s->unit) / 2;
    json_object_set_new(e, "name", json_sprintf("%s %s", s->key, s->metric));
    json_object_set_new(e, "unit", json_string(pb_export_unit(s->unit)));
    json_object_set_new(e, "value", json_real(pb_export_value(s->median, s->unit)));
    if (s->processes > 1) json_object_set_new(e, "range", json_sprintf("\xc2\xb1 %.4g", spread));
    json_object_set_new(e, "extra",
                        json_sprintf("median of %d process%s\n%s\n%s", s->processes, s->processes == 1 ? "" : "es",
                                     s->machine_id, s->run_id));
    return e;
}

pb_status pb_export_gab(pb_export_page *p)
{
    json_t *root = json_array();
    for (size_t i = 0; i < p->set->n; i++) {
        const pb_series *s = &p->set->s[i];
        if (!usable(p, s)) continue;
        if (!strcmp(s->better, "none")) {
            pb_export_leave_out(p, "have a metric without a better direction");
        } else if (strcmp(s->better, p->better) != 0) {
            pb_export_leave_out(p, "belong to the file of the other direction (--better)");
        } else {
            json_array_append_new(root, gab_entry(s));
            p->written++;
        }
    }
    return dump(root, p->out);
}

/* ---- Bencher's JSON ------------------------------------------------------------------------------- */

/* Converts a metric's name to a slug of Bencher: backward_time becomes backward-time. */
static void slug(const char *metric, char out[PB_AXIS_TEXT])
{
    snprintf(out, PB_AXIS_TEXT, "%s", metric);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = '-';
}

pb_status pb_export_bmf(pb_export_page *p)
{
    json_t *root = json_object(), *one = NULL;
    char measure[PB_AXIS_TEXT];
    const char *key = "";
    for (size_t i = 0; i < p->set->n; i++) {
        const pb_series *s = &p->set->s[i];
        if (!usable(p, s)) continue;
        if (strcmp(key, s->key) != 0) json_object_set_new(root, s->key, one = json_object());
        key = s->key;
        json_t *m = json_object();
        json_object_set_new(m, "value", json_real(pb_export_value(s->median, s->unit)));
        if (s->processes > 1) {
            json_object_set_new(m, "lower_value", json_real(pb_export_value(s->min, s->unit)));
            json_object_set_new(m, "upper_value", json_real(pb_export_value(s->max, s->unit)));
        }
        slug(s->metric, measure);
        json_object_set_new(one, measure, m);
        p->written++;
    }
    return dump(root, p->out);
}
