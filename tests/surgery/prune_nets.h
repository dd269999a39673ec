/*
 * tests/surgery/prune_nets.h - networks in which channels hang together in all ways that there are, and the oracle.
 */
#ifndef EG_TESTS_PRUNE_NETS_H
#define EG_TESTS_PRUNE_NETS_H

#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery.h"

/* ---- blocks of a program's own ---- */

typedef struct residual {
    eg_module base;
    int64_t in_channels, channels, stride;
    bool projection; /* option B of He et al. 2016; else A: every other position, channels padded with zeros */
    eg_module *conv1, *bn1, *conv2, *bn2, *shortcut;
} residual;

static eg_status residual_build(eg_module *self)
{
    residual *r = (residual *)self;
    EG_SLOT(r, conv1,
            eg_conv2d(self->ctx, r->in_channels, r->channels, 3, .stride = r->stride, .padding = 1, .no_bias = true));
    EG_SLOT(r, bn1, eg_batch_norm2d(self->ctx, r->channels, .relu = true));
    EG_SLOT(r, conv2, eg_conv2d(self->ctx, r->channels, r->channels, 3, .padding = 1, .no_bias = true));
    EG_SLOT(r, bn2, eg_batch_norm2d(self->ctx, r->channels));
    if (r->projection)
        EG_SLOT(r, shortcut,
                eg_sequential(self->ctx,
                              EG_MODULES(eg_conv2d(self->ctx, r->in_channels, r->channels, 1, .stride = r->stride),
                                         eg_batch_norm2d(self->ctx, r->channels))));
    return eg_module_status(self);
}

static eg_tensor *residual_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const residual *r = (const residual *)self;
    eg_tensor *x = in[0], *y = eg_call(r->conv1, x);
    y = eg_call(r->bn1, y);
    y = eg_call(r->conv2, y);
    y = eg_call(r->bn2, y);
    if (r->projection) {
        x = eg_call(r->shortcut, x);
    } else if (r->stride > 1) {
        int64_t more = r->channels - r->in_channels;
        x = eg_slice(eg_slice(x, 2, 0, INT64_MAX, 2), 3, 0, INT64_MAX, 2);
        x = eg_f_pad(x, EG_SHAPE(0, 0, 0, 0, more / 2, more - more / 2), 0);
    }
    return eg_f_relu(eg_add(x, y));
}

static EG_CLASS(residual, .build = residual_build, .forward = residual_forward,
                .fields = EG_FIELDS(EG_INT(residual, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                                    EG_INT(residual, channels, EG_AT_LEAST(1), .help = "channels out"),
                                    EG_INT(residual, stride, EG_AT_LEAST(1), .def = 1,
                                           .help = "of the first convolution"),
                                    EG_BOOL(residual, projection, .help = "option B")));

/* The outputs of all children side by side, with the input where `dense`. */
typedef struct branches {
    eg_module base;
    eg_module *const *modules;
    size_t n_modules;
    bool dense;
} branches;

static eg_tensor *branches_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const branches *b = (const branches *)self;
    eg_tensor *y[8];
    size_t n = 0;
    if (b->dense)
        y[n++] = in[0];
    for (size_t i = 0; i < eg_module_n_children(self); i++)
        y[n++] = eg_call(eg_module_child_at(self, i, NULL), in[0]);
    return eg_concat(y, n, 1);
}

static EG_CLASS(branches, .forward = branches_forward,
                .fields = EG_FIELDS(EG_MODULES_FIELD(branches), EG_BOOL(branches, dense, .help = "and the input")));

/* x times a gate of its channels (Hu et al. 2018). */
typedef struct gated {
    eg_module base;
    eg_module *const *modules;
    size_t n_modules;
} gated;

static eg_tensor *gated_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_mul(in[0], eg_call(eg_module_child_at(self, 0, NULL), in[0]));
}

static EG_CLASS(gated, .forward = gated_forward, .fields = EG_FIELDS(EG_MODULES_FIELD(gated)));

/* x plus what the children make of it, one after the other. */
typedef struct added {
    eg_module base;
    eg_module *const *modules;
    size_t n_modules;
} added;

