/* own_input.c - finds the user's model and data, names them by digests, and reads the data. */
#include "bench/suites/own_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/digest.h"

enum { DIGITS = 12 };

/* ---- digests ------------------------------------------------------------------------------------------- */

/* Writes the values of a geometry that determine a computation, as text: equal text, equal model but for its
 * weights. */
static int geometry_text(const pb_geometry *g, char *out, size_t n)
{
    const pb_rope_scaling *r = &g->rope;
    return snprintf(out, n,
                    "%d %d %d %d %d %d %d %d %.9g %.17g %d %d %d %d %d | %d %.17g %.17g %.17g %.17g %.17g %.17g "
                    "%.17g %d",
                    (int)g->family, g->V, g->D, g->L, g->H, g->K, g->d, g->I, (double)g->eps, g->theta, g->tied,
                    g->bias, g->qk_norm, g->o_bias, g->max_pos, (int)r->kind, r->factor, r->original_len, r->low_freq,
                    r->high_freq, r->beta_fast, r->beta_slow, r->attention, r->truncate);
}

static void name_model(pb_own_input *own)
{
    char text[512];
    if (!own->in.path) {
        snprintf(own->model, sizeof own->model, "%s", own->in.geometry->name);
        return;
    }
    const int n = geometry_text(own->in.geometry, text, sizeof text);
    snprintf(own->model, sizeof own->model, "hf-%.*s", DIGITS, pb_digest_of(text, (size_t)n).hex);
}

static pb_status add_file(pb_digest *d, const char *path)
{
    pb_file_digest file = {0};
    if (path) PB_TRY(pb_digest_file(&pb_disk_posix, path, 0, &file));
    pb_digest_add(d, file.digest.hex, sizeof file.digest.hex);
    return PB_OK;
}

static pb_status name_data(pb_own_input *own)
{
    const pb_chat_options *chat = &own->in.chat;
    const int words[] = {(int)chat->family, (int)own->mask, chat->system != NULL};
    pb_digest *d;
    PB_TRY(pb_digest_open(&d));
    pb_status s = add_file(d, own->in.data_path);
    if (s == PB_OK) s = add_file(d, own->in.tokenizer_path);
    pb_digest_add(d, words, sizeof words);
    if (chat->system) pb_digest_add(d, chat->system, strlen(chat->system));
    snprintf(own->data, sizeof own->data, "%.*s", DIGITS, pb_digest_get(d).hex);
    pb_digest_close(d);
    return s;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Returns the place of `word` in words[n]; -1: it is not given, or not there. */
static int place(const char *const *words, int n, const char *word)
{
    for (int i = 0; word && i < n; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

static pb_status find(pb_own_input *own, const char *model, const pb_input_request *r)
{
#define WORD(id, word, ...) word,
    static const char *const templates[] = {PB_TEMPLATE_MAP(WORD)};
    static const char *const masks[] = {PB_MASK_MAP(WORD)};
#undef WORD
    const int mask = place(masks, PB_NMASKS, r->mask);
    own->mask = mask < 0 ? PB_MASK_ASSISTANT : (pb_mask_type)mask;
    PB_TRY(pb_input_find_model(&own->in, model));
    PB_TRY(pb_input_find_text(&own->in, r->data, r->tokenizer, place(templates, PB_NTEMPLATES, r->template)));
    name_model(own);
    return name_data(own);
}

pb_status pb_own_input_open(const char *model, const pb_input_request *r, pb_own_input **out)
{
    if (!model || (strchr(model, ',') && !pb_input_is_path(model)))
        return pb_fail(PB_EINVAL,
                       "--data, --tokenizer, --template and --loss-mask-type need one --model NAME|DIR|GGUF");
    pb_own_input *own = calloc(1, sizeof *own);
    if (!own) return pb_fail(PB_ENOMEM, "no memory for the model and data of the run");
    const pb_status s = find(own, model, r);
    if (s == PB_OK) *out = own;
    else pb_own_input_close(own);
    return s;
}

/* True if the user has named data, a tokenizer, a template or a loss mask, or a model by its path. `model`: the text of
 * --model; NULL: not given. */
static bool asked(const char *model, const pb_input_request *r)
{
    return r->data || r->tokenizer || r->template || r->mask || (model && pb_input_is_path(model));
}

pb_status pb_own_input_apply(const char *refuses, const pb_input_request *r, pb_axis_list *l, pb_own_input **out)
{
    pb_axis_values *model = NULL;
    int models = 0;
    bool pack = false;
    for (int i = 0; i < l->n; i++) {
        pack |= strcmp(l->v[i].name, "pack") == 0;
        if (strcmp(l->v[i].name, "model") == 0) model = &l->v[i], models++;
    }
    if (!asked(model ? model->values : NULL, r)) return PB_OK;
    if (refuses)
        return pb_fail(PB_EINVAL, "suite %s reads no model or data of the user; backward and throughput do", refuses);
    PB_TRY(pb_own_input_open(models == 1 ? model->values : NULL, r, out));
    model->values = (*out)->model;
    if (!pack && l->n < PB_OPTION_LIST) l->v[l->n++] = (pb_axis_values){"pack", "on"};
    return PB_OK;
}

void pb_own_input_close(pb_own_input *own)
{
    if (own && own->rows) pb_dataset_close(own->rows);
    free(own);
}

/* True if both configurations read the same rows of one file. */
static bool same_rows(const pb_dataset_config *a, const pb_dataset_config *b)
{
    return a->S == b->S && a->pack == b->pack && a->align == b->align && a->seed == b->seed;
}

pb_status pb_own_input_rows(pb_own_input *own, const pb_dataset_config *cfg, pb_dataset **out)
{
    pb_dataset_config of = *cfg;
    pb_dataset_counts counts;
    pb_tokenizer *t;
    if (own->rows && same_rows(cfg, &own->of)) {
        *out = own->rows;
        return PB_OK;
    }
    of.chat = own->in.chat;
    of.mask = own->mask;
    pb_dataset_close(own->rows);
    own->rows = NULL;
    PB_TRY(pb_input_open_tokenizer(&own->in, &of.chat, &t));
    const pb_status s = pb_dataset_open(own->in.data_path, t, &of, &counts, &own->rows);
    pb_tokenizer_close(t);
    own->of = of;
    *out = own->rows;
    return s;
}
