/** @file
 * engraft/methods.h - the built-in surgeries: eg_surgery_apply(s, eg_factorize(ctx, .rank = 0.25), NULL).
 *
 * Each has a struct of options and a macro that makes them; 0 stands for the default. All keep the weights of the model
 * as far as they can; eg_method says what each promises of the outputs.
 */
#ifndef ENGRAFT_METHODS_H
#define ENGRAFT_METHODS_H

#include "surgery.h"

#ifdef __cplusplus
extern "C" {
#endif

/** fold_batch_norm: a batch norm goes into the convolution before it, which then has its scale and shift; an identity
 *  (or a ReLU, for a norm with .relu) takes its place. Found in the traced graph, so the surgery needs .inputs. Outputs
 * in evaluation are the same but for rounding; statistics are no longer learned. Norms without running statistics, and
 *  chains that eg_chains_find() refuses, are left and noted. */
typedef struct eg_fold_batch_norm {
    eg_module base;
} eg_fold_batch_norm;
EG_API extern const eg_method eg_fold_batch_norm_method;
#define eg_fold_batch_norm(...) eg_new_method(eg_fold_batch_norm, __VA_ARGS__)

/** fuse_conv_bn_relu: a convolution, the batch norm and the ReLU behind it become one ConvReLU2d; identities take the
 *  places of the two. Otherwise as fold_batch_norm. */
typedef eg_fold_batch_norm eg_fuse_conv_bn_relu;
EG_API extern const eg_method eg_fuse_conv_bn_relu_method;
#define eg_fuse_conv_bn_relu(...) eg_new_method(eg_fuse_conv_bn_relu, __VA_ARGS__)

/** fuse_parallel_linear: Linears that read the same tensor become parts of one (ParallelLinear), if all have a bias or
 *  none, all are trained or none, each runs once, and no other module has their parameters. States of optimizers go
 *  along. Found in the traced graph, so the surgery needs .inputs. */
typedef struct eg_fuse_parallel_linear {
    eg_module base;
} eg_fuse_parallel_linear;
EG_API extern const eg_method eg_fuse_parallel_linear_method;
#define eg_fuse_parallel_linear(...) eg_new_method(eg_fuse_parallel_linear, __VA_ARGS__)

/* ---- products in the place of weights ---- */

/** factorize: Conv2d (of one group) and Linear become a Factorized pair of smaller ones by truncated SVD, where that
 * has fewer parameters. The share of the weight that is lost is the `error` of the pair: sqrt of the sum of the squares
 * of the singular values that are left out, over that of all. Moments of optimizers follow by the chain rule. */
typedef struct eg_factorize {
    eg_module base;
    double rank;          /**< 0 = 0.25; below 1 a share of the narrower side */
    double max_error;     /**< above 0: the smallest rank with at most this error, instead */
    int64_t min_channels; /**< 0 = 512: of the narrower side */
} eg_factorize;
EG_API extern const eg_method eg_factorize_method;
#define eg_factorize(...) eg_new_method(eg_factorize, __VA_ARGS__)

/** low_rank_adapter: Conv2d (of one group) and Linear are frozen and get a trained correction that begins at zero
 *  (LowRankAdapter). */
typedef struct eg_low_rank {
    eg_module base;
    int64_t rank; /**< 0 = 8 */
    double alpha; /**< 0 = 16; the correction counts alpha / rank times */
} eg_low_rank;
EG_API extern const eg_method eg_low_rank_method;
#define eg_low_rank(...) eg_new_method(eg_low_rank, __VA_ARGS__)
/** merge_adapter: adapters become plain layers that compute the same. Undo takes it back. Those whose layers have
 * hooks, biases of the correction, or became something else by another method are left and noted. */
typedef struct eg_merge_adapter {
    eg_module base;
} eg_merge_adapter;
EG_API extern const eg_method eg_merge_adapter_method;
#define eg_merge_adapter(...) eg_new_method(eg_merge_adapter, __VA_ARGS__)

/* ---- channels ---- */

/** prune_channels and prune_heads: eg_surgery_prune() with these options. */
typedef struct eg_prune_channels {
    eg_module base;
    double ratio; /**< 0 = 0.3 */
    int score;    /**< an eg_importance */
    bool global;
    int64_t round_to, min_units; /**< 0 = 1 */
    const char *ignore;
} eg_prune_channels;
typedef eg_prune_channels eg_prune_heads;
EG_API extern const eg_method eg_prune_channels_method, eg_prune_heads_method;
#define eg_prune_channels(...) eg_new_method(eg_prune_channels, __VA_ARGS__)
#define eg_prune_heads(...) eg_new_method(eg_prune_heads, __VA_ARGS__)

/** widen: the first `ratio` of the channels of each group (or of those made at the paths) are doubled, and what reads
 * them divides, so that the model computes the same. */
typedef struct eg_widen {
    eg_module base;
    double ratio; /**< 0 = 0.5 */
} eg_widen;
EG_API extern const eg_method eg_widen_method;
#define eg_widen(...) eg_new_method(eg_widen, __VA_ARGS__)

/* ---- of Composer ---- */

/** blur_pool: MaxPool2d becomes BlurMaxPool2d; strided Conv2d goes into a BlurConv2d. EINVAL to keep both. */
typedef struct eg_blur_pool {
    eg_module base;
    bool keep_pools, keep_convs;
    bool blur_last;       /**< the reference's blur_first = False */
    int64_t min_channels; /**< 0 = 16 */
} eg_blur_pool;
EG_API extern const eg_method eg_blur_pool_method;
#define eg_blur_pool(...) eg_new_method(eg_blur_pool, __VA_ARGS__)

/** squeeze_excite: Conv2d goes into a SqueezeExciteConv2d. */
typedef struct eg_squeeze_excite {
    eg_module base;
    double latent_channels; /**< 0 = 64; below 1 a share of out_channels */
    int64_t min_channels;   /**< 0 = 128: of the narrower side */
    bool near_identity;     /**< begins without an effect, instead of halving about everything */
} eg_squeeze_excite;
EG_API extern const eg_method eg_squeeze_excite_method;
#define eg_squeeze_excite(...) eg_new_method(eg_squeeze_excite, __VA_ARGS__)

/** ghost_batch_norm: BatchNorm2d goes into a GhostBatchNorm2d. */
typedef struct eg_ghost_norm {
    eg_module base;
    int64_t ghost_batch_size; /**< 0 = 32 */
} eg_ghost_norm;
EG_API extern const eg_method eg_ghost_norm_method;
#define eg_ghost_norm(...) eg_new_method(eg_ghost_norm, __VA_ARGS__)

/** What is left out at a time, and how the rate is spread, in eg_stochastic_depth(). */
enum { EG_BY_BLOCK, EG_BY_SAMPLE };
enum { EG_STOCHASTIC_DEPTH_LINEAR, EG_STOCHASTIC_DEPTH_UNIFORM };
/** stochastic_depth: ResidualBlock becomes StochasticResidual; block i of n has drop_rate (i + 1) / n, or all have
 * drop_rate. */
typedef struct eg_stochastic_depth {
    eg_module base;
    double drop_rate; /**< 0 = 0.2 */
    int method;       /**< EG_BY_BLOCK, EG_BY_SAMPLE */
    int distribution; /**< EG_STOCHASTIC_DEPTH_LINEAR, EG_STOCHASTIC_DEPTH_UNIFORM */
} eg_stochastic_depth;
EG_API extern const eg_method eg_stochastic_depth_method;
#define eg_stochastic_depth(...) eg_new_method(eg_stochastic_depth, __VA_ARGS__)

/** weight_standardization: Conv2d becomes WeightStandardizedConv2d, but for those that run last. Needs .inputs. */
typedef struct eg_weight_standardization {
    eg_module base;
    int64_t n_last_layers_ignore;
} eg_weight_standardization;
EG_API extern const eg_method eg_weight_standardization_method;
#define eg_weight_standardization(...) eg_new_method(eg_weight_standardization, __VA_ARGS__)

/** gated_linear_unit: of Linear, activation, Linear that run one after the other, the first becomes a GatedLinearUnit
 * with the activation, whose place an identity takes. Needs .inputs. */
typedef struct eg_gated_linear {
    eg_module base;
    bool gate_bias;
} eg_gated_linear;
EG_API extern const eg_method eg_gated_linear_method;
#define eg_gated_linear(...) eg_new_method(eg_gated_linear, __VA_ARGS__)

/** alibi: MultiheadAttention becomes ALiBiAttention with the very weights. The tables of the Embeddings at the paths
 * `position_embedding` become zeros that are not trained, of max_sequence_length rows. Training on shorter sequences (a
 * quarter in Composer), from which the gain in time comes, is up to the program. */
typedef struct eg_alibi {
    eg_module base;
    const char *position_embedding; /**< NULL = there is none */
    int64_t max_sequence_length;    /**< 0 = as many rows as there are */
} eg_alibi;
EG_API extern const eg_method eg_alibi_method;
#define eg_alibi(...) eg_new_method(eg_alibi, __VA_ARGS__)

/** low_precision_norm: LayerNorm and GroupNorm become LowPrecisionLayerNorm and LowPrecisionGroupNorm with the very
 * weights. */
typedef struct eg_low_precision_norm {
    eg_module base;
} eg_low_precision_norm;
EG_API extern const eg_method eg_low_precision_norm_method;
#define eg_low_precision_norm(...) eg_new_method(eg_low_precision_norm, __VA_ARGS__)

/** layer_freezing: the first `depth` of the layers with parameters (never the last) are trained no longer; with paths,
 *  those at the paths. What a trained layer shares with a frozen one is trained on. */
typedef struct eg_layer_freezing {
    eg_module base;
    double depth;  /**< 0 = 0.5 */
    bool unfreeze; /**< train all layers, or those at the paths */
} eg_layer_freezing;
EG_API extern const eg_method eg_layer_freezing_method;
#define eg_layer_freezing(...) eg_new_method(eg_layer_freezing, __VA_ARGS__)

/** unwrap: takes blur_pool, squeeze_excite, ghost_batch_norm and stochastic_depth back, in a model that was trained
 * since: what they have put in becomes what it was, with the weights as they are now. (eg_surgery_undo() takes back
 * what the surgery itself has done.) */
typedef struct eg_unwrap {
    eg_module base;
} eg_unwrap;
EG_API extern const eg_method eg_unwrap_method;
#define eg_unwrap(...) eg_new_method(eg_unwrap, __VA_ARGS__)

/* ---- parts of a model ---- */

/** activation_swap: modules of exactly one class become those of another, with its defaults. */
typedef struct eg_activation_swap {
    eg_module base;
    const char *from, *to; /**< NULL = "ReLU" and "SiLU" */
} eg_activation_swap;
EG_API extern const eg_method eg_activation_swap_method;
#define eg_activation_swap(...) eg_new_method(eg_activation_swap, __VA_ARGS__)

/** new_head: the last Linear (or the one at the path) gets `classes` outputs and new weights. With .inputs the last is
 * the one that runs last, else the last in the order of registration. */
typedef struct eg_new_head {
    eg_module base;
    int64_t classes; /**< required */
} eg_new_head;
EG_API extern const eg_method eg_new_head_method;
#define eg_new_head(...) eg_new_method(eg_new_head, __VA_ARGS__)

/** drop_layers and duplicate_layers: `count` layers from number `first` on are taken out of the Sequential at the path,
 * or stand there twice (then with weights of their own). Layers with names keep them; numbers count anew. */
typedef struct eg_layer_range {
    eg_module base;
    int64_t first, count; /**< count 0 = 1 */
} eg_layer_range;
typedef eg_layer_range eg_drop_layers;
typedef eg_layer_range eg_duplicate_layers;
EG_API extern const eg_method eg_drop_layers_method, eg_duplicate_layers_method;
#define eg_drop_layers(...) eg_new_method(eg_drop_layers, __VA_ARGS__)
#define eg_duplicate_layers(...) eg_new_method(eg_duplicate_layers, __VA_ARGS__)

/** identity_elimination: Sequentials lose identities and dropout with p = 0. */
typedef struct eg_identity_elimination {
    eg_module base;
} eg_identity_elimination;
EG_API extern const eg_method eg_identity_elimination_method;
#define eg_identity_elimination(...) eg_new_method(eg_identity_elimination, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