static eg_tensor *added_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *y = in[0];
    for (size_t i = 0; i < eg_module_n_children(self); i++)
        y = eg_call(eg_module_child_at(self, i, NULL), y);
    return eg_add(in[0], y);
}

static EG_CLASS(added, .forward = added_forward, .fields = EG_FIELDS(EG_MODULES_FIELD(added)));

/* Functions without parameters, by what they do. */
typedef struct function {
    eg_module base;
    int64_t kind;
} function;

enum { FIRST, HALVES, SHUFFLE, GLU, TOKENS, LAST_STEP, FIXED_HALF, MEAN_TOKENS };

static eg_tensor *function_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *x = in[0];
    int64_t channels = eg_tensor_ndim(x) > 1 ? eg_tensor_size(x, 1) : 0;
    switch (((const function *)self)->kind) {
    case HALVES: { /* the halves the other way round */
        eg_tensor *halves = eg_split(x, channels / 2, 1);
        return eg_concat((eg_tensor *const[]){eg_tuple_get(halves, 1), eg_tuple_get(halves, 0)}, 2, 1);
    }
    case GLU: {
        eg_tensor *halves = eg_split(x, channels / 2, 1);
        eg_tensor *gate = eg_f_sigmoid(eg_tuple_get(halves, 1));
        return eg_mul(eg_tuple_get(halves, 0), gate);
    }
    case SHUFFLE: { /* of 2 groups */
        eg_shape s = eg_tensor_shape(x);
        x = eg_reshape(x, EG_SHAPE(s.dims[0], 2, -1, s.dims[2], s.dims[3]));
        return eg_f_flatten(eg_permute(x, EG_SHAPE(0, 2, 1, 3, 4)), 1, 2);
    }
    case TOKENS: /* (N, C, H, W) -> (N, H W, C) */
        return eg_permute(eg_f_flatten(x, 2, 3), EG_SHAPE(0, 2, 1));
    case LAST_STEP: /* of a recurrent layer, batch first */
        x = eg_tuple_get(x, 0);
        return eg_f_flatten(eg_slice(x, 1, -1, INT64_MAX, 1), 1, 2);
    case FIXED_HALF: /* numbers that do not follow */
        return eg_concat((eg_tensor *const[]){eg_slice(x, 1, 4, 8, 1), eg_slice(x, 1, 0, 4, 1)}, 2, 1);
    case MEAN_TOKENS:
        return eg_mean(x, .dims = EG_SHAPE(1));
    default:
        return eg_tuple_get(x, 0);
    }
}

static EG_CLASS(function, .forward = function_forward, .fields = EG_FIELDS(EG_INT(function, kind, .help = "which")));
#define function(ctx, kind_) eg_new(function, ctx, .kind = kind_)
#define residual(...) eg_new(residual, __VA_ARGS__)

/* ---- networks ---- */

#define CONV(...) eg_conv2d(ctx, __VA_ARGS__)
#define NORM(n) eg_batch_norm2d(ctx, n)
#define SEQ(...) eg_sequential(ctx, EG_MODULES(__VA_ARGS__))

static eg_module *chain(eg_context *ctx)
{
    return SEQ(CONV(3, 8, 3, .padding = 1), NORM(8), eg_relu(ctx), CONV(8, 12, 3), eg_silu(ctx), CONV(12, 6, 1),
               eg_prelu(ctx, 6), eg_global_avg_pool2d(ctx), eg_linear(ctx, 6, 5));
}

static eg_module *resnet(eg_context *ctx, bool b)
{
    return SEQ(CONV(3, 8, 3, .padding = 1, .no_bias = true), NORM(8), eg_relu(ctx), residual(ctx, 8, 8),
               residual(ctx, 8, 16, .stride = 2, .projection = b), residual(ctx, 16, 16),
               residual(ctx, 16, 32, .stride = 2, .projection = b), residual(ctx, 32, 32), eg_global_avg_pool2d(ctx),
               eg_linear(ctx, 32, 10));
}

static eg_module *resnet_a(eg_context *ctx)
{
    return resnet(ctx, false);
}

static eg_module *resnet_b(eg_context *ctx)
{
    return resnet(ctx, true);
}

