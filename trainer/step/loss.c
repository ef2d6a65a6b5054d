/* loss.c - the loss phase: computes the cross-entropy, and overwrites the logits with their gradient. */
#include "kernels/xent/xent.h"
#include "trainer/step/trainer_impl.h"

pb_status pb_phase_loss(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    return pb_xent_bwd(ctx, &(pb_xent_bwd_args){.logits = t->logits,
                                                .target = t->targets,
                                                .mask = t->mask,
                                                .inv_count = t->inv_count,
                                                .dlogits = t->logits,
                                                .nll = t->nll,
                                                .loss = &t->report->loss,
                                                .loss_scale = t->loss_scale,
                                                .total = t->step_loss,
                                                .add = t->accumulate,
                                                .T = t->T,
                                                .V = t->model.g.V,
                                                .dtype = t->model.cfg.dtype});
}
