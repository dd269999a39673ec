/*
 * Every function from base to io that hands something over, and what is done with it next: each allocation fails once.
 */
#include "alloc_table.h"

#include "data/data_support.h"
#include "engraft/io.h"
#include "engraft/layers.h"
#include "engraft/optim.h"

#include <sys/stat.h>

typedef struct world {
    alloc_world base;
    eg_module *model; /* in evaluation mode */
    eg_dataset *data;
    char *text;
    float output[3];
} world;

/* Made once, only read by the rows. */
static char json_path[TEMPORARY_PATH_SIZE];
static char *directory, weights[TEMPORARY_PATH_SIZE], rewritten[TEMPORARY_PATH_SIZE], csv[TEMPORARY_PATH_SIZE + 8],
    idx[TEMPORARY_PATH_SIZE + 8], cifar[TEMPORARY_PATH_SIZE + 8];

static const eg_shape input_shape = {.dims = {2, 1, 4, 4}, .ndim = 4};

static eg_module *make_model(eg_context *ctx)
{
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 1, 2, 3, .padding = 1, .no_bias = true)},
                                       {"norm", eg_batch_norm2d(ctx, 2)}, {"pool", eg_global_avg_pool2d(ctx)},
                                       {"fc", eg_linear(ctx, 2, 3)}));
}

static void run(world *w, float output[3])
{
    eg_tape *tape = eg_tape_begin(w->base.ctx, EG_NO_GRAD);
    eg_tensor *y = eg_slice(eg_call(w->model, eg_full(w->base.ctx, input_shape, 0.5)), 0, 0, 1, 1);
    assert_ok(eg_tensor_read(y, output, 3));
    eg_tape_end(tape);
}

static void setup(void *payload)
{
    world *w = payload;
    w->model = make_model(w->base.ctx);
    assert_made(w->model);
    eg_module_train(w->model, false);
    w->data = make_images(w->base.ctx, 7, 1, 4, 3);
    w->text = eg_module_text(w->model);
    assert_made(w->text);
    run(w, w->output);
}

static void teardown(void *payload)
{
    world *w = payload;
    eg_module_release(w->model);
    eg_dataset_release(w->data);
    eg_free(w->text);
}

static void check(void *payload)
{
    world *w = payload;
    float output[3];
    run(w, output);
    assert_memory_equal(output, w->output, sizeof output);
    char *text = eg_module_text(w->model);
    assert_made(text);
    assert_string_equal(text, w->text);
    eg_free(text);
    assert_int_equal(w->model->refs, 1);
    assert_int_equal(eg_dataset_size(w->data), 7);
    assert_false(eg_is_recording(w->base.ctx));
}

/* A row that makes one thing and frees it. */
#define MAKES(row, type, make, release)                                                                                \
    static eg_status row(void *payload)                                                                                \
    {                                                                                                                  \
        world *w = payload;                                                                                            \
        eg_context *ctx = w->base.ctx;                                                                                 \
        (void)ctx;                                                                                                     \
        type *made = make;                                                                                             \
        eg_status status = alloc_made(made);                                                                           \
        release(made);                                                                                                 \
        return status;                                                                                                 \
    }

/* ---- base, tensor, autograd ---- */

MAKES(context, eg_context, eg_context_new(.threads = 1, .seed = 3), eg_context_free)

static void lent(void *made)
{
    (void)made;
}

MAKES(zeros, eg_tensor, eg_zeros(ctx, EG_SHAPE(2, 3)), lent)
MAKES(ones, eg_tensor, eg_ones(ctx, EG_SHAPE(2, 3)), lent)
MAKES(full, eg_tensor, eg_full(ctx, EG_SHAPE(2, 3), 2), lent)
MAKES(randn, eg_tensor, eg_randn(ctx, EG_SHAPE(1, 2, 3, 4)), lent)
MAKES(rand_, eg_tensor, eg_rand(ctx, EG_SHAPE(1, 2, 3, 4)), lent)
MAKES(from_data, eg_tensor, eg_from_data(ctx, EG_SHAPE(2), (const float[]){1, 2}), lent)
MAKES(from_labels, eg_tensor, eg_from_labels(ctx, 2, (const int64_t[]){1, 2}), lent)
MAKES(shape_only, eg_tensor, eg_shape_only(ctx, EG_SHAPE(2, 3)), lent)
MAKES(empty, eg_tensor, eg_empty(ctx, EG_F64, EG_SHAPE(1, 2, 3, 4), EG_LAYOUT_ROW_MAJOR), lent)
MAKES(copy, eg_tensor, eg_tensor_copy(eg_ones(ctx, EG_SHAPE(2))), lent)
MAKES(detach, eg_tensor, eg_detach(eg_ones(ctx, EG_SHAPE(2))), lent)
MAKES(tape, eg_tape, eg_tape_begin(ctx, EG_RECORD), eg_tape_end)

static eg_status tuple(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_tensor *items[20];
    for (size_t i = 0; i < 20; i++)
        EG_TRY(alloc_made(items[i] = eg_ones(ctx, EG_SHAPE(2))));
    return alloc_made(eg_tuple(ctx, items, 20));
}

