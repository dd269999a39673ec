/*
 * tests/surgery/random_models.h - random models of all that methods of surgery look for: groups, strides, layers that
 * stand in two places, tied weights, hooks, computed weights, classes of somebody's own.
 */
#ifndef EG_TESTS_RANDOM_MODELS_H
#define EG_TESTS_RANDOM_MODELS_H

#include "surgery_support.h"

enum { MAX_LAYERS = 48 };

/* ---- random numbers ---- */

static eg_rng *rng;
static size_t below(size_t n)
{
    return (size_t)eg_rng_below(rng, n);
}

static bool chance(size_t one_in)
{
    return below(one_in) == 0;
}

static int64_t one_of(const int64_t *list, size_t n)
{
    return list[below(n)];
}
#define ONE_OF(...) one_of((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* ---- random models ---- */

static eg_tensor *double_it(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    (void)failed;
    ++*(size_t *)payload;
    return eg_affine(t, 2, 0);
}

static size_t n_hooked;

/* A class of somebody's own. */
static const eg_class my_conv_class = {
    .struct_size = sizeof(eg_class), .name = "MyConv", .super = &eg_conv2d_class, .instance_size = sizeof(eg_conv2d)};

typedef struct builder {
    eg_module *layers[MAX_LAYERS];
    size_t n;
    int64_t channels, size; /* of an image; size 0: it is flat */
} builder;

static void push(builder *b, eg_module *m)
{
    assert_made(m);
    assert_true(b->n < MAX_LAYERS);
    b->layers[b->n++] = m;
}

static eg_module *random_act(void)
{
    switch (below(5)) {
    case 0:
        return eg_gelu(ctx);
    case 1:
        return eg_silu(ctx);
    case 2:
        return eg_tanh(ctx);
    default:
        return eg_relu(ctx);
    }
}

static void decorate(eg_module *m)
{
    if (chance(12))
        assert_ok(eg_module_add_hook(m, double_it, &n_hooked, NULL));
    if (chance(16))
        assert_ok(eg_module_add_pre_hook(m, double_it, &n_hooked, NULL));
}

