/*
 * bench/nets.c - the networks of the cases. Their tensors have the names of those in peers/nets.py.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* Convolution, batch norm and, unless told not to, ReLU. */
static eg_module *conv_norm(eg_context *ctx, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups,
                            bool relu)
{
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, in, out, kernel, .stride = stride, .padding = kernel / 2,
                                                          .groups = groups, .no_bias = true)},
                                       {"norm", eg_batch_norm2d(ctx, out, .relu = relu)}));
}

/* ---- ResNet-20 of He et al. 2016, with 1x1 convolutions in the shortcuts ---- */

typedef struct basic_block {
    eg_module base;
    int64_t in, out, stride;
    eg_module *conv1, *conv2, *shortcut;
} basic_block;

static eg_status basic_block_build(eg_module *self)
{
    basic_block *m = (basic_block *)self;
    EG_SLOT(m, conv1, conv_norm(self->ctx, m->in, m->out, 3, m->stride, 1, true));
    EG_SLOT(m, conv2, conv_norm(self->ctx, m->out, m->out, 3, 1, 1, false));
    if (m->in != m->out)
        EG_SLOT(m, shortcut, conv_norm(self->ctx, m->in, m->out, 1, m->stride, 1, false));
    return eg_module_status(self);
}

static eg_tensor *basic_block_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    basic_block *m = (basic_block *)self;
    eg_tensor *y = eg_call(m->conv2, eg_call(m->conv1, in[0]));
    return eg_f_relu(eg_add(y, m->shortcut != NULL ? eg_call(m->shortcut, in[0]) : in[0]));
}

static EG_CLASS(basic_block, .build = basic_block_build, .forward = basic_block_forward,
                .fields = EG_FIELDS(EG_INT(basic_block, in, EG_AT_LEAST(1), .help = "channels in"),
                                    EG_INT(basic_block, out, EG_AT_LEAST(1), .help = "channels out"),
                                    EG_INT(basic_block, stride, EG_AT_LEAST(1), .help = "stride")));

static eg_module *resnet20(eg_context *ctx)
{
    eg_module *net = eg_sequential(ctx, EG_MODULES(conv_norm(ctx, 3, 16, 3, 1, 1, true)));
    for (int64_t i = 0, in = 16; i < 9; i++) {
        int64_t out = (int64_t)16 << (i / 3);
        (void)eg_append(net, eg_new(basic_block, ctx, in, out, in != out ? 2 : 1));
        in = out;
    }
    (void)eg_append(net, eg_global_avg_pool2d(ctx));
    (void)eg_append(net, eg_linear(ctx, 64, 10));
    return net;
}

/* ---- MobileNetV1 of Howard et al. 2017 at a quarter of the width, the first stride 1 for small images ---- */

static eg_module *mobilenet(eg_context *ctx)
{
    static const int64_t widths[] = {16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256};
    eg_module *net = eg_sequential(ctx, EG_MODULES(conv_norm(ctx, 3, 8, 3, 1, 1, true)));
    int64_t in = 8;
    for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
        int64_t out = widths[i], stride = i > 0 && out != in ? 2 : 1;
        (void)eg_append(net, conv_norm(ctx, in, in, 3, stride, in, true));
        (void)eg_append(net, conv_norm(ctx, in, out, 1, 1, 1, true));
        in = out;
    }
    (void)eg_append(net, eg_global_avg_pool2d(ctx));
    (void)eg_append(net, eg_linear(ctx, in, 10));
    return net;
}

/* ---- a multi-layer perceptron, such as sizes=784-256-128-10 ---- */

static eg_module *mlp(eg_context *ctx, const char *sizes, int64_t *in)
{
    eg_module *net = eg_sequential(ctx);
    char *end;
    int64_t width = *in = strtoll(sizes, &end, 10);
    while (*end == '-') {
        int64_t out = strtoll(end + 1, &end, 10);
        (void)eg_append(net, eg_linear(ctx, width, out));
        if (*end == '-')
            (void)eg_append(net, eg_relu(ctx));
        width = out;
    }
    return net;
}

/* ---- a classifier of sequences (N, T, features) by the last output of an LSTM ---- */

enum { STEPS = 32, FEATURES = 64, HIDDEN = 128 };

typedef struct last_of_lstm {
    eg_module base;
    eg_module *lstm, *classifier;
} last_of_lstm;

static eg_status last_of_lstm_build(eg_module *self)
{
    last_of_lstm *m = (last_of_lstm *)self;
    EG_SLOT(m, lstm, eg_lstm(self->ctx, FEATURES, HIDDEN, .batch_first = true));
    EG_SLOT(m, classifier, eg_linear(self->ctx, HIDDEN, 10));
    return eg_module_status(self);
}

