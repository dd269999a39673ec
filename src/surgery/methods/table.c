/*
 * The built-in methods, by name.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

const eg_method *const eg__methods[] = {
    &eg_blur_pool_method,
    &eg_squeeze_excite_method,
    &eg_ghost_norm_method,
    &eg_stochastic_depth_method,
    &eg_unwrap_method,
    &eg_weight_standardization_method,
    &eg_gated_linear_method,
    &eg_alibi_method,
    &eg_low_precision_norm_method,
    &eg_factorize_method,
    &eg_low_rank_method,
    &eg_merge_adapter_method,
    &eg_fold_batch_norm_method,
    &eg_fuse_conv_bn_relu_method,
    &eg_fuse_parallel_linear_method,
    &eg_prune_channels_method,
    &eg_prune_heads_method,
    &eg_widen_method,
    &eg_layer_freezing_method,
    &eg_activation_swap_method,
    &eg_new_head_method,
    &eg_drop_layers_method,
    &eg_duplicate_layers_method,
    &eg_identity_elimination_method,
    NULL,
};
