/*
 * resnet20.h - the ResNet-20 for CIFAR-10 of He et al. 2016 (0.27 M parameters), as examples and tests build it:
 * shortcuts without parameters ("option A") take every other pixel and add channels of zeros. Names of parameters are
 * those of PyTorch's usual implementation, so that its checkpoints load.
 */
#ifndef EG_EXAMPLES_RESNET20_H
#define EG_EXAMPLES_RESNET20_H

#include <engraft/engraft.h>

/* ---- two convolutions and a shortcut around them ---- */

typedef struct resnet_block {
    eg_module base;
    int64_t in_channels, channels, stride;
    eg_module *conv1, *bn1, *relu1, *conv2, *bn2, *relu2;
} resnet_block;

static eg_status resnet_block_build(eg_module *self)
{
    resnet_block *b = (resnet_block *)self;
    eg_context *ctx = self->ctx;
    int64_t c = b->channels;
    EG_SLOT(
        b, conv1,
        eg_conv2d(ctx, b->in_channels, c, 3, .stride = b->stride == 0 ? 1 : b->stride, .padding = 1, .no_bias = true));
    EG_SLOT(b, bn1, eg_batch_norm2d(ctx, c));
    EG_SLOT(b, relu1, eg_relu(ctx));
    EG_SLOT(b, conv2, eg_conv2d(ctx, c, c, 3, .padding = 1, .no_bias = true));
    EG_SLOT(b, bn2, eg_batch_norm2d(ctx, c));
    EG_SLOT(b, relu2, eg_relu(ctx));
    return eg_module_status(self);
}

static eg_tensor *resnet_shortcut(const resnet_block *b, eg_tensor *x)
{
    if (b->in_channels == b->channels)
        return x;
    eg_tensor *half = eg_slice(eg_slice(x, 2, 0, INT64_MAX, 2), 3, 0, INT64_MAX, 2);
    int64_t missing = (b->channels - b->in_channels) / 2;
    return eg_f_pad(half, EG_SHAPE(0, 0, 0, 0, missing, missing), 0);
}

static eg_tensor *resnet_block_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    resnet_block *b = (resnet_block *)self;
    (void)n_in;
    eg_tensor *y = eg_call(b->relu1, eg_call(b->bn1, eg_call(b->conv1, in[0])));
    y = eg_call(b->bn2, eg_call(b->conv2, y));
    return eg_call(b->relu2, eg_add(y, resnet_shortcut(b, in[0])));
}

static EG_NAMED_CLASS(resnet_block, "ResNetBlock", .build = resnet_block_build, .forward = resnet_block_forward,
                      .fields = EG_FIELDS(EG_INT(resnet_block, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                                          EG_INT(resnet_block, channels, EG_AT_LEAST(1), .help = "channels out"),
                                          EG_INT(resnet_block, stride, .min = 1, .max = 2, .def = 1,
                                                 .help = "of the first convolution")));

/* ---- the network ---- */

typedef struct resnet20 {
    eg_module base;
    int64_t classes;
    eg_module *conv1, *bn1, *relu, *layer1, *layer2, *layer3, *pool, *linear;
} resnet20;

static eg_module *resnet_stage(eg_context *ctx, int64_t in_channels, int64_t channels, int64_t stride)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_new(resnet_block, ctx, .in_channels = in_channels, .channels = channels, .stride = stride),
                        eg_new(resnet_block, ctx, .in_channels = channels, .channels = channels),
                        eg_new(resnet_block, ctx, .in_channels = channels, .channels = channels)));
}

static eg_status resnet20_build(eg_module *self)
{
    resnet20 *r = (resnet20 *)self;
    eg_context *ctx = self->ctx;
    EG_SLOT(r, conv1, eg_conv2d(ctx, 3, 16, 3, .padding = 1, .no_bias = true));
    EG_SLOT(r, bn1, eg_batch_norm2d(ctx, 16));
    EG_SLOT(r, relu, eg_relu(ctx));
    EG_SLOT(r, layer1, resnet_stage(ctx, 16, 16, 1));
    EG_SLOT(r, layer2, resnet_stage(ctx, 16, 32, 2));
    EG_SLOT(r, layer3, resnet_stage(ctx, 32, 64, 2));
    EG_SLOT(r, pool, eg_global_avg_pool2d(ctx));
    EG_SLOT(r, linear, eg_linear(ctx, 64, r->classes));
    return eg_module_status(self);
}

/* Images are 0 .. 1; the checkpoint was trained on these channels' means and deviations taken off. */
static eg_tensor *resnet_normalize(eg_tensor *x)
{
    static const float mean[] = {0.485f, 0.456f, 0.406f}, scale[] = {1 / 0.229f, 1 / 0.224f, 1 / 0.225f};
    eg_context *ctx = eg_tensor_context(x);
    if (ctx == NULL)
        return NULL;
    eg_tensor *m = eg_from_data(ctx, EG_SHAPE(1, 3, 1, 1), mean), *s = eg_from_data(ctx, EG_SHAPE(1, 3, 1, 1), scale);
    return eg_mul(eg_sub(x, m), s);
}

static eg_tensor *resnet20_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    resnet20 *r = (resnet20 *)self;
    (void)n_in;
    eg_tensor *x = eg_call(r->relu, eg_call(r->bn1, eg_call(r->conv1, resnet_normalize(in[0]))));
    x = eg_call(r->layer3, eg_call(r->layer2, eg_call(r->layer1, x)));
    return eg_call(r->linear, eg_call(r->pool, x));
}

static EG_NAMED_CLASS(resnet20, "ResNet20", .build = resnet20_build, .forward = resnet20_forward,
                      .fields = EG_FIELDS(EG_INT(resnet20, classes, EG_AT_LEAST(2), .help = "outputs")));

/* The network with the weights of a checkpoint, in evaluation mode. NULL on failure. */
static eg_module *resnet20_load(eg_context *ctx, const char *weights)
{
    eg_module *net = eg_new(resnet20, ctx, .classes = 10);
    eg_state *state = eg_safetensors_load(ctx, weights, NULL);
    /* Not strict: the file does not count batches. */
    if (net == NULL || state == NULL || eg_module_load_state(net, NULL, state, false) != EG_OK) {
        eg_module_release(net);
        net = NULL;
    }
    eg_state_free(state);
    eg_module_train(net, false);
    return net;
}

#endif