static eg_module *mobile_block(eg_context *ctx, int64_t in, int64_t wide, int64_t out, bool add)
{
    eg_module *list[] = {CONV(in, wide, 1),
                         NORM(wide),
                         eg_relu6(ctx),
                         CONV(wide, wide, 3, .padding = 1, .groups = wide),
                         NORM(wide),
                         eg_relu6(ctx),
                         eg_new(gated, ctx,
                                EG_MODULES(SEQ(eg_adaptive_avg_pool2d(ctx, 1), CONV(wide, wide / 2, 1), eg_relu(ctx),
                                               CONV(wide / 2, wide, 1), eg_sigmoid(ctx)))),
                         CONV(wide, out, 1),
                         NORM(out)};
    if (add)
        return eg_new(added, ctx, .modules = list, .n_modules = 9);
    return eg_sequential(ctx, .modules = list, .n_modules = 9);
}

static eg_module *mobilenet(eg_context *ctx)
{
    return SEQ(CONV(3, 8, 3, .stride = 2, .padding = 1), NORM(8), eg_hardswish(ctx), mobile_block(ctx, 8, 16, 8, true),
               mobile_block(ctx, 8, 24, 12, false), mobile_block(ctx, 12, 24, 12, true),
               CONV(12, 24, 3, .padding = 1, .groups = 12), eg_flatten(ctx), eg_linear(ctx, 24 * 4 * 4, 5));
}

static eg_module *densenet(eg_context *ctx)
{
    return SEQ(
        CONV(3, 6, 3, .padding = 1),
        eg_new(branches, ctx, EG_MODULES(SEQ(NORM(6), CONV(6, 4, 3, .padding = 1))), .dense = true),
        eg_new(branches, ctx, EG_MODULES(SEQ(NORM(10), eg_relu(ctx), CONV(10, 4, 3, .padding = 1))), .dense = true),
        CONV(14, 8, 1), eg_avg_pool2d(ctx, 2), eg_flatten(ctx), eg_linear(ctx, 8 * 4 * 4, 7));
}

static eg_module *inception(eg_context *ctx)
{
    return SEQ(CONV(3, 8, 3, .padding = 1),
               eg_new(branches, ctx,
                      EG_MODULES(CONV(8, 4, 1), SEQ(CONV(8, 6, 3, .padding = 1), NORM(6)),
                                 SEQ(eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1), CONV(8, 5, 1)))),
               NORM(15), CONV(15, 8, 3), eg_global_avg_pool2d(ctx), eg_linear(ctx, 8, 3));
}

static eg_module *grouped(eg_context *ctx)
{
    return SEQ(CONV(3, 16, 3, .padding = 1), CONV(16, 24, 3, .padding = 1, .groups = 2), eg_group_norm(ctx, 12, 24),
               CONV(24, 32, 3, .padding = 1, .groups = 8), eg_relu(ctx), CONV(32, 8, 1),
               eg_conv_transpose2d(ctx, 8, 12, 2, .stride = 2, .groups = 2),
               eg_conv_transpose2d(ctx, 12, 12, 2, .stride = 2, .groups = 12), eg_conv_transpose2d(ctx, 12, 6, 2),
               eg_instance_norm2d(ctx, 6, .affine = true), CONV(6, 4, 3), eg_global_avg_pool2d(ctx));
}

static eg_module *split(eg_context *ctx)
{
    return SEQ(CONV(3, 16, 3, .padding = 1), function(ctx, HALVES), CONV(16, 12, 1), function(ctx, GLU), CONV(6, 16, 1),
               eg_pixel_shuffle(ctx, 2), CONV(4, 8, 3), eg_pixel_unshuffle(ctx, 2), CONV(32, 8, 1),
               function(ctx, SHUFFLE), CONV(8, 8, 1, .groups = 2), eg_global_avg_pool2d(ctx), eg_linear(ctx, 8, 3));
}

static eg_module *fixed(eg_context *ctx)
{
    return SEQ(CONV(3, 8, 3), function(ctx, FIXED_HALF), CONV(8, 6, 1), eg_softmax(ctx, 1), CONV(6, 5, 1),
               eg_global_avg_pool2d(ctx), eg_linear(ctx, 5, 3));
}

