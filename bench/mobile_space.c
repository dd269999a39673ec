/*
 * bench/mobile_space.c - a search space after MobileNetV2 (Sandler et al. 2018) and ProxylessNAS (Cai et al. 2019), for
 * images of 32x32: twelve layers, each an inverted residual with a kernel of 3, 5 or 7 and an expansion of 3 or 6, or
 * skipped where its input has the shape of its output.
 */
#include "bench.h"

/* ---- an inverted residual ---- */

typedef struct inverted_residual {
    eg_module base;
    int64_t in, out, kernel, expansion, stride;
    eg_module *layers;
} inverted_residual;

static eg_status inverted_residual_build(eg_module *self)
{
    inverted_residual *m = (inverted_residual *)self;
    eg_context *ctx = self->ctx;
    int64_t hidden = m->in * m->expansion;
    return EG_SLOT(m, layers,
                   eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, m->in, hidden, 1, .no_bias = true),
                                                 eg_batch_norm2d(ctx, hidden), eg_relu6(ctx),
                                                 eg_conv2d(ctx, hidden, hidden, m->kernel, .stride = m->stride,
                                                           .padding = m->kernel / 2, .groups = hidden, .no_bias = true),
                                                 eg_batch_norm2d(ctx, hidden), eg_relu6(ctx),
                                                 eg_conv2d(ctx, hidden, m->out, 1, .no_bias = true),
                                                 eg_batch_norm2d(ctx, m->out))));
}

static eg_tensor *inverted_residual_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    inverted_residual *m = (inverted_residual *)self;
    eg_tensor *y = eg_call(m->layers, in[0]);
    return m->stride == 1 && m->in == m->out ? eg_add(in[0], y) : y;
}

static EG_CLASS(inverted_residual, .build = inverted_residual_build, .forward = inverted_residual_forward,
                .fields = EG_FIELDS(EG_INT(inverted_residual, in, EG_AT_LEAST(1), .help = "channels in"),
                                    EG_INT(inverted_residual, out, EG_AT_LEAST(1), .help = "channels out"),
                                    EG_INT(inverted_residual, kernel, EG_AT_LEAST(1), .help = "kernel size"),
                                    EG_INT(inverted_residual, expansion, EG_AT_LEAST(1), .help = "of the channels"),
                                    EG_INT(inverted_residual, stride, EG_AT_LEAST(1), .help = "stride")));

/* ---- the network ---- */

enum { STEM = 16, HEAD = 320, PER_STAGE = 4 };

static eg_module *choice(eg_context *ctx, const char *key, int64_t in, int64_t out, int64_t stride)
{
    enum { KERNELS = 3, EXPANSIONS = 2, CANDIDATES = KERNELS * EXPANSIONS };
    static const char *const names[] = {"k3_e3", "k3_e6", "k5_e3", "k5_e6", "k7_e3", "k7_e6", "skip"};
    eg_named_module named[CANDIDATES + 1];
    for (int i = 0; i < CANDIDATES; i++)
        named[i] = (eg_named_module){names[i], eg_new(inverted_residual, ctx, in, out, 3 + 2 * (i / EXPANSIONS),
                                                      i % EXPANSIONS == 0 ? 3 : 6, stride)};
    bool skip = stride == 1 && in == out;
    if (skip)
        named[CANDIDATES] = (eg_named_module){names[CANDIDATES], eg_identity(ctx)};
    return eg_layer_choice(ctx, .named = named, .n_named = CANDIDATES + (skip ? 1 : 0), .key = key);
}

eg_module *bench_mobile_space(eg_context *ctx)
{
    static const int64_t widths[] = {24, 40, 80};
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, STEM, 3, .padding = 1, .no_bias = true),
                                                   eg_batch_norm2d(ctx, STEM), eg_relu6(ctx)));
    int64_t in = STEM;
    for (int i = 0; i < 3 * PER_STAGE; i++) {
        char key[32];
        int64_t out = widths[i / PER_STAGE], stride = i > 0 && i % PER_STAGE == 0 ? 2 : 1;
        snprintf(key, sizeof(key), "layer%d", i);
        (void)eg_append(net, choice(ctx, key, in, out, stride));
        in = out;
    }
    (void)eg_append(net, eg_conv2d(ctx, in, HEAD, 1, .no_bias = true));
    (void)eg_append(net, eg_batch_norm2d(ctx, HEAD));
    (void)eg_append(net, eg_relu6(ctx));
    (void)eg_append(net, eg_global_avg_pool2d(ctx));
    (void)eg_append(net, eg_linear(ctx, HEAD, 10));
    return net;
}
