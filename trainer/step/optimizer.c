/* optimizer.c - the optimizer phase: applies the clipped gradients. NorMuon, if it is selected, updates the matrices,
 * and AdamW all other trained parameters. A step whose loss or norm is not finite is skipped. */
#include "trainer/step/matrices.h"
#include "trainer/step/shards.h"

pb_status pb_train_matrices(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    PB_TRY(pb_matrices_orthogonalise(ctx, t));
    return pb_matrices_update(ctx, t);
}

pb_status pb_phase_optimizer(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    const int groups = pb_trainer_clip_groups(t);
    PB_TRY(pb_train_matrices(ctx, self));
    PB_TRY(pb_adamw_step(
        ctx, &(pb_adamw_step_args){.list = t->adamw_list,
                                   .clip = groups ? t->clip : NULL,
                                   .state = t->state,
                                   .loss_scale = t->loss_scale,
                                   .loss = t->all_loss,
                                   .guard = pb_matrices_guard(t),
                                   .maps = t->adamw_maps,
                                   .elements = (t->shards.on ? t->gradients.slices.total : t->model.trained) -
                                               t->matrices.elements,
                                   .bf16_elements = t->bf16_elements,
                                   .n = pb_adamw_entries(t),
                                   .nclip = groups,
                                   .narrow = t->model.cfg.moments != PB_ADAMW_F32,
                                   .scale_gradients = t->cfg.clip == PB_CLIP_MULTI,
                                   .beta1 = t->cfg.beta1,
                                   .beta2 = t->cfg.beta2,
                                   .eps = t->cfg.eps}));
    return t->shards.on ? pb_shards_gather(ctx, t) : PB_OK;
}
