/*
 * The classes that a context knows by name: the built-in layers, and what was registered with it.
 */
#include "nn/internal.h"

#include <string.h>

static const eg_class *const built_in[] = {
    /* containers */
    &eg_sequential_class,
    &eg_module_list_class,
    &eg_repeat_class,
    /* convolutions and products */
    &eg_conv2d_class,
    &eg_conv1d_class,
    &eg_conv_transpose2d_class,
    &eg_linear_class,
    /* sequences */
    &eg_embedding_class,
    &eg_multihead_attention_class,
    &eg_lstm_class,
    &eg_gru_class,
    &eg_lstm_cell_class,
    &eg_gru_cell_class,
    /* normalization */
    &eg_batch_norm2d_class,
    &eg_group_norm_class,
    &eg_layer_norm_class,
    &eg_instance_norm2d_class,
    /* pooling and sizes of images */
    &eg_max_pool2d_class,
    &eg_avg_pool2d_class,
    &eg_adaptive_avg_pool2d_class,
    &eg_global_avg_pool2d_class,
    &eg_upsample_class,
    &eg_pixel_shuffle_class,
    &eg_pixel_unshuffle_class,
    /* activations */
    &eg_relu_class,
    &eg_relu6_class,
    &eg_sigmoid_class,
    &eg_tanh_class,
    &eg_gelu_class,
    &eg_silu_class,
    &eg_hardswish_class,
    &eg_hardsigmoid_class,
    &eg_mish_class,
    &eg_identity_class,
    &eg_leaky_relu_class,
    &eg_elu_class,
    &eg_softplus_class,
    &eg_prelu_class,
    &eg_softmax_class,
    &eg_log_softmax_class,
    /* regularization and shapes */
    &eg_dropout_class,
    &eg_drop_path_class,
    &eg_flatten_class,
    /* what surgery puts in */
    &eg_residual_block_class,
    &eg_stochastic_residual_class,
    &eg_factorized_class,
    &eg_low_rank_adapter_class,
    &eg_blur_conv2d_class,
    &eg_blur_max_pool2d_class,
    &eg_squeeze_excite2d_class,
    &eg_squeeze_excite_conv2d_class,
    &eg_ghost_batch_norm2d_class,
    &eg_weight_standardized_conv2d_class,
    &eg_gated_linear_unit_class,
    &eg_conv_relu2d_class,
    &eg_low_precision_layer_norm_class,
    &eg_low_precision_group_norm_class,
    &eg_alibi_attention_class,
    &eg_parallel_linear_class,
    &eg_linear_part_class,
};

static void destroy(eg_context *ctx, void *state)
{
    (void)ctx;
    eg__map_free(state);
}

const eg_class *eg_context_class_at(const eg_context *ctx, size_t i)
{
    if (i < EG_COUNT(built_in))
        return built_in[i];
    const eg__map *registered = ctx != NULL ? eg__context_peek(ctx, EG__SLOT_CLASSES) : NULL;
    i -= EG_COUNT(built_in);
    return registered != NULL && i < registered->n ? registered->entries[i].value : NULL;
}

static const eg_class *find(const eg_context *ctx, const char *name)
{
    const eg_class *cls;
    for (size_t i = 0; (cls = eg_context_class_at(ctx, i)) != NULL; i++) {
        if (strcmp(cls->name, name) == 0)
            return cls;
    }
    return NULL;
}

const eg_class *eg_context_find_class(const eg_context *ctx, const char *name)
{
    if (ctx == NULL || name == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "name");
    const eg_class *cls = find(ctx, name);
    if (cls != NULL)
        return cls;
    size_t n = 0;
    while (eg_context_class_at(ctx, n) != NULL)
        n++;
    const char **names = eg__calloc(n, sizeof(*names));
    if (names == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        names[i] = eg_context_class_at(ctx, i)->name;
    char near[200];
    eg_closest_name(name, names, n, near, sizeof(near));
    eg_free(names);
    eg_fail(EG_ENOENT, "there is no class '%s'%s%s%s", name, *near == '\0' ? "" : " (did you mean ", near,
            *near == '\0' ? "" : "?)");
    return NULL;
}

eg_status eg_context_register_class(eg_context *ctx, const eg_class *cls)
{
    EG_CHECK(ctx != NULL && cls != NULL && cls->name != NULL, EG_EINVAL, "context, class or its name is NULL");
    const eg_class *known = find(ctx, cls->name);
    EG_CHECK(known == NULL || known == cls, EG_EINVAL, "there is another class '%s'", cls->name);
    EG_CHECK(eg__is_utf8(cls->name), EG_EINVAL, "the name of a class is no UTF-8");
    if (known == cls)
        return EG_OK;
    eg__map *registered = eg__context_slot(ctx, EG__SLOT_CLASSES, sizeof(eg__map), destroy);
    return registered != NULL ? eg__map_put(registered, cls->name, (void *)(uintptr_t)cls) : EG_ENOMEM;
}