static eg_module *lstm(eg_context *ctx)
{
    return SEQ(eg_linear(ctx, 5, 8), eg_relu(ctx), eg_lstm(ctx, 8, 6, .num_layers = 2, .batch_first = true),
               function(ctx, LAST_STEP), eg_linear(ctx, 6, 3));
}

static eg_module *gru(eg_context *ctx)
{
    return SEQ(eg_linear(ctx, 5, 8), eg_gru(ctx, 8, 6, .batch_first = true, .bidirectional = true),
               function(ctx, FIRST), eg_linear(ctx, 12, 3));
}

static eg_module *transformer(eg_context *ctx)
{
    eg_module *attention =
        eg_new(added, ctx,
               EG_MODULES(eg_layer_norm(ctx, EG_SHAPE(16)), eg_multihead_attention(ctx, 16, 4, .batch_first = true)));
    eg_module *feed = eg_new(
        added, ctx,
        EG_MODULES(eg_layer_norm(ctx, EG_SHAPE(16)), eg_linear(ctx, 16, 32), eg_gelu(ctx), eg_linear(ctx, 32, 16)));
    return SEQ(CONV(3, 16, 4, .stride = 4), function(ctx, TOKENS), attention, feed, eg_layer_norm(ctx, EG_SHAPE(16)),
               function(ctx, MEAN_TOKENS), eg_linear(ctx, 16, 5));
}

static eg_module *sequence(eg_context *ctx)
{
    return SEQ(eg_conv1d(ctx, 4, 12, 3, .padding = 1), eg_relu(ctx), eg_conv1d(ctx, 12, 12, 3, .groups = 12),
               eg_conv1d(ctx, 12, 6, 3), eg_flatten(ctx), eg_linear(ctx, 6 * 6, 3));
}

static const struct net {
    const char *name;
    eg_module *(*make)(eg_context *ctx);
    eg_shape input;
    size_t n_free; /* groups that can change */
} nets[] = {
    {"chain", chain, {{2, 3, 8, 8}, 4}, 3},
    {"resnet, option A", resnet_a, {{2, 3, 8, 8}, 4}, 0},
    {"resnet, option B", resnet_b, {{2, 3, 8, 8}, 4}, 0},
    {"mobilenet", mobilenet, {{2, 3, 8, 8}, 4}, 0},
    {"densenet", densenet, {{2, 3, 8, 8}, 4}, 0},
    {"inception", inception, {{2, 3, 8, 8}, 4}, 0},
    {"grouped", grouped, {{2, 3, 8, 8}, 4}, 0},
    {"split", split, {{2, 3, 8, 8}, 4}, 0},
    {"fixed", fixed, {{2, 3, 8, 8}, 4}, 0},
    {"lstm", lstm, {{2, 4, 5}, 3}, 0},
    {"gru", gru, {{2, 4, 5}, 3}, 0},
    {"transformer", transformer, {{2, 3, 16, 16}, 4}, 0},
    {"sequence", sequence, {{2, 4, 10}, 3}, 0},
};

/* ---- the oracle ---- */

/* Numbers that nobody has by chance, also in what starts as zeros and ones. */
static inline void fill_random(eg_module *m)
{
    eg_state *state = eg_state_new();
    assert_ok(eg_module_state(m, NULL, state));
    for (size_t i = 0; i < eg_state_size(state); i++) {
        const char *name;
        eg_tensor *t = eg_state_at(state, i, &name);
        if (eg_tensor_ndim(t) == 0)
            continue;
        bool positive = strstr(name, "running_var") != NULL;
        assert_ok(eg_init_uniform(t, positive ? 0.5 : -0.6, positive ? 1.5 : 0.6));
    }
    eg_state_free(state);
}