static int64_t out_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
{
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

static void add_conv(builder *b, int64_t out, bool keep)
{
    int64_t kernel = ONE_OF(1, 2, 3, 3, 3), stride = keep ? 1 : ONE_OF(1, 1, 1, 2),
            dilation = keep ? 1 : ONE_OF(1, 1, 2);
    int64_t groups = 1, padding = kernel / 2;
    if (keep && kernel == 2)
        kernel = 3, padding = 1;
    if (dilation == 2 && kernel == 3)
        padding = 2;
    if (out_size(b->size, kernel, stride, padding, dilation) < 1)
        return;
    if (chance(4) && out % b->channels == 0)
        groups = b->channels;
    else if (chance(4) && out % 2 == 0 && b->channels % 2 == 0)
        groups = 2;
    eg_conv2d prototype = {.base.ctx = ctx,
                           .in_channels = b->channels,
                           .out_channels = out,
                           .kernel_size = kernel,
                           .stride = stride,
                           .padding = padding,
                           .dilation = dilation,
                           .groups = groups,
                           .no_bias = chance(2)};
    eg_module *m = eg_module_new(chance(10) ? &my_conv_class : &eg_conv2d_class, sizeof(prototype), &prototype);
    assert_made(m);
    decorate(m);
    if (chance(12))
        assert_ok(eg_weight_norm(m, "weight", 0));
    push(b, m);
    b->channels = out;
    b->size = out_size(b->size, kernel, stride, padding, dilation);
    if (chance(2)) {
        m = eg_batch_norm2d(ctx, out, .relu = chance(4), .no_affine = chance(6), .no_track_running_stats = chance(12));
        assert_made(m);
        decorate(m);
        push(b, m);
    }
    if (chance(2))
        push(b, random_act());
}

static eg_module *sequence_of(builder *b)
{
    eg_module *m = eg_sequential(ctx, b->layers, b->n);
    assert_made(m);
    return m;
}

static void add_block(builder *b)
{
    builder body = {.channels = b->channels, .size = b->size};
    int64_t out = chance(3) ? b->channels : ONE_OF(2, 4, 8, 16);
    add_conv(&body, ONE_OF(2, 4, 6, 8), true);
    add_conv(&body, out, true);
    eg_module *f = body.n == 1 ? body.layers[0] : sequence_of(&body);
    if (out == b->channels && chance(2)) {
        push(b, eg_residual_block(ctx, EG_NAMED({"body", f})));
        return;
    }
    builder side = {.channels = b->channels, .size = b->size};
    add_conv(&side, out, true);
    push(b, eg_residual_block(ctx, EG_NAMED({"body", f}, {"shortcut", sequence_of(&side)})));
    b->channels = out;
}

static void add_image_layer(builder *b)
{
    eg_module *m;
    switch (below(9)) {
    case 0:
        if (b->size >= 4) {
            push(b, eg_max_pool2d(ctx, 2, .stride = ONE_OF(0, 1, 2)));
            b->size = out_size(b->size, 2, ((eg_max_pool2d *)b->layers[b->n - 1])->stride == 1 ? 1 : 2, 0, 1);
        }
        break;
    case 1:
    case 2:
        add_block(b);
        break;
    case 3:
        push(b, chance(2) ? eg_identity(ctx) : eg_dropout(ctx, 0));
        break;
    case 4:
        push(b, eg_group_norm(ctx, b->channels % 2 == 0 ? 2 : 1, b->channels));
        break;
    case 5: /* one convolution twice */
        m = eg_conv2d(ctx, b->channels, b->channels, 3, .padding = 1);
        push(b, m);
        if (chance(2))
            push(b, eg_batch_norm2d(ctx, b->channels));
        push(b, eg_module_retain(m));
        break;
    default:
        add_conv(b, ONE_OF(1, 2, 4, 6, 8, 16, 17, 24), false);
    }
}

static eg_module *random_linear(int64_t in, int64_t out)
{
    eg_module *m = eg_linear(ctx, in, out, .no_bias = chance(3));
    assert_made(m);
    decorate(m);
    if (chance(14))
        assert_ok(eg_weight_norm(m, "weight", 0));
    return m;
}

static void tie(eg_module *a, eg_module *b)
{
    eg_tensor **x = eg__slot_tensor(eg__slot_find(a, "weight", 6)),
              **y = eg__slot_tensor(eg__slot_find(b, "weight", 6));
    eg_tensor_release(*y);
    *y = eg_tensor_keep(*x);
}

static void add_flat_layer(builder *b)
{
    int64_t out = ONE_OF(1, 3, 8, 12, 20), c = b->channels;
    eg_module *a, *d;
    switch (below(6)) {
    case 0: /* that read the same */
        push(b, eg_residual_block(ctx, EG_NAMED({"body", random_linear(c, out)}, {"shortcut", random_linear(c, out)})));
        b->channels = out;
        break;
    case 1:
        push(b, eg_layer_norm(ctx, EG_SHAPE(c)));
        break;
    case 2: /* tied */
        a = eg_linear(ctx, c, c);
        d = eg_linear(ctx, c, c);
        tie(a, d);
        push(b, a);
        push(b, random_act());
        push(b, d);
        break;
    case 3: /* the same twice */
        a = eg_linear(ctx, c, c);
        push(b, a);
        push(b, random_act());
        push(b, eg_module_retain(a));
        break;
    default:
        push(b, random_linear(c, out));
        push(b, random_act());
        b->channels = out;
    }
}

/* Some in a Sequential of their own. */
static void nest(builder *b)
{
    size_t first = below(b->n), n = 1 + below(b->n - first);
    builder part = {.n = n};
    memcpy(part.layers, b->layers + first, n * sizeof(eg_module *));
    eg_module *m = sequence_of(&part);
    if (chance(4))
        assert_ok(eg_module_add_hook(m, double_it, &n_hooked, NULL));
    memmove(b->layers + first + 1, b->layers + first + n, (b->n - first - n) * sizeof(eg_module *));
    b->layers[first] = m;
    b->n -= n - 1;
}

static eg_module *random_image_model(eg_shape *input)
{
    builder b = {.channels = ONE_OF(1, 2, 3, 16), .size = ONE_OF(4, 5, 8)};
    *input = EG_SHAPE(ONE_OF(1, 2, 4), b.channels, b.size, b.size);
    size_t n = 1 + below(4);
    for (size_t i = 0; i < n; i++)
        add_image_layer(&b);
    if (chance(8))
        goto done;
    if (chance(2)) {
        push(&b, eg_global_avg_pool2d(ctx));
    } else {
        push(&b, eg_flatten(ctx));
        b.channels *= b.size * b.size;
    }
    n = below(3);
    for (size_t i = 0; i < n; i++)
        add_flat_layer(&b);
    push(&b, eg_linear(ctx, b.channels, 5));
done:
    if (b.n > 0 && chance(2))
        nest(&b);
    return sequence_of(&b);
}

static eg_module *random_sequence_model(eg_shape *input)
{
    int64_t width = 8;
    builder b = {.channels = width};
    *input = EG_SHAPE(ONE_OF(1, 2, 3), ONE_OF(1, 3, 5), width);
    size_t n = 1 + below(2);
    for (size_t i = 0; i < n; i++) {
        eg_module *attention = eg_multihead_attention(ctx, width, ONE_OF(1, 2, 4), .batch_first = chance(2),
                                                      .no_bias = chance(3), .is_causal = chance(3));
        assert_made(attention);
        decorate(attention);
        push(&b, eg_residual_block(ctx, EG_NAMED({"body", attention})));
        push(&b, eg_layer_norm(ctx, EG_SHAPE(width), .no_affine = chance(4)));
        push(&b, eg_residual_block(
                     ctx, EG_NAMED({"body", eg_sequential(ctx, EG_MODULES(random_linear(width, 12), random_act(),
                                                                          random_linear(12, width)))})));
    }
    push(&b, eg_linear(ctx, width, 3));
    if (chance(2))
        nest(&b);
    return sequence_of(&b);
}

#endif