/* Different layouts, so that numbers are moved. */
static eg_status numbers(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_tensor *t = eg_ones(ctx, EG_SHAPE(1, 2, 2, 2)),
              *row_major = eg_empty(ctx, EG_F32, EG_SHAPE(1, 2, 2, 2), EG_LAYOUT_ROW_MAJOR);
    EG_TRY(alloc_made(t));
    EG_TRY(alloc_made(row_major));
    float values[8] = {0};
    EG_TRY(eg_tensor_write(t, values, 8));
    EG_TRY(eg_tensor_read(t, values, 8));
    EG_TRY(eg_tensor_assign(row_major, t));
    FILE *out = fopen("/dev/null", "wb");
    assert_non_null(out);
    eg_status status = eg_tensor_print(t, out);
    fclose(out);
    return status;
}

static eg_tensor *square(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)payload, (void)n_in;
    return eg_mul(in[0], in[0]);
}

static eg_status gradcheck(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_tensor *t = eg_empty(ctx, EG_F64, EG_SHAPE(3), EG_LAYOUT_DEFAULT);
    EG_TRY(alloc_made(t));
    EG_TRY(eg_tensor_write(t, (const float[]){1, 2, 3}, 3));
    EG_TRY(eg_tensor_set_requires_grad(t, true));
    return eg_gradcheck(ctx, square, NULL, &t, 1, NULL);
}

/* In both of its runs. */
static eg_status recompute(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *x = tape ? eg_ones(ctx, EG_SHAPE(3)) : NULL;
    eg_status status = x ? eg_tensor_set_requires_grad(x, true) : eg_error_last()->code;
    eg_tensor *y = status == EG_OK ? eg_recompute(ctx, square, NULL, NULL, &x, 1) : NULL;
    if (status == EG_OK)
        status = y ? eg_backward(eg_sum(y)) : eg_error_last()->code;
    eg_tape_end(tape);
    return status;
}

/* ---- layers: made and run once ---- */

static eg_status run_layer(eg_module *layer, eg_shape shape)
{
    eg_status status = alloc_made(layer);
    if (status == EG_OK)
        status = alloc_made(eg_call(layer, eg_ones(layer->ctx, shape)));
    eg_module_release(layer);
    return status;
}

#define LAYER(row, make)                                                                                               \
    static eg_status row(void *payload)                                                                                \
    {                                                                                                                  \
        eg_context *ctx = ((world *)payload)->base.ctx;                                                                \
        return run_layer(make, EG_SHAPE(2, 2, 4, 4));                                                                  \
    }

LAYER(conv2d, eg_conv2d(ctx, 2, 4, 3, .groups = 2))
LAYER(conv_transpose2d, eg_conv_transpose2d(ctx, 2, 4, 3, .groups = 2))
LAYER(group_norm, eg_group_norm(ctx, 2, 2))
LAYER(layer_norm, eg_layer_norm(ctx, EG_SHAPE(4, 4)))
LAYER(instance_norm2d, eg_instance_norm2d(ctx, 2, .affine = true))
LAYER(upsample, eg_upsample(ctx, .scale_factor = 2, .mode = EG_BILINEAR))
LAYER(pixel_shuffle, eg_pixel_shuffle(ctx, 1))
LAYER(pixel_unshuffle, eg_pixel_unshuffle(ctx, 2))
LAYER(linear, eg_linear(ctx, 4, 3))
LAYER(repeat, eg_repeat(ctx, EG_MODULES(eg_relu(ctx), eg_tanh(ctx), eg_relu(ctx)), .depth = 2))
LAYER(multihead_attention, eg_sequential(ctx, EG_MODULES(eg_flatten(ctx, 1, 2), eg_multihead_attention(ctx, 4, 2))))
LAYER(lstm, eg_sequential(ctx, EG_MODULES(eg_flatten(ctx, 1, 2),
                                          eg_lstm(ctx, 4, 3, .num_layers = 2, .dropout = 0.5, .bidirectional = true))))
LAYER(gru, eg_sequential(ctx, EG_MODULES(eg_flatten(ctx, 1, 2), eg_gru(ctx, 4, 3, .batch_first = true))))
LAYER(lstm_cell, eg_sequential(ctx, EG_MODULES(eg_flatten(ctx), eg_lstm_cell(ctx, 32, 3))))
LAYER(gru_cell, eg_sequential(ctx, EG_MODULES(eg_flatten(ctx), eg_gru_cell(ctx, 32, 3))))

static eg_status embedding(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_module *layer = eg_embedding(ctx, 5, 3, EG_F64(0));
    eg_status status = alloc_made(layer);
    if (status == EG_OK)
        status = alloc_made(eg_call(layer, eg_from_labels(ctx, 2, (const int64_t[]){1, 4})));
    eg_module_release(layer);
    return status;
}