static eg_tensor *last_of_lstm_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    last_of_lstm *m = (last_of_lstm *)self;
    eg_tensor *last = eg_slice(eg_tuple_get(eg_call(m->lstm, in[0]), 0), 1, STEPS - 1, STEPS, 1);
    return eg_call(m->classifier, eg_f_flatten(last, 1, -1));
}

static EG_CLASS(last_of_lstm, .build = last_of_lstm_build, .forward = last_of_lstm_forward);

eg_module *bench_net(bench *b, eg_shape *input)
{
    const char *name = bench_text(b, "net", "");
    int64_t batch = bench_int(b, "batch", 64);
    *input = EG_SHAPE(batch, 3, 32, 32);
    if (strcmp(name, "resnet20") == 0)
        return resnet20(b->ctx);
    if (strcmp(name, "mobilenet") == 0)
        return mobilenet(b->ctx);
    if (strcmp(name, "lstm") == 0) {
        *input = EG_SHAPE(batch, STEPS, FEATURES);
        return eg_new(last_of_lstm, b->ctx);
    }
    if (strcmp(name, "mlp") == 0) {
        *input = EG_SHAPE(batch, 1);
        return mlp(b->ctx, bench_text(b, "sizes", "784-256-128-10"), &input->dims[1]);
    }
    (void)eg_fail(EG_ENOENT, "no network '%s'", name);
    return NULL;
}

eg_tensor *bench_labels(eg_context *ctx, int64_t batch, int64_t classes)
{
    int64_t *labels = calloc((size_t)batch, sizeof(*labels));
    for (int64_t i = 0; labels != NULL && i < batch; i++)
        labels[i] = i % classes;
    eg_tensor *y = eg_from_labels(ctx, (size_t)batch, labels);
    free(labels);
    return y;
}

/* ---- folding ---- */

/* y = scale (conv(x) - mean) + beta, with scale = gamma / sqrt(var + eps): a convolution of scaled weights, and a bias.
 */
static eg_module *folded(const eg_conv2d *c, const eg_batch_norm2d *n)
{
    eg_module *out = eg_conv2d(c->base.ctx, c->in_channels, c->out_channels, c->kernel_size, .stride = c->stride,
                               .padding = c->padding, .dilation = c->dilation, .groups = c->groups);
    eg_conv2d *to = out != NULL ? EG_CAST(out, eg_conv2d) : NULL;
    size_t channels = (size_t)c->out_channels, numel = (size_t)eg_tensor_numel(c->weight), each = numel / channels;
    float *w = calloc(numel + 4 * channels, sizeof(float)), *v = w + numel;
    eg_status status = to != NULL && w != NULL ? EG_OK : EG_ENOMEM;
    eg_tensor *const sources[] = {n->weight, n->bias, n->running_mean, n->running_var};
    for (size_t i = 0; i < 4 && status == EG_OK; i++)
        status = eg_tensor_read(sources[i], v + i * channels, channels);
    if (status == EG_OK)
        status = eg_tensor_read(c->weight, w, numel);
    for (size_t o = 0; o < channels && status == EG_OK; o++) {
        float scale = v[o] / __builtin_sqrtf(v[3 * channels + o] + (float)n->eps);
        for (size_t i = 0; i < each; i++)
            w[o * each + i] *= scale;
        v[channels + o] -= scale * v[2 * channels + o];
    }
    if (status == EG_OK)
        status = eg_tensor_write(to->weight, w, numel);
    if (status == EG_OK)
        status = eg_tensor_write(to->bias, v + channels, channels);
    free(w);
    if (status == EG_OK)
        return out;
    eg_module_release(out);
    return NULL;
}

eg_status bench_fold(eg_module *m)
{
    eg_module *conv = NULL, *norm = NULL;
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        eg_module *child = eg_module_child_at(m, i, NULL);
        conv = eg_is_a(child, &eg_conv2d_class) ? child : conv;
        norm = eg_is_a(child, &eg_batch_norm2d_class) ? child : norm;
        EG_TRY(bench_fold(child));
    }
    if (conv == NULL || norm == NULL)
        return EG_OK;
    bool relu = EG_CAST(norm, eg_batch_norm2d)->relu;
    EG_TRY(eg_module_set_child(m, "conv", folded(EG_CAST(conv, eg_conv2d), EG_CAST(norm, eg_batch_norm2d))));
    return eg_module_set_child(m, "norm", relu ? eg_relu(m->ctx) : eg_identity(m->ctx));
}
