/*
 * tests/nas/everything.h - a space with every kind of choice, in and beside each other.
 */
#ifndef EG_TESTS_NAS_EVERYTHING_H
#define EG_TESTS_NAS_EVERYTHING_H

#include "nas/toy.h"

/* A composite: a depthwise and a pointwise convolution of an open width, which hands its field on. */
typedef struct separable {
    eg_module base;
    int64_t width, kernel, padding;
    eg_module *depthwise, *pointwise, *norm;
} separable;

static inline eg_status separable_build(eg_module *self)
{
    separable *s = (separable *)self;
    int64_t width = EG_OPEN(s, width);
    EG_SLOT(s, depthwise,
            eg_conv2d(self->ctx, width, width, EG_OPEN(s, kernel), .padding = EG_OPEN(s, padding), .groups = width,
                      .no_bias = true));
    EG_SLOT(s, pointwise, eg_conv2d(self->ctx, width, width, 1));
    EG_SLOT(s, norm, eg_batch_norm2d(self->ctx, width));
    return eg_module_status(self);
}

static inline eg_tensor *separable_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const separable *s = (const separable *)self;
    return eg_call(s->norm, eg_call(s->pointwise, eg_call(s->depthwise, in[0])));
}

static EG_CLASS(separable, .build = separable_build, .forward = separable_forward,
                .fields = EG_FIELDS(EG_INT(separable, width, EG_AT_LEAST(1), .help = "channels"),
                                    EG_INT(separable, kernel, EG_AT_LEAST(1), .help = "window"),
                                    EG_INT(separable, padding, EG_AT_LEAST(0), .help = "around")));

typedef struct everything_handles {
    int64_t width, kernel, padding, inner_kernel, inner_padding;
} everything_handles;

static inline eg_module *everything_block(eg_context *ctx, const everything_handles *h)
{
    eg_module *wide = eg_new(separable, ctx, h->width, h->inner_kernel, h->inner_padding);
    eg_module *inner = eg_layer_choice(
        ctx,
        EG_CHOICES({"separable", wide}, {"grouped", eg_conv2d(ctx, h->width, h->width, 3, .padding = 1, .groups = 2)}),
        .key = "inner");
    return eg_layer_choice(
        ctx,
        EG_CHOICES(
            {"conv", eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, h->width, h->width, h->kernel, .padding = h->padding),
                                                   eg_batch_norm2d(ctx, h->width), eg_relu(ctx)))},
            {"nested", eg_sequential(ctx, EG_MODULES(eg_relu(ctx), inner))}, {"skip", eg_identity(ctx)}),
        .key = "block");
}

/* Images (N, 3, 8, 8) to 4 classes. */
static inline eg_module *make_everything(eg_context *ctx)
{
    everything_handles h = {.width = eg_value_choice(ctx, EG_VALUES(4, 12, 8), .key = "width"),
                            .kernel = eg_value_choice(ctx, EG_VALUES(1, 3, 5), .key = "kernel"),
                            .padding = eg_value_choice(ctx, EG_VALUES(0, 1, 2), .key = "kernel"),
                            .inner_kernel = eg_value_choice(ctx, EG_VALUES(3, 5), .key = "inner_kernel"),
                            .inner_padding = eg_value_choice(ctx, EG_VALUES(1, 2), .key = "inner_kernel")};
    int64_t features = eg_value_choice(ctx, EG_VALUES(6, 9), .key = "features");
    int64_t p = eg_value_choice(ctx, EG_VALUES(0.25, 0.5), .key = "p");
    eg_module *shared = everything_block(ctx, &h);
    eg_module *repeat =
        eg_repeat(ctx,
                  EG_MODULES(shared, eg_conv2d(ctx, h.width, h.width, 1),
                             eg_layer_choice(ctx, EG_MODULES(eg_relu(ctx), eg_tanh(ctx)), .key = "last"),
                             eg_module_retain(shared)),
                  .depth = eg_value_choice(ctx, EG_VALUES(0, 2, 4), .key = "depth"));
    eg_module *head = eg_sequential(ctx, EG_MODULES(eg_adaptive_avg_pool2d(ctx, 1), eg_flatten(ctx),
                                                    eg_linear(ctx, h.width, features), eg_dropout(ctx, (double)p),
                                                    eg_linear(ctx, features, 4)));
    return eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, 3, h.width, 3, .padding = 1), eg_batch_norm2d(ctx, h.width), repeat, head));
}

/* ---- what tests of open fields do ---- */

static inline eg_mutator *attach(eg_module *net)
{
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    return mutator;
}

static inline void decide(eg_mutator *mutator, const char *text)
{
    eg_arch *arch = parse_arch(text);
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_arch_free(arch);
}

static inline eg_tensor *run(eg_module *net, eg_shape shape)
{
    return eg_call(net, eg_ones(net->ctx, shape));
}

/* The same numbers. */
static inline void compare(const eg_tensor *a, const eg_tensor *b)
{
    assert_made(a);
    assert_made(b);
    size_t n = (size_t)eg_tensor_numel(a);
    assert_int_equal(eg_tensor_numel(b), n);
    float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    assert_ok(eg_tensor_read(a, x, n));
    assert_ok(eg_tensor_read(b, y, n));
    assert_memory_equal(x, y, n * sizeof *x);
    free(x);
    free(y);
}

#endif