LAYER(batch_norm2d, eg_batch_norm2d(ctx, 2, .relu = true))
LAYER(max_pool2d, eg_max_pool2d(ctx, 2))
LAYER(avg_pool2d, eg_avg_pool2d(ctx, 2))
LAYER(adaptive_avg_pool2d, eg_adaptive_avg_pool2d(ctx, 2))
LAYER(global_avg_pool2d, eg_global_avg_pool2d(ctx))
LAYER(relu, eg_relu(ctx))
LAYER(relu6, eg_relu6(ctx))
LAYER(sigmoid, eg_sigmoid(ctx))
LAYER(tanh_, eg_tanh(ctx))
LAYER(gelu, eg_gelu(ctx))
LAYER(silu, eg_silu(ctx))
LAYER(hardswish, eg_hardswish(ctx))
LAYER(hardsigmoid, eg_hardsigmoid(ctx))
LAYER(identity, eg_identity(ctx))
LAYER(leaky_relu, eg_leaky_relu(ctx, EG_F64(0.2)))
LAYER(mish, eg_mish(ctx))
LAYER(elu, eg_elu(ctx, EG_F64(0.5)))
LAYER(softplus, eg_softplus(ctx, 2))
LAYER(prelu, eg_prelu(ctx, 2))
LAYER(softmax, eg_softmax(ctx, 1))
LAYER(log_softmax, eg_log_softmax(ctx, 1))
LAYER(dropout, eg_dropout(ctx, 0.5))
LAYER(drop_path, eg_drop_path(ctx, 0.5))
LAYER(flatten, eg_flatten(ctx))
LAYER(sequential, eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_conv2d(ctx, 2, 2, 1),
                                                eg_sequential(ctx, EG_MODULES(eg_relu(ctx))))))
LAYER(named, eg_sequential(ctx, EG_NAMED({"a", eg_relu(ctx)}, {"b", eg_linear(ctx, 4, 4)})))

/* What surgery puts in. */
LAYER(residual_block, eg_residual_block(ctx, EG_NAMED({"body", eg_relu(ctx)}, {"shortcut", eg_conv2d(ctx, 2, 2, 1)})))
LAYER(stochastic_residual, eg_stochastic_residual(ctx, EG_NAMED({"body", eg_relu(ctx)}), .drop_rate = 0.5))
LAYER(factorized, eg_factorized(ctx, EG_MODULES(eg_conv2d(ctx, 2, 1, 3), eg_conv2d(ctx, 1, 4, 1))))
LAYER(low_rank_adapter,
      eg_low_rank_adapter(ctx, EG_NAMED({"base_layer", eg_linear(ctx, 4, 4)}, {"lora_A", eg_linear(ctx, 4, 1)},
                                        {"lora_B", eg_linear(ctx, 1, 4)})))
LAYER(blur_conv2d, eg_blur_conv2d(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 2, 2, 3, .stride = 2)})))
LAYER(blur_max_pool2d, eg_blur_max_pool2d(ctx, 2))
LAYER(squeeze_excite2d, eg_squeeze_excite2d(ctx, 2, 1, .gain = 2))
LAYER(squeeze_excite_conv2d, eg_squeeze_excite_conv2d(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 2, 2, 1)},
                                                                    {"se", eg_squeeze_excite2d(ctx, 2, 1)})))
LAYER(conv_relu2d, eg_conv_relu2d(ctx, 2, 2, 1))
LAYER(low_precision_group_norm, eg_low_precision_group_norm(ctx, 1, 2))
LAYER(low_precision_layer_norm, eg_low_precision_layer_norm(ctx, EG_SHAPE(4, 4)))
LAYER(alibi_attention, eg_sequential(ctx, EG_MODULES(eg_flatten(ctx, 1, 2), eg_alibi_attention(ctx, 4, 2))))

/* f(x) + g(x), both of one product. */
static eg_module *make_parts(eg_context *ctx)
{
    eg_module *whole = eg_parallel_linear(ctx, 4, 6, .n_parts = 2);
    if (whole == NULL)
        return NULL;
    eg_module *f = eg_linear_part(ctx, EG_NAMED({"linear", eg_module_retain(whole)}), .out_features = 3);
    eg_module *g = eg_linear_part(ctx, EG_NAMED({"linear", whole}), .first = 3, .out_features = 3);
    return eg_residual_block(ctx, EG_NAMED({"body", f}, {"shortcut", g}));
}
LAYER(linear_part, make_parts(ctx))

static eg_status merged_adapter(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_module *m =
        eg_low_rank_adapter(ctx, EG_NAMED({"base_layer", eg_linear(ctx, 4, 4)}, {"lora_A", eg_linear(ctx, 4, 1)},
                                          {"lora_B", eg_linear(ctx, 1, 4)}));
    eg_status status = alloc_made(m);
    if (status == EG_OK)
        status = eg_low_rank_adapter_set_merged(m, true);
    eg_module_release(m);
    return status;
}
LAYER(ghost_batch_norm2d,
      eg_ghost_batch_norm2d(ctx, EG_NAMED({"norm", eg_batch_norm2d(ctx, 2)}), .ghost_batch_size = 1))

LAYER(weight_standardized_conv2d, eg_weight_standardized_conv2d(ctx, 2, 4, 3))
LAYER(gated_linear_unit, eg_gated_linear_unit(ctx, EG_NAMED({"linear", eg_linear(ctx, 4, 3)},
                                                            {"gate", eg_linear(ctx, 4, 3)}, {"act", eg_relu(ctx)})))

static eg_status conv1d(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    return run_layer(eg_conv1d(ctx, 2, 4, 3, .groups = 2), EG_SHAPE(2, 2, 4));
}

