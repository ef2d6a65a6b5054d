/* doctor.c - runs the checks of doctor.def, and prints their findings as text and as JSON. */
#include "bench/machine/doctor.h"

#include <stdarg.h>
#include <string.h>

const char *const pb_health_names[PB_NHEALTH] = {
#define X(id, word) word,
    PB_HEALTH_MAP(X)
#undef X
};

const pb_check_info pb_checks[] = {
#define CHECK(name, part, what, effect, remedy) {#name, what, effect, remedy, #part[0] == 'g', pb_look_##name},
#include "bench/machine/doctor.def"
#undef CHECK
    {0},
};

pb_finding pb_finding_of(pb_health health, const char *format, ...)
{
    pb_finding f = {.health = health};
    va_list args;
    va_start(args, format);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    return f;
}

/* Runs a check. A GPU check is UNKNOWN if the GPU could not be read. */
static pb_finding look(const pb_check_info *c, const pb_patient *p)
{
    return c->gpu && !p->has_gpu ? pb_finding_of(PB_HEALTH_UNKNOWN, "%s", p->no_gpu) : c->look(p);
}

static bool wanted(const pb_check_info *c, const pb_patient *p) { return !c->gpu || p->want_gpu; }

static void print_one(const pb_check_info *c, const pb_finding *f, FILE *out)
{
    fprintf(out, "%-8s %-16s %s: %s\n", pb_health_names[f->health], c->name, c->what, f->text);
    if (f->health == PB_HEALTH_GOOD || f->health == PB_HEALTH_UNKNOWN) return;
    fprintf(out, "%8s effect: %s\n%8s remedy: %s\n", "", c->effect, "", c->remedy);
}

void pb_doctor_print(const pb_patient *p, FILE *out, int count[PB_NHEALTH])
{
    static const pb_health order[] = {PB_HEALTH_BAD, PB_HEALTH_NOTE, PB_HEALTH_UNKNOWN, PB_HEALTH_GOOD};
    memset(count, 0, PB_NHEALTH * sizeof *count);
    for (int k = 0; k < PB_NHEALTH; k++)
        for (const pb_check_info *c = pb_checks; c->name; c++) {
            const pb_finding f = look(c, p);
            if (!wanted(c, p) || f.health != order[k]) continue;
            count[f.health]++;
            print_one(c, &f, out);
        }
    fprintf(out, "bench: good=%d note=%d bad=%d unknown=%d\n", count[PB_HEALTH_GOOD], count[PB_HEALTH_NOTE],
            count[PB_HEALTH_BAD], count[PB_HEALTH_UNKNOWN]);
}

json_t *pb_doctor_json(const pb_patient *p, const char *device, int count[PB_NHEALTH])
{
    json_t *all = json_array();
    memset(count, 0, PB_NHEALTH * sizeof *count);
    for (const pb_check_info *c = pb_checks; c->name; c++) {
        if (!wanted(c, p)) continue;
        const pb_finding f = look(c, p);
        count[f.health]++;
        json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "name", c->name, "state",
                                             pb_health_names[f.health], "what", c->what, "found", f.text, "effect",
                                             c->effect, "remedy", c->remedy));
    }
    return json_pack("{s:s,s:o,s:i,s:i,s:i,s:i}", "device", device, "checks", all, "good", count[PB_HEALTH_GOOD],
                     "note", count[PB_HEALTH_NOTE], "bad", count[PB_HEALTH_BAD], "unknown", count[PB_HEALTH_UNKNOWN]);
}
