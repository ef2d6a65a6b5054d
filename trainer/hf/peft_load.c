/* peft_load.c - loads the tensors of a PEFT adapter folder into a model, after finding and checking all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "trainer/hf/peft_impl.h"

static void words(unsigned targets, char out[160])
{
    char module[32];
    size_t at = 0;
    for (int t = 0; t < PB_NTARGETS; t++)
        if (targets >> t & 1)
            at += (size_t)snprintf(out + at, 160 - at, "%s%s", at ? ", " : "",
                                   strchr(pb_hf_module((pb_target)t, module), '.') + 1);
}

static pb_status same_config(const pb_model *m, const pb_peft_config *c, const char *dir)
{
    const pb_model_config *want = &m->cfg;
    char has[160], needs[160];
    if (want->tuning == PB_FULL) return pb_fail(PB_EINVAL, "%s: the model has no adapters to load into", dir);
    if (c->rank != want->rank)
        return pb_fail(PB_EINVAL, "%s: the adapters have rank %d, but the model's have rank %d", dir, c->rank,
                       want->rank);
    if (c->alpha != want->alpha)
        return pb_fail(PB_EINVAL, "%s: the adapters have alpha %g, but the model's have alpha %g", dir,
                       (double)c->alpha, (double)want->alpha);
    if (c->targets == want->targets) return PB_OK;
    words(c->targets, has), words(want->targets, needs);
    return pb_fail(PB_EINVAL, "%s: the adapters are on %s, but the model's are on %s", dir, has, needs);
}

/* Checks that the file has exactly the model's tensors, in the model's shapes. */
static pb_status check_tensors(const pb_safetensors *f, const pb_hf_list *l, const char *dir)
{
    for (size_t i = 0; i < l->n; i++) {
        const pb_st_tensor *t = pb_st_find(f, l->at[i].name);
        if (!t) return pb_fail(PB_EINVAL, "%s has no tensor %s", dir, l->at[i].name);
        PB_TRY(pb_hf_check(&l->at[i], t));
    }
    for (size_t k = 0; k < pb_st_count(f); k++) {
        const pb_st_tensor *t = pb_st_at(f, k);
        size_t i = 0;
        while (i < l->n && strcmp(l->at[i].name, t->name) != 0) i++;
        if (i == l->n) return pb_fail(PB_EINVAL, "%s: the model has no parameter for tensor %.150s", t->file, t->name);
    }
    return PB_OK;
}

static pb_status put(pb_model *m, const pb_hf_tensor *to, const pb_st_tensor *t, void *host)
{
    pb_param *p = to->p;
    if (p->master) {
        PB_TRY(pb_st_convert(t, 0, t->n, PB_F32, host));
        PB_TRY(pb_upload(m->ctx, p->master, host, t->n * sizeof(float)));
    }
    PB_TRY(pb_st_convert(t, 0, t->n, p->dtype, host));
    PB_TRY(pb_upload(m->ctx, p->w, host, t->n * pb_dtype_size(p->dtype)));
    return pb_model_keep(m, p, 0, t->n);
}

static pb_status put_all(pb_model *m, const pb_safetensors *f, const pb_hf_list *l)
{
    size_t largest = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].n > largest) largest = l->at[i].n;
    void *host = malloc(largest * sizeof(float));
    pb_status s = host ? PB_OK : pb_fail(PB_ENOMEM, "no memory to load the adapters");
    for (size_t i = 0; s == PB_OK && i < l->n; i++) s = put(m, &l->at[i], pb_st_find(f, l->at[i].name), host);
    if (s == PB_OK) s = pb_sync(m->ctx);
    free(host);
    return s;
}

pb_status pb_peft_load(pb_model *m, const char *dir)
{
    pb_peft_config c;
    pb_hf_list list = {0};
    pb_safetensors *f = NULL;
    char *path = NULL;
    PB_TRY(pb_peft_config_open(dir, &c));
    PB_TRY(same_config(m, &c, dir));
    PB_TRY(pb_path_join(dir, PB_PEFT_WEIGHTS, &path));
    pb_status s = pb_st_open(path, &f);
    free(path);
    if (s == PB_OK) s = pb_peft_tensors(m, c.norm1, c.norm2, &list);
    if (s == PB_OK) s = check_tensors(f, &list, dir);
    if (s == PB_OK && !m->ctx->planning) s = put_all(m, f, &list);
    if (s == PB_OK && (c.norm1 || c.norm2)) m->export_norms = true;
    free(list.at);
    pb_st_close(f);
    return s;
}