/* A layer with a normalized weight, called, copied, and without it again. */
static eg_status normalized(eg_module *m, bool spectral)
{
    eg_status status = alloc_made(m);
    if (status == EG_OK)
        status = spectral ? eg_spectral_norm(m, "weight", 0, 1) : eg_weight_norm(m, "weight", 0);
    eg_module *copy = status == EG_OK ? eg_module_clone(m) : NULL;
    if (status == EG_OK)
        status = alloc_made(copy);
    if (status == EG_OK)
        status = alloc_made(eg_call(copy, eg_ones(m->ctx, EG_SHAPE(2, 3))));
    if (status == EG_OK)
        status = spectral ? eg_remove_spectral_norm(copy, "weight") : eg_remove_weight_norm(copy, "weight");
    eg_module_release(copy);
    eg_module_release(m);
    return status;
}

static eg_status weight_norm(void *payload)
{
    return normalized(eg_linear(((world *)payload)->base.ctx, 3, 2), false);
}

static eg_status spectral_norm(void *payload)
{
    return normalized(eg_linear(((world *)payload)->base.ctx, 3, 2), true);
}

/* ---- modules ---- */

static eg_status module_list(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_module *list = eg_module_list(ctx, EG_MODULES(eg_relu(ctx), eg_relu(ctx)));
    eg_status status = alloc_made(list);
    for (size_t i = 0; i < 12 && status == EG_OK; i++)
        status = eg_append(list, eg_linear(ctx, 2, 2));
    eg_module_release(list);
    return status;
}

static eg_tensor *keep_output(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload, (void)m;
    eg_tensor *twice = eg_affine(t, 2, 0);
    *failed = !twice;
    return twice;
}

static eg_status operate(eg_module *m)
{
    uint64_t id;
    EG_TRY(eg_module_add_pre_hook(m, keep_output, NULL, &id));
    EG_TRY(eg_module_add_hook(eg_module_find(m, "conv"), keep_output, NULL, &id));
    eg_module *child = eg_identity(m->ctx);
    EG_TRY(alloc_made(child));
    EG_TRY(eg_module_set_child(m, "fc", child));
    EG_TRY(eg_append(m, eg_linear(m->ctx, 2, 5, .no_bias = true)));
    EG_TRY(eg_module_remove_child(m, "norm"));
    EG_TRY(eg_module_add_buffer(m, "extra", NULL, eg_zeros(m->ctx, EG_SHAPE(3))));
    EG_TRY(eg_module_add_parameter(m, "more", NULL, eg_zeros(m->ctx, EG_SHAPE(3))));
    return alloc_made(eg_call(m, eg_ones(m->ctx, input_shape)));
}

static eg_status surgery(void *payload)
{
    eg_module *m = eg_module_clone(((world *)payload)->model);
    eg_status status = alloc_made(m);
    if (status == EG_OK)
        status = operate(m);
    eg_module_release(m);
    return status;
}

static eg_status visit(void *payload, const char *path, eg_module *m)
{
    (void)payload, (void)path, (void)m;
    return EG_OK;
}

static eg_status visit_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)payload, (void)path, (void)kind, (void)t;
    return EG_OK;
}

static eg_status walks(void *payload)
{
    eg_module *m = ((world *)payload)->model;
    EG_TRY(eg_module_walk(m, visit, NULL));
    EG_TRY(eg_module_walk_tensors(m, visit_tensor, NULL));
    return eg_module_n_parameters(m) == -1 ? eg_error_last()->code : EG_OK;
}

MAKES(text, char, eg_module_text(w->model), eg_free)

static eg_module *make_attention(eg_context *ctx)
{
    return eg_sequential(ctx,
                         EG_NAMED({"a", eg_multihead_attention(ctx, 4, 2)}, {"n", eg_layer_norm(ctx, EG_SHAPE(4))}));
}

/* With a child that its class makes, as it makes it and otherwise, and a module in two places. */
static eg_status json(void *payload)
{
    eg_module *m = make_attention(((world *)payload)->base.ctx);
    if (m == NULL)
        return eg_error_last()->code;
    eg_module *linear = eg_linear(m->ctx, 4, 4);
    eg_status status = linear != NULL
                           ? eg_module_set_child(eg_module_find(m, "a"), "out_proj", eg_module_retain(linear))
                           : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_append(m, eg_module_retain(linear));
    char *text = status == EG_OK ? eg_module_json(m) : NULL,
         *expanded = text != NULL ? eg_module_json_expanded(m) : NULL;
    if (status == EG_OK && expanded == NULL)
        status = eg_error_last()->code;
    eg_free(text);
    eg_free(expanded);
    eg_module_release(linear);
    eg_module_release(m);
    return status;
}

#define JSON_MODEL                                                                                                     \
    "{\"class\": \"Sequential\", \"named\": {\"a\": {\"class\": \"MultiheadAttention\", \"embed_dim\": 4, "            \
    "\"num_heads\": 2, "                                                                                               \
    "\"children\": {\"out_proj\": {\"class\": \"Linear\", \"id\": \"l\", \"in_features\": 4, \"out_features\": 4}}}, " \
    "\"b\": {\"ref\": \"l\"}, \"c\": null, \"d\": {\"class\": \"Conv2d\", \"in_channels\": 1, \"out_channels\": 1, "   \
    "\"kernel_size\": [3, 1]}}}"
MAKES(from_json, eg_module, eg_module_from_json(ctx, JSON_MODEL), eg_module_release)
MAKES(from_text, eg_module, eg_module_from_text(ctx, "Conv2d(in_channels=2, out_channels=3, kernel_size=(3, 1))"),
      eg_module_release)

