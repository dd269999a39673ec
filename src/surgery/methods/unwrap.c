/*
 * What methods have put around modules, or in their places, taken off again.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

/* With the steps that the blur took, where it did. */
static eg_module *unblurred(const eg_blur_conv2d *b, eg_module *conv)
{
    if (!b->conv_first || conv == NULL)
        return eg_module_retain(conv);
    if (conv->cls != &eg_conv2d_class || conv->open != NULL || conv->n_reparams > 0)
        return NULL;
    const eg_conv2d *c = (const eg_conv2d *)conv;
    eg_module *m =
        eg_conv2d(conv->ctx, c->in_channels, c->out_channels, c->kernel_size, .stride = b->stride,
                  .padding = c->padding, .dilation = c->dilation, .groups = c->groups, .no_bias = c->no_bias);
    return eg__share_tensors(m, conv);
}

static eg_module *unblurred_pool(const eg_blur_max_pool2d *p)
{
    return eg_max_pool2d(p->base.ctx, p->kernel_size, .stride = p->stride, .padding = p->padding,
                         .dilation = p->dilation);
}

static eg_module *steady(eg_module *block)
{
    eg_module *body = eg__child_at(block, 0), *shortcut = eg__child_at(block, 1);
    if (body == NULL)
        return NULL;
    const eg_named_module parts[] = {{"body", eg_module_retain(body)}, {"shortcut", eg_module_retain(shortcut)}};
    return eg_residual_block(block->ctx, .named = parts, .n_named = shortcut != NULL ? 2 : 1);
}

static eg_module *replace(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    (void)options;
    (void)s;
    (void)index;
    if (eg_is_a(module, &eg_blur_conv2d_class))
        return unblurred((const eg_blur_conv2d *)module, eg__child_at(module, 0));
    if (eg_is_a(module, &eg_blur_max_pool2d_class))
        return unblurred_pool((const eg_blur_max_pool2d *)module);
    if (eg_is_a(module, &eg_stochastic_residual_class))
        return steady(module);
    if (!eg_is_a(module, &eg_squeeze_excite_conv2d_class) && !eg_is_a(module, &eg_ghost_batch_norm2d_class))
        return NULL;
    return eg_module_retain(eg__child_at(module, 0)); /* the convolution, the norm */
}

EG_METHOD(eg_unwrap, "unwrap", NULL,
          .help = "takes back blurs, squeeze and excitation, ghost batches and stochastic depth; trained weights stay",
          .source = "costs nothing; outputs change, but where only ghost batch norms are taken off",
          .promise = EG_PROMISE_TRAINED, .replace = replace, .recurses = true,
          .targets = (const eg_class *const[]){&eg_blur_conv2d_class, &eg_blur_max_pool2d_class,
                                               &eg_squeeze_excite_conv2d_class, &eg_ghost_batch_norm2d_class,
                                               &eg_stochastic_residual_class, NULL});