/* The entries of a unit in a part are set to 0. */
static inline void zero_unit(const eg_coupled_part *p, size_t unit)
{
    if (!eg_tensor_requires_grad(p->tensor))
        return;
    int64_t n = eg_tensor_numel(p->tensor), inner = 1, size = eg_tensor_size(p->tensor, p->dim);
    for (int d = p->dim + 1; d < eg_tensor_ndim(p->tensor); d++)
        inner *= eg_tensor_size(p->tensor, d);
    float *numbers = malloc((size_t)n * sizeof(float));
    assert_non_null(numbers);
    assert_ok(eg_tensor_read(p->tensor, numbers, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        for (size_t k = 0; k < p->per_unit; k++) {
            if (i / inner % size == p->indices[unit * p->per_unit + k])
                numbers[i] = 0;
        }
    }
    assert_ok(eg_tensor_write(p->tensor, numbers, (size_t)n));
    free(numbers);
}

static inline float *outputs_of(eg_module *m, eg_shape shape, size_t *n)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_NO_GRAD);
    eg_rng rng = eg_rng_make(5, "inputs", 0);
    float *x = malloc((size_t)eg_shape_numel(shape) * sizeof(float));
    assert_non_null(x);
    for (int64_t i = 0; i < eg_shape_numel(shape); i++)
        x[i] = (float)eg_rng_normal(&rng);
    eg_tensor *y = eg_call(m, eg_from_data(m->ctx, shape, x));
    assert_made(y);
    y = eg_tuple_get(y, 0);
    *n = (size_t)eg_tensor_numel(y);
    float *numbers = malloc(*n * sizeof(float));
    assert_non_null(numbers);
    assert_ok(eg_tensor_read(y, numbers, *n));
    free(x);
    eg_tape_end(tape);
    return numbers;
}

static inline void assert_same_outputs(const char *name, const float *a, const float *b, size_t n)
{
    double largest = 0, difference = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
    }
    if (!(difference <= 2e-5 * (largest + 1e-3)) || largest == 0)
        fail_msg("%s: outputs up to %g differ by %g", name, largest, difference);
}

/* Zeroes what chance names, then takes it away: the outputs stay. Takes back and has the old ones. */
static inline void check_zeros(eg_module *m, const char *name, eg_shape input, uint64_t seed)
{
    fill_random(m);
    eg_module_train(m, false);
    eg_coupling *c = eg_coupling_new(m, (eg_shapes){&input, 1});
    assert_made(c);
    eg_rng rng = eg_rng_make(seed, "units", 0);
    size_t gone = 0;
    for (size_t i = 0; i < eg_coupling_size(c); i++) {
        const eg_coupled_group *g = eg_coupling_at(c, i);
        for (size_t u = 0; u + 1 < g->n_units && g->fixed == NULL && g->mixed == NULL; u++) {
            if (eg_rng_uniform(&rng) > 0.4)
                continue;
            for (size_t k = 0; k < g->n_parts; k++)
                zero_unit(&g->parts[k], u);
            assert_ok(eg_coupling_set(c, i, u, 0));
            gone++;
        }
    }
    size_t n, n_after;
    float *before = outputs_of(m, input, &n);
    eg_surgery *s = eg_surgery_new(m, .inputs = {&input, 1});
    assert_made(s);
    eg_status status = eg_surgery_resize(s, c);
    if (status == EG_EUNSUPPORTED) { /* that is for pruning to find out, which then takes others */
        assert_recorded(EG_EUNSUPPORTED, "does not follow");
        assert_ok(eg_surgery_prune(s, .ratio = 0.5, .score = EG_IMPORTANCE_RANDOM));
        assert_ok(eg_surgery_commit(s));
        free(outputs_of(m, input, &n_after));
        if (eg_surgery_size(s) > 0)
            assert_ok(eg_surgery_undo(s));
        free(before);
        eg_surgery_free(s);
        eg_coupling_free(c);
        return;
    }
    if (status != EG_OK)
        fail_msg("%s: %s", name, eg_error_last()->message);
    int64_t parameters = eg_module_n_parameters(m);
    status = eg_surgery_commit(s);
    if (status != EG_OK)
        fail_msg("%s: %s", name, eg_error_last()->message);
    assert_true(gone == 0 || eg_module_n_parameters(m) < parameters);
    float *after = outputs_of(m, input, &n_after);
    assert_int_equal(n, n_after);
    assert_same_outputs(name, before, after, n);
    if (gone > 0)
        assert_ok(eg_surgery_undo(s));
    free(after);
    after = outputs_of(m, input, &n_after);
    assert_memory_equal(before, after, n * sizeof(float));
    free(before);
    free(after);
    eg_surgery_free(s);
    eg_coupling_free(c);
}

#endif