static eg_status files_of_json(void *payload)
{
    world *w = payload;
    EG_TRY(eg_module_save_json(w->model, json_path));
    eg_module *m = eg_module_load_json(w->base.ctx, json_path);
    eg_status status = alloc_made(m);
    eg_module_release(m);
    return status;
}

typedef struct eg_linear named_linear;
static EG_NAMED_CLASS(named_linear, "NamedLinear", .super = &eg_linear_class);
static eg_status register_class(void *payload)
{
    return eg_context_register_class(((world *)payload)->base.ctx, &named_linear_class);
}

static eg_status print(void *payload)
{
    FILE *out = fopen("/dev/null", "wb");
    assert_non_null(out);
    eg_status status = eg_module_print(((world *)payload)->model, out);
    fclose(out);
    return status;
}

static eg_status trace(void *payload)
{
    eg_trace *made = eg_trace_new(((world *)payload)->model, &input_shape, 1);
    eg_status status = alloc_made(made);
    char *table = status == EG_OK ? eg_trace_text(made) : NULL;
    if (status == EG_OK)
        status = alloc_made(table);
    eg_free(table);
    eg_trace_free(made);
    return status;
}

static eg_status state_of(eg_module *m, eg_state *state)
{
    EG_TRY(eg_module_state(m, "model.", state));
    EG_TRY(eg_module_load_state(m, "model.", state, true));
    return eg_state_put(state, "more", eg_ones(m->ctx, EG_SHAPE(2)));
}

static eg_status state(void *payload)
{
    eg_state *made = eg_state_new();
    eg_status status = alloc_made(made);
    if (status == EG_OK)
        status = state_of(((world *)payload)->model, made);
    eg_state_free(made);
    return status;
}

static eg_status init(void *payload)
{
    eg_tensor *t = eg_empty(((world *)payload)->base.ctx, EG_F32, EG_SHAPE(3, 2, 2, 2), EG_LAYOUT_DEFAULT);
    EG_TRY(alloc_made(t));
    EG_TRY(eg_init_uniform(t, 0, 1));
    EG_TRY(eg_init_normal(t, 0, 1));
    EG_TRY(eg_init_constant(t, 1));
    EG_TRY(eg_init_kaiming_uniform(t, 0));
    return eg_init_kaiming_normal(t, 0);
}

/* ---- optimizers ---- */

static eg_status grow_gradients(eg_module *m)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_RECORD);
    EG_TRY(alloc_made(tape));
    eg_tensor *x = eg_ones(m->ctx, input_shape), *y = eg_from_labels(m->ctx, 2, (const int64_t[]){0, 2});
    eg_status status = eg_backward(eg_f_cross_entropy(eg_call(m, x), y));
    eg_tape_end(tape);
    return status;
}

static eg_status use_optimizer(eg_optimizer *optimizer, eg_module *m, eg_state *saved)
{
    eg_tensor *extra = eg_ones(m->ctx, EG_SHAPE(2));
    EG_TRY(alloc_made(extra));
    EG_TRY(eg_tensor_set_requires_grad(extra, true));
    EG_TRY(eg_optimizer_add(optimizer, "extra", &extra, 1,
                            &(eg_group_options){.struct_size = sizeof(eg_group_options), .lr = EG_F64(1)}));
    EG_TRY(grow_gradients(m));
    EG_TRY(eg_optimizer_clip_grad_norm(optimizer, 1, NULL));
    EG_TRY(eg_optimizer_step(optimizer));
    EG_TRY(alloc_made(saved));
    EG_TRY(eg_optimizer_state(optimizer, "optim.", saved));
    EG_TRY(eg_optimizer_load_state(optimizer, "optim.", saved));
    return eg_optimizer_step(optimizer);
}

static eg_status with_optimizer(world *w, eg_optimizer *(*make)(eg_module *m))
{
    eg_module *m = eg_module_clone(w->model);
    eg_optimizer *optimizer = m ? make(m) : NULL;
    eg_state *saved = optimizer ? eg_state_new() : NULL;
    eg_status status = optimizer ? use_optimizer(optimizer, m, saved) : eg_error_last()->code;
    eg_state_free(saved);
    eg_optimizer_free(optimizer);
    eg_module_release(m);
    return status;
}

static eg_optimizer *make_sgd(eg_module *m)
{
    return eg_sgd(m, .lr = 0.1, .momentum = 0.9);
}

static eg_optimizer *make_adam(eg_module *m)
{
    return eg_adam(m);
}

static eg_optimizer *make_adamw(eg_module *m)
{
    return eg_adamw(m);
}

static eg_status sgd(void *payload)
{
    return with_optimizer(payload, make_sgd);
}

static eg_status adam(void *payload)
{
    return with_optimizer(payload, make_adam);
}

static eg_status adamw(void *payload)
{
    return with_optimizer(payload, make_adamw);
}

static eg_status add_module(void *payload)
{
    world *w = payload;
    eg_optimizer *optimizer = eg_sgd(NULL, .ctx = w->base.ctx, .lr = 0.1);
    eg_status status = alloc_made(optimizer);
    if (status == EG_OK)
        status = eg_optimizer_add_module(optimizer, "net.", w->model, NULL);
    if (status == EG_OK && eg_optimizer_n_groups(optimizer) != 1)
        fail_msg("%zu groups", eg_optimizer_n_groups(optimizer));
    eg_optimizer_free(optimizer);
    return status;
}

static eg_status with_scheduler(world *w, eg_scheduler *(*make)(eg_optimizer *optimizer))
{
    eg_optimizer *optimizer = eg_sgd(w->model, .lr = 0.1);
    eg_scheduler *scheduler = optimizer ? make(optimizer) : NULL;
    eg_status status = alloc_made(scheduler);
    if (status == EG_OK)
        status = eg_scheduler_step(scheduler);
    if (status == EG_OK)
        status = eg_scheduler_set_position(scheduler, 3);
    eg_scheduler_free(scheduler);
    eg_optimizer_free(optimizer);
    return status;
}

#define SCHEDULE(row, make)                                                                                            \
    static eg_scheduler *make_##row(eg_optimizer *optimizer)                                                           \
    {                                                                                                                  \
        return make;                                                                                                   \
    }                                                                                                                  \
    static eg_status row(void *payload)                                                                                \
    {                                                                                                                  \
        return with_scheduler(payload, make_##row);                                                                    \
    }

SCHEDULE(step_lr, eg_step_lr(optimizer, 2, 0.5))
SCHEDULE(multi_step_lr, eg_multi_step_lr(optimizer, (const int64_t[]){1, 2}, 2, 0.5))
SCHEDULE(cosine_lr, eg_cosine_lr(optimizer, 10, 0))
SCHEDULE(constant_lr, eg_constant_lr(optimizer))
SCHEDULE(one_cycle_lr, eg_one_cycle_lr(optimizer, 0.1, 10, 0, 0, 0))

static eg_scheduler *make_warmup_after(eg_optimizer *optimizer)
{
    eg_scheduler *after = eg_cosine_lr(optimizer, 10, 0);
    return after ? eg_linear_warmup_lr(optimizer, 2, 0.1, after) : NULL;
}

static eg_status warmup_after(void *payload)
{
    return with_scheduler(payload, make_warmup_after);
}

/* ---- data ---- */

static eg_status use_dataset(eg_dataset *made)
{
    eg_status status = alloc_made(made);
    eg_dataset_release(made);
    return status;
}

static eg_status open_csv(void *payload)
{
    return use_dataset(eg_dataset_open(((world *)payload)->base.ctx, csv));
}

static eg_status open_idx(void *payload)
{
    return use_dataset(eg_dataset_open(((world *)payload)->base.ctx, idx, .split = EG_TEST));
}

static eg_status open_fashion(void *payload)
{
    return use_dataset(eg_dataset_open(((world *)payload)->base.ctx, "fashion-mnist"));
}

static eg_status open_cifar(void *payload)
{
    return use_dataset(eg_dataset_open(((world *)payload)->base.ctx, cifar, .split = EG_TEST));
}

MAKES(from_arrays, eg_dataset,
      eg_dataset_from_arrays(ctx, (const float[]){1, 2, 3, 4}, EG_SHAPE(2), (const int64_t[]){0, 1}, 2, 2),
      eg_dataset_release)
MAKES(subset, eg_dataset, eg_dataset_subset(w->data, (const size_t[]){1, 3}, 2), eg_dataset_release)
MAKES(sample, eg_dataset, eg_dataset_sample(w->data, 4, 1), eg_dataset_release)

static eg_status divide(void *payload)
{
    eg_dataset *first = NULL, *second = NULL;
    eg_status status = eg_dataset_divide(((world *)payload)->data, 0.5, 1, &first, &second);
    eg_dataset_release(first);
    eg_dataset_release(second);
    return status;
}

static eg_status load_epoch(eg_loader *loader)
{
    EG_TRY(eg_loader_start(loader, 1, 0));
    eg_batch batch = {.size = 1};
    for (size_t n = 0; batch.size > 0; n += batch.size) {
        EG_TRY(eg_loader_next(loader, &batch));
        assert_true(batch.size > 0 || n == 7);
    }
    return EG_OK;
}

static eg_status load(world *w, int workers)
{
    eg_transform transforms[] = {eg_random_crop(1), eg_random_flip(0.5), eg_cutout(2)};
    eg_loader *loader =
        eg_loader_new(w->data, 3, .shuffle = true, .workers = workers, .transforms = transforms, .n_transforms = 3);
    eg_status status = alloc_made(loader);
    if (status == EG_OK)
        status = load_epoch(loader);
    eg_loader_free(loader);
    return status;
}

static eg_status loader(void *payload)
{
    return load(payload, 0);
}

static eg_status loader_workers(void *payload)
{
    return load(payload, 2);
}

/* ---- files ---- */

static eg_status safetensors_load(void *payload)
{
    char *metadata = NULL;
    eg_state *made = eg_safetensors_load(((world *)payload)->base.ctx, weights, &metadata);
    eg_status status = alloc_made(made);
    eg_state_free(made);
    eg_free(metadata);
    return status;
}

static eg_status safetensors_save(void *payload)
{
    eg_state *made = eg_state_new();
    eg_status status = alloc_made(made);
    if (status == EG_OK)
        status = eg_module_state(((world *)payload)->model, NULL, made);
    if (status == EG_OK)
        status = eg_safetensors_save(made, rewritten, "{\"made\": \"here\"}");
    eg_state_free(made);
    return status;
}

static eg_status module_files(void *payload)
{
    world *w = payload;
    EG_TRY(eg_module_save(w->model, rewritten));
    return eg_module_load(w->model, rewritten);
}

/* ---- the table ---- */

static const alloc_row rows[] = {
    {"eg_context_new_with", context, false},
    {"eg_zeros", zeros, false},
    {"eg_ones", ones, false},
    {"eg_full", full, false},
    {"eg_randn", randn, false},
    {"eg_rand", rand_, false},
    {"eg_from_data", from_data, false},
    {"eg_from_labels", from_labels, false},
    {"eg_shape_only", shape_only, false},
    {"eg_empty", empty, false},
    {"eg_tensor_copy", copy, false},
    {"eg_detach", detach, false},
    {"eg_tape_begin", tape, false},
    {"eg_tuple", tuple, false},
    {"eg_tensor_read eg_tensor_write eg_tensor_assign eg_tensor_print", numbers, false},
    {"eg_gradcheck", gradcheck, false},
    {"eg_recompute", recompute, false},
    {"eg_conv2d_class", conv2d, false},
    {"eg_conv1d_class", conv1d, false},
    {"eg_conv_transpose2d_class", conv_transpose2d, false},
    {"eg_group_norm_class", group_norm, false},
    {"eg_layer_norm_class", layer_norm, false},
    {"eg_instance_norm2d_class", instance_norm2d, false},
    {"eg_weight_norm eg_remove_weight_norm", weight_norm, false},
    {"eg_spectral_norm eg_remove_spectral_norm", spectral_norm, false},
    {"eg_upsample_class", upsample, false},
    {"eg_pixel_shuffle_class", pixel_shuffle, false},
    {"eg_pixel_unshuffle_class", pixel_unshuffle, false},
    {"eg_linear_class", linear, false},
    {"eg_embedding_class", embedding, false},
    {"eg_repeat_class", repeat, false},
    {"eg_multihead_attention_class", multihead_attention, false},
    {"eg_lstm_class", lstm, false},
    {"eg_gru_class", gru, false},
    {"eg_lstm_cell_class", lstm_cell, false},
    {"eg_gru_cell_class", gru_cell, false},
    {"eg_batch_norm2d_class", batch_norm2d, false},
    {"eg_max_pool2d_class", max_pool2d, false},
    {"eg_avg_pool2d_class", avg_pool2d, false},
    {"eg_adaptive_avg_pool2d_class", adaptive_avg_pool2d, false},
    {"eg_global_avg_pool2d_class", global_avg_pool2d, false},
    {"eg_relu_class", relu, false},
    {"eg_relu6_class", relu6, false},
    {"eg_sigmoid_class", sigmoid, false},
    {"eg_tanh_class", tanh_, false},
    {"eg_gelu_class", gelu, false},
    {"eg_silu_class", silu, false},
    {"eg_hardswish_class", hardswish, false},
    {"eg_hardsigmoid_class", hardsigmoid, false},
    {"eg_identity_class", identity, false},
    {"eg_leaky_relu_class", leaky_relu, false},
    {"eg_mish_class", mish, false},
    {"eg_elu_class", elu, false},
    {"eg_softplus_class", softplus, false},
    {"eg_prelu_class", prelu, false},
    {"eg_softmax_class", softmax, false},
    {"eg_log_softmax_class", log_softmax, false},
    {"eg_dropout_class", dropout, false},
    {"eg_drop_path_class", drop_path, false},
    {"eg_flatten_class", flatten, false},
    {"eg_residual_block_class", residual_block, false},
    {"eg_stochastic_residual_class", stochastic_residual, false},
    {"eg_factorized_class", factorized, false},
    {"eg_low_rank_adapter_class", low_rank_adapter, false},
    {"eg_blur_conv2d_class", blur_conv2d, false},
    {"eg_blur_max_pool2d_class", blur_max_pool2d, false},
    {"eg_squeeze_excite2d_class", squeeze_excite2d, false},
    {"eg_squeeze_excite_conv2d_class", squeeze_excite_conv2d, false},
    {"eg_ghost_batch_norm2d_class", ghost_batch_norm2d, false},
    {"eg_conv_relu2d_class", conv_relu2d, false},
    {"eg_low_precision_layer_norm_class", low_precision_layer_norm, false},
    {"eg_low_precision_group_norm_class", low_precision_group_norm, false},
    {"eg_alibi_attention_class", alibi_attention, false},
    {"eg_parallel_linear_class eg_linear_part_class", linear_part, false},
    {"eg_low_rank_adapter_set_merged", merged_adapter, false},
    {"eg_weight_standardized_conv2d_class", weight_standardized_conv2d, false},
    {"eg_gated_linear_unit_class", gated_linear_unit, false},
    {"eg_sequential_class eg_module_new eg_module_call", sequential, false},
    {"eg_sequential_class (named)", named, false},
    {"eg_module_list_class eg_append", module_list, false},
    {"eg_module_clone eg_module_set_child eg_module_remove_child eg_module_add_hook eg_module_add_pre_hook", surgery,
     false},
    {"eg_module_walk eg_module_walk_tensors eg_module_n_parameters", walks, false},
    {"eg_module_text", text, false},
    {"eg_module_json eg_module_json_expanded", json, false},
    {"eg_module_from_json", from_json, true},
    {"eg_module_from_text", from_text, true},
    {"eg_module_save_json eg_module_load_json", files_of_json, true},
    {"eg_context_register_class", register_class, false},
    {"eg_module_print", print, false},
    {"eg_trace_new eg_trace_text", trace, false},
    {"eg_state_new eg_state_put eg_module_state eg_module_load_state", state, false},
    {"eg_init_uniform eg_init_normal eg_init_constant eg_init_kaiming_uniform eg_init_kaiming_normal", init, false},
    {"eg_sgd_with eg_optimizer_add eg_optimizer_step eg_optimizer_state eg_optimizer_load_state", sgd, false},
    {"eg_adam_with", adam, false},
    {"eg_adamw_with", adamw, false},
    {"eg_optimizer_add_module", add_module, false},
    {"eg_step_lr", step_lr, false},
    {"eg_multi_step_lr", multi_step_lr, false},
    {"eg_cosine_lr", cosine_lr, false},
    {"eg_constant_lr", constant_lr, false},
    {"eg_linear_warmup_lr", warmup_after, false},
    {"eg_one_cycle_lr", one_cycle_lr, false},
    {"eg_dataset_open_with (csv)", open_csv, false},
    {"eg_dataset_open_with (idx)", open_idx, false},
    {"eg_dataset_open_with (fashion-mnist)", open_fashion, false},
    {"eg_dataset_open_with (cifar10)", open_cifar, false},
    {"eg_dataset_from_arrays", from_arrays, false},
    {"eg_dataset_subset", subset, false},
    {"eg_dataset_sample", sample, false},
    {"eg_dataset_divide", divide, false},
    {"eg_loader_new_with eg_loader_start eg_loader_next", loader, false},
    {"eg_loader_new_with (workers)", loader_workers, false},
    {"eg_safetensors_load", safetensors_load, true},
    {"eg_safetensors_save", safetensors_save, true},
    {"eg_module_save eg_module_load", module_files, true},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const alloc_table table = {.backend = "ref",
                                  .world_size = sizeof(world),
                                  .setup = setup,
                                  .teardown = teardown,
                                  .check = check,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 300};

/* Nothing half written is left anywhere, and what was written is whole. */
static void test_files_left_behind(void **unused)
{
    (void)unused;
    world *w = alloc_world_new(&table);
    assert_ok(eg_module_save(w->model, rewritten));
    size_t entries = directory_count(directory);
    for (int all_after = 0; all_after < 2; all_after++)
        for (long n = 0;; n++) {
            alloc_fail_all = all_after;
            alloc_failures = 0;
            alloc_countdown = n;
            eg_module_save(w->model, rewritten);
            alloc_countdown = -1;
            eg_error_clear();
            assert_int_equal(directory_count(directory), entries);
            assert_ok(eg_module_load(w->model, rewritten));
            if (alloc_failures == 0)
                break;
        }
    alloc_world_free(&table, w);
}

static void test_complete(void **unused)
{
    (void)unused;
    alloc_check_complete(&table, "base.h", "eg_context_rng");
    alloc_check_complete(&table, "tensor.h",
                         "eg_tensor_context eg_tensor_data eg_tuple_get eg_tensor_keep eg_tensor_grad");
    alloc_check_complete(&table, "autograd.h", "");
    alloc_check_complete(&table, "nn.h",
                         "eg_module_class eg_module_retain eg_module_cast eg_module_child_at eg_module_find "
                         "eg_module_tensor eg_state_get eg_state_at");
    alloc_check_complete(&table, "layers.h", "");
    alloc_check_complete(&table, "optim.h", "");
    alloc_check_complete(&table, "data.h", "eg_dataset_retain");
    alloc_check_complete(&table, "io.h", "");
}

static int make_files(void **unused)
{
    (void)unused;
    char folder[TEMPORARY_PATH_SIZE];
    directory = temporary_make();
    temporary_path(directory, "weights.safetensors", weights);
    temporary_path(directory, "rewritten.safetensors", rewritten);
    temporary_path(directory, "model.json", json_path);
    snprintf(csv, sizeof csv, "csv:%s", temporary_path(directory, "numbers.csv", folder));
    static const char lines[] = "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n1,1,0\n2,2,1\n";
    write_file(directory, "numbers.csv", lines, sizeof lines - 1);
    snprintf(idx, sizeof idx, "idx:%s", temporary_path(directory, "idx", folder));
    assert_int_equal(mkdir(folder, 0777), 0);
    make_idx_folder(folder, "");
    assert_int_equal(setenv("EG_FASHION_MNIST", folder, 1), 0);
    snprintf(cifar, sizeof cifar, "cifar10:%s", temporary_path(directory, "cifar", folder));
    assert_int_equal(mkdir(folder, 0777), 0);
    static uint8_t records[3 * 3073];
    for (size_t i = 0; i < sizeof records; i++)
        records[i] = i % 3073 == 0 ? (uint8_t)(i / 3073) : (uint8_t)i;
    write_file(folder, "data_batch_1.bin", records, sizeof records);
    write_file(folder, "data_batch_2.bin", records, sizeof records);
    write_file(folder, "test_batch.bin", records, sizeof records);
    world *w = alloc_world_new(&table);
    assert_ok(eg_module_save(w->model, weights));
    alloc_world_free(&table, w);
    return 0;
}

static int remove_files(void **unused)
{
    (void)unused;
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_ROWS];
    struct CMUnitTest tests[N_ROWS + 2] = {[N_ROWS] = cmocka_unit_test(test_complete),
                                           cmocka_unit_test(test_files_left_behind)};
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
