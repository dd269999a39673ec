/** @file
 * engraft/layers.h - the built-in modules.
 *
 * As in torch.nn: required arguments by position, the others by name: eg_conv2d(ctx, 1, 16, 3, .padding = 1). Shapes
 * are those of the operation of the same name in ops.h.
 */
#ifndef ENGRAFT_LAYERS_H
#define ENGRAFT_LAYERS_H

#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions and products ---- */

/** eg_conv2d(ctx, 3, 16, 3, .stride = 2, .padding = 1): see eg_f_conv2d(). */
typedef struct eg_conv2d {
    eg_module base;
    int64_t in_channels, out_channels;
    eg_hw kernel_size, stride, padding, dilation;
    int64_t groups;
    bool no_bias;
    eg_tensor *weight, *bias;
} eg_conv2d;
EG_API extern const eg_class eg_conv2d_class;
#define eg_conv2d(...) eg_new(eg_conv2d, __VA_ARGS__)

/** eg_conv1d(ctx, 3, 16, 3, .padding = 1): see eg_f_conv1d(). */
typedef struct eg_conv1d {
    eg_module base;
    int64_t in_channels, out_channels;
    int64_t kernel_size, stride, padding, dilation; /**< stride and dilation: 0 = 1 */
    int64_t groups;                                 /**< 0 = 1 */
    bool no_bias;
    eg_tensor *weight, *bias;
} eg_conv1d;
EG_API extern const eg_class eg_conv1d_class;
#define eg_conv1d(...) eg_new(eg_conv1d, __VA_ARGS__)

/** eg_conv_transpose2d(ctx, 16, 8, 3, .stride = 2, .padding = 1, .output_padding = 1): see eg_f_conv_transpose2d(). */
typedef struct eg_conv_transpose2d {
    eg_module base;
    int64_t in_channels, out_channels;
    eg_hw kernel_size, stride, padding, output_padding, dilation;
    int64_t groups;
    bool no_bias;
    eg_tensor *weight, *bias;
} eg_conv_transpose2d;
EG_API extern const eg_class eg_conv_transpose2d_class;
#define eg_conv_transpose2d(...) eg_new(eg_conv_transpose2d, __VA_ARGS__)

/** eg_linear(ctx, 64, 10): see eg_f_linear(). */
typedef struct eg_linear {
    eg_module base;
    int64_t in_features, out_features;
    bool no_bias;
    eg_tensor *weight, *bias;
} eg_linear;
EG_API extern const eg_class eg_linear_class;
#define eg_linear(...) eg_new(eg_linear, __VA_ARGS__)

/* ---- sequences ---- */

/** eg_embedding(ctx, 1000, 64): see eg_f_embedding(). The weight is standard normal, 0 in the row of padding. */
typedef struct eg_embedding {
    eg_module base;
    int64_t num_embeddings, embedding_dim;
    eg_opt_f64 padding_idx; /**< EG_F64(0); negative counts from the end. Default: none */
    eg_tensor *weight;
} eg_embedding;
EG_API extern const eg_class eg_embedding_class;
#define eg_embedding(...) eg_new(eg_embedding, __VA_ARGS__)

/** eg_multihead_attention(ctx, 64, 4): attention of each position to all others, in several heads (see
 *  eg_f_scaled_dot_product_attention()), between linear layers. Takes x, or query, key and value, or these and a mask,
 *  of shape (L, N, embed_dim), (S, N, embed_dim), with batch_first (N, L, embed_dim); gives one tensor like query (the
 *  weights are not returned). The mask is that of the operation, over (N, heads, L, S): of uint8, 0 leaves an entry
 * out, the opposite of torch.nn.MultiheadAttention. */
typedef struct eg_multihead_attention {
    eg_module base;
    int64_t embed_dim, num_heads; /**< num_heads divides embed_dim, unless head_dim is given */
    double dropout;               /**< of the weights, in training */
    bool no_bias, batch_first;
    bool is_causal;   /**< each position sees itself and those before it */
    int64_t head_dim; /**< features of each head; 0 = -1 = embed_dim / num_heads */
    eg_tensor *in_proj_weight, *in_proj_bias;
    eg_module *out_proj;
} eg_multihead_attention;
EG_API extern const eg_class eg_multihead_attention_class;
#define eg_multihead_attention(...) eg_new(eg_multihead_attention, __VA_ARGS__)

/** Recurrent layers over sequences, one above the other: eg_lstm(ctx, 64, 128, .num_layers = 2, .batch_first = true).
 *  x: (T, N, input_size), with batch_first (N, T, input_size). eg_lstm takes x, or x, h0 and c0, and gives the tuple y,
 *  h, c; eg_gru takes x, or x and h0, and gives y, h. y: (T, N, directions * hidden_size) or batch first; states:
 *  (num_layers * directions, N, hidden_size). Parameters are named as PyTorch's: "weight_ih_l0", "weight_hh_l0",
 *  "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse", ..; see eg_f_lstm(), eg_f_gru(). */
typedef struct eg_recurrent {
    eg_module base;
    int64_t input_size, hidden_size;
    int64_t num_layers; /**< 0 = 1 */
    bool no_bias, batch_first;
    double dropout; /**< of what each layer but the last gives, in training */
    bool bidirectional;
} eg_recurrent;
typedef eg_recurrent eg_lstm, eg_gru;
EG_API extern const eg_class eg_lstm_class, eg_gru_class;
#define eg_lstm(...) eg_new(eg_lstm, __VA_ARGS__)
#define eg_gru(...) eg_new(eg_gru, __VA_ARGS__)

/** One step: eg_lstm_cell takes x (N, input_size), or x, h and c (N, hidden_size), and gives the tuple h, c;
 * eg_gru_cell takes x, or x and h, and gives h. */
typedef struct eg_recurrent_cell {
    eg_module base;
    int64_t input_size, hidden_size;
    bool no_bias;
    eg_tensor *weight_ih, *weight_hh, *bias_ih, *bias_hh;
} eg_recurrent_cell;
typedef eg_recurrent_cell eg_lstm_cell, eg_gru_cell;
EG_API extern const eg_class eg_lstm_cell_class, eg_gru_cell_class;
#define eg_lstm_cell(...) eg_new(eg_lstm_cell, __VA_ARGS__)
#define eg_gru_cell(...) eg_new(eg_gru_cell, __VA_ARGS__)

/* ---- normalization ---- */

/** eg_batch_norm2d(ctx, 16): see eg_f_batch_norm(). */
typedef struct eg_batch_norm2d {
    eg_module base;
    int64_t num_features;
    double eps;          /**< 0 = 1e-5 */
    eg_opt_f64 momentum; /**< default 0.1 */
    bool no_affine;
    bool relu;                   /**< fused: max(0, .) after it */
    bool cumulative;             /**< running statistics are the plain mean over all batches: PyTorch's momentum=None */
    bool no_track_running_stats; /**< the batch's statistics in evaluation too */
    eg_tensor *weight, *bias;    /**< eg_none with no_affine */
    eg_tensor *running_mean, *running_var, *num_batches_tracked; /**< eg_none with no_track_running_stats */
} eg_batch_norm2d;
EG_API extern const eg_class eg_batch_norm2d_class;
#define eg_batch_norm2d(...) eg_new(eg_batch_norm2d, __VA_ARGS__)

/** eg_group_norm(ctx, 8, 64): see eg_f_group_norm(). */
typedef struct eg_group_norm {
    eg_module base;
    int64_t num_groups, num_channels;
    double eps; /**< 0 = 1e-5 */
    bool no_affine;
    eg_tensor *weight, *bias; /**< eg_none with no_affine */
} eg_group_norm;
EG_API extern const eg_class eg_group_norm_class;
#define eg_group_norm(...) eg_new(eg_group_norm, __VA_ARGS__)

/** eg_layer_norm(ctx, EG_SHAPE(64)): see eg_f_layer_norm(). */
typedef struct eg_layer_norm {
    eg_module base;
    eg_shape normalized_shape;
    double eps;     /**< 0 = 1e-5 */
    bool no_affine; /**< PyTorch's elementwise_affine=False */
    eg_tensor *weight, *bias;
} eg_layer_norm;
EG_API extern const eg_class eg_layer_norm_class;
#define eg_layer_norm(...) eg_new(eg_layer_norm, __VA_ARGS__)

/** eg_instance_norm2d(ctx, 16): see eg_f_instance_norm(). As in PyTorch, without weight and bias unless asked for;
 * there are no running statistics. */
typedef struct eg_instance_norm2d {
    eg_module base;
    int64_t num_features;
    double eps; /**< 0 = 1e-5 */
    bool affine;
    eg_tensor *weight, *bias; /**< eg_none without affine */
} eg_instance_norm2d;
EG_API extern const eg_class eg_instance_norm2d_class;
#define eg_instance_norm2d(...) eg_new(eg_instance_norm2d, __VA_ARGS__)

/* ---- normalized parameters ---- */

/** Weight normalization (Salimans and Kingma 2016) of the parameter of that name: "weight_g", its lengths along each
 *  index of `dim` (-1: the length of all), and "weight_v", its direction, take its place among the parameters, and it
 * is computed from them when the module is called: eg_weight_norm(conv, "weight", 0). Names and shapes are those of
 *  torch.nn.utils.weight_norm. Clones and states have both; outside of a call the member of the struct is eg_none. Make
 *  optimizers after it. ENOENT when there is no such parameter, EINVAL when it is no member of the module's struct,
 *  EUNSUPPORTED for a module with open fields. */
EG_API eg_status eg_weight_norm(eg_module *m, const char *name, int dim);
/** Puts the parameter as it is now in the place of its parts. ENOENT. */
EG_API eg_status eg_remove_weight_norm(eg_module *m, const char *name);
/** Spectral normalization (Miyato et al. 2018): the parameter "weight_orig", as a matrix whose rows are the indices of
 *  `dim` (0; of transposed convolutions 1), is divided by an estimate of its largest singular value, which buffers
 *  "weight_u" and "weight_v" hold; each call in training makes n_power_iterations (PyTorch: 1) more. u and v begin
 *  with numbers from the context's stream. Otherwise as eg_weight_norm(), and torch.nn.utils.spectral_norm. */
EG_API eg_status eg_spectral_norm(eg_module *m, const char *name, int dim, int64_t n_power_iterations);
/** See eg_remove_weight_norm(). */
EG_API eg_status eg_remove_spectral_norm(eg_module *m, const char *name);

/* ---- pooling ---- */

/** Max and average pooling: eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1). */
typedef struct eg_pool2d {
    eg_module base;
    eg_hw kernel_size, stride, padding, dilation;
    bool ceil_mode, exclude_pad;
} eg_pool2d;
typedef eg_pool2d eg_max_pool2d, eg_avg_pool2d;
EG_API extern const eg_class eg_max_pool2d_class, eg_avg_pool2d_class;
#define eg_max_pool2d(...) eg_new(eg_max_pool2d, __VA_ARGS__)
#define eg_avg_pool2d(...) eg_new(eg_avg_pool2d, __VA_ARGS__)

/** eg_adaptive_avg_pool2d(ctx, EG_HW(2, 3)): see eg_f_adaptive_avg_pool2d(). */
typedef struct eg_adaptive_avg_pool2d {
    eg_module base;
    eg_hw output_size;
} eg_adaptive_avg_pool2d;
EG_API extern const eg_class eg_adaptive_avg_pool2d_class;
#define eg_adaptive_avg_pool2d(...) eg_new(eg_adaptive_avg_pool2d, __VA_ARGS__)

/** (N, C, H, W) -> (N, C): the mean over H and W, flattened, ready for a linear layer. */
typedef struct eg_global_avg_pool2d {
    eg_module base;
} eg_global_avg_pool2d;
EG_API extern const eg_class eg_global_avg_pool2d_class;
#define eg_global_avg_pool2d(...) eg_new(eg_global_avg_pool2d, __VA_ARGS__)

/* ---- sizes of images ---- */

/** eg_upsample(ctx, .scale_factor = 2, .mode = EG_BILINEAR) or .size = EG_HW(32, 48): see eg_f_interpolate(). */
typedef struct eg_upsample {
    eg_module base;
    eg_hw size;          /**< one of size */
    double scale_factor; /**< and scale_factor */
    int mode;            /**< an eg_interpolation */
    bool align_corners;
} eg_upsample;
EG_API extern const eg_class eg_upsample_class;
#define eg_upsample(...) eg_new(eg_upsample, __VA_ARGS__)

/** eg_pixel_shuffle(ctx, 2): see eg_f_pixel_shuffle(). */
typedef struct eg_pixel_shuffle {
    eg_module base;
    int64_t upscale_factor;
} eg_pixel_shuffle;
EG_API extern const eg_class eg_pixel_shuffle_class;
#define eg_pixel_shuffle(...) eg_new(eg_pixel_shuffle, __VA_ARGS__)

/** eg_pixel_unshuffle(ctx, 2): see eg_f_pixel_unshuffle(). */
typedef struct eg_pixel_unshuffle {
    eg_module base;
    int64_t downscale_factor;
} eg_pixel_unshuffle;
EG_API extern const eg_class eg_pixel_unshuffle_class;
#define eg_pixel_unshuffle(...) eg_new(eg_pixel_unshuffle, __VA_ARGS__)

/* ---- activations ---- */

/** Activations without arguments. */
typedef struct eg_activation {
    eg_module base;
} eg_activation;
typedef eg_activation eg_relu, eg_relu6, eg_sigmoid, eg_tanh, eg_gelu, eg_silu, eg_hardswish, eg_hardsigmoid, eg_mish,
    eg_identity;
EG_API extern const eg_class eg_relu_class, eg_relu6_class, eg_sigmoid_class, eg_tanh_class, eg_gelu_class,
    eg_silu_class, eg_hardswish_class, eg_hardsigmoid_class, eg_mish_class, eg_identity_class;
#define eg_relu(...) eg_new(eg_relu, __VA_ARGS__)
#define eg_relu6(...) eg_new(eg_relu6, __VA_ARGS__)
#define eg_sigmoid(...) eg_new(eg_sigmoid, __VA_ARGS__)
#define eg_tanh(...) eg_new(eg_tanh, __VA_ARGS__)
#define eg_gelu(...) eg_new(eg_gelu, __VA_ARGS__)
#define eg_silu(...) eg_new(eg_silu, __VA_ARGS__)
#define eg_hardswish(...) eg_new(eg_hardswish, __VA_ARGS__)
#define eg_hardsigmoid(...) eg_new(eg_hardsigmoid, __VA_ARGS__)
#define eg_mish(...) eg_new(eg_mish, __VA_ARGS__)
#define eg_identity(...) eg_new(eg_identity, __VA_ARGS__)

/** eg_leaky_relu(ctx, .negative_slope = EG_F64(0.1)). */
typedef struct eg_leaky_relu {
    eg_module base;
    eg_opt_f64 negative_slope; /**< default 0.01 */
} eg_leaky_relu;
EG_API extern const eg_class eg_leaky_relu_class;
#define eg_leaky_relu(...) eg_new(eg_leaky_relu, __VA_ARGS__)

/** eg_elu(ctx, .alpha = EG_F64(0.5)): see eg_f_elu(). */
typedef struct eg_elu {
    eg_module base;
    eg_opt_f64 alpha; /**< default 1 */
} eg_elu;
EG_API extern const eg_class eg_elu_class;
#define eg_elu(...) eg_new(eg_elu, __VA_ARGS__)

/** eg_softplus(ctx, .beta = 2): see eg_f_softplus(). */
typedef struct eg_softplus {
    eg_module base;
    double beta;          /**< 0 = 1 */
    eg_opt_f64 threshold; /**< default 20 */
} eg_softplus;
EG_API extern const eg_class eg_softplus_class;
#define eg_softplus(...) eg_new(eg_softplus, __VA_ARGS__)

/** eg_prelu(ctx, 16): see eg_f_prelu(). */
typedef struct eg_prelu {
    eg_module base;
    int64_t num_parameters; /**< 0 = 1: one slope for all channels; else the number of channels */
    eg_opt_f64 init;        /**< default 0.25 */
    eg_tensor *weight;
} eg_prelu;
EG_API extern const eg_class eg_prelu_class;
#define eg_prelu(...) eg_new(eg_prelu, __VA_ARGS__)

/** eg_softmax(ctx, 1), eg_log_softmax(ctx, -1). */
typedef struct eg_softmax {
    eg_module base;
    int64_t dim; /**< negative counts from the end */
} eg_softmax;
typedef eg_softmax eg_log_softmax;
EG_API extern const eg_class eg_softmax_class, eg_log_softmax_class;
#define eg_softmax(...) eg_new(eg_softmax, __VA_ARGS__)
#define eg_log_softmax(...) eg_new(eg_log_softmax, __VA_ARGS__)

/* ---- regularization and shapes ---- */

/** eg_dropout(ctx, 0.5), eg_drop_path(ctx, 0.2). */
typedef struct eg_dropout {
    eg_module base;
    double p;
} eg_dropout;
typedef eg_dropout eg_drop_path;
EG_API extern const eg_class eg_dropout_class, eg_drop_path_class;
#define eg_dropout(...) eg_new(eg_dropout, __VA_ARGS__)
#define eg_drop_path(...) eg_new(eg_drop_path, __VA_ARGS__)

/** Joins dimensions start_dim (default 1) to end_dim (default the last). Since 0 stands for the default, dimension 0 is
 *  named from the end: eg_flatten(ctx, -4) joins all of a 4-d tensor. */
typedef struct eg_flatten {
    eg_module base;
    int64_t start_dim, end_dim; /**< 0 = 1 and -1 */
} eg_flatten;
EG_API extern const eg_class eg_flatten_class;
#define eg_flatten(...) eg_new(eg_flatten, __VA_ARGS__)

/* ---- containers ---- */

/** A child and its name, for EG_NAMED(). */
typedef struct eg_named_module {
    const char *name;
    eg_module *module;
} eg_named_module;

/** Lists of modules for the containers: EG_MODULES(a, b) names them "0", "1", ..;
 *  EG_NAMED({"conv", a}, {"norm", b}). */
#define EG_MODULES(...)                                                                                                \
    .modules = (eg_module *const[]){__VA_ARGS__},                                                                      \
    .n_modules = sizeof((eg_module *const[]){__VA_ARGS__}) / sizeof(eg_module *)
#define EG_NAMED(...)                                                                                                  \
    .named = (const eg_named_module[]){__VA_ARGS__},                                                                   \
    .n_named = sizeof((const eg_named_module[]){__VA_ARGS__}) / sizeof(eg_named_module)

/** One after the other: eg_sequential(ctx, EG_MODULES(..)). For loops: eg_sequential(ctx) and eg_append(). */
typedef struct eg_sequential {
    eg_module base;
    eg_module *const *modules; /**< the lists are read while it is built and NULL after */
    size_t n_modules;
    const eg_named_module *named;
    size_t n_named;
} eg_sequential;
/** Holds modules that the user's forward calls itself. */
typedef eg_sequential eg_module_list;
EG_API extern const eg_class eg_sequential_class, eg_module_list_class;
#define eg_sequential(...) eg_new(eg_sequential, __VA_ARGS__)
#define eg_module_list(...) eg_new(eg_module_list, __VA_ARGS__)
/** The first `depth` of its modules, one after the other: eg_repeat(ctx, EG_MODULES(a, b, c), .depth = 2). Without a
 *  depth (0, which stands for -1) all of them; of open depths 0 is a value like others: x is passed on. EINVAL for more
 *  than there are, and for an open one with values below 0. For loops: eg_repeat(ctx, .depth = ..) without modules, and
 *  eg_append(); too large a depth then fails when it runs. */
typedef struct eg_repeat {
    eg_module base;
    eg_module *const *modules; /**< as in eg_sequential */
    size_t n_modules;
    const eg_named_module *named;
    size_t n_named;
    int64_t depth; /**< 0 = -1 = all; open: exactly its value */
} eg_repeat;
EG_API extern const eg_class eg_repeat_class;
#define eg_repeat(...) eg_new(eg_repeat, __VA_ARGS__)
/** Adds a module (taken over, also on failure) at the end of a sequential, repeat or module list under the next free
 *  number. */
EG_API eg_status eg_append(eg_module *container, eg_module *child);

/* ---- what surgery puts in (see methods.h), to be used by itself too ---- */

/** Residual blocks: eg_residual_block(ctx, EG_NAMED({"body", f}, {"shortcut", g})) is f(x) + g(x); without a shortcut
 * f(x) + x. */
typedef struct eg_residual_block {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
} eg_residual_block;
EG_API extern const eg_class eg_residual_block_class;
#define eg_residual_block(...) eg_new(eg_residual_block, __VA_ARGS__)
/** A residual block whose body is left out with probability drop_rate in training (Huang et al. 2016), for the whole
 *  batch or by_sample, and scaled by 1 - drop_rate in evaluation. */
typedef struct eg_stochastic_residual {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
    double drop_rate; /**< 0 .. 1 */
    bool by_sample;
    double held_back; /**< share of drop_rate that does not count yet: see eg_stochastic_depth_warm_up() */
} eg_stochastic_residual;
EG_API extern const eg_class eg_stochastic_residual_class;
#define eg_stochastic_residual(...) eg_new(eg_stochastic_residual, __VA_ARGS__)
/** Lets `share` (0 .. 1) of the drop_rate of all stochastic residual blocks of a model count from now on: called with
 *  step / n at the first n steps of a training, the rates grow to their full size. EINVAL. */
EG_API eg_status eg_stochastic_depth_warm_up(eg_module *model, double share);

/** A Sequential whose weights are factors of one: of eg_factorize(). `error` only says how near they are. */
typedef struct eg_factorized {
    eg_module base;
    eg_module *const *modules; /**< as in eg_sequential */
    size_t n_modules;
    const eg_named_module *named;
    size_t n_named;
    double error;
} eg_factorized;
EG_API extern const eg_class eg_factorized_class;
#define eg_factorized(...) eg_new(eg_factorized, __VA_ARGS__)
/** base_layer(x) + scale * lora_B(lora_A(x)) (Hu et al. 2022): eg_low_rank_adapter(ctx, EG_NAMED({"base_layer", l},
 *  {"lora_A", a}, {"lora_B", b}), .scale = 2). */
typedef struct eg_low_rank_adapter {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
    double scale; /**< 0 = 1 */
    bool merged;  /**< the base layer's weight has the correction in it already */
} eg_low_rank_adapter;
EG_API extern const eg_class eg_low_rank_adapter_class;
#define eg_low_rank_adapter(...) eg_new(eg_low_rank_adapter, __VA_ARGS__)
/** Adds the correction to the base layer's weight, so that it costs nothing, or takes it out again (the weight is then
 *  as it was but for rounding). The adapter stays; eg_merge_adapter() puts a plain layer in its place. EINVAL for what
 * is no adapter of layers with weights. */
EG_API eg_status eg_low_rank_adapter_set_merged(eg_module *m, bool merged);

/** A convolution of blurred input: eg_blur_conv2d(ctx, EG_NAMED({"conv", c})); with conv_first its output is blurred,
 * at steps of `stride`. The filter is [1 2 1; 2 4 2; 1 2 1] / 16, a buffer "blur_filter" (Zhang 2019). */
typedef struct eg_blur_conv2d {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
    bool conv_first;
    eg_hw stride; /**< of the blur, with conv_first */
    eg_tensor *blur_filter;
} eg_blur_conv2d;
EG_API extern const eg_class eg_blur_conv2d_class;
#define eg_blur_conv2d(...) eg_new(eg_blur_conv2d, __VA_ARGS__)
/** eg_blur_max_pool2d(ctx, 2): the largest of each window at steps of 1, then blurred at steps of `stride`. */
typedef struct eg_blur_max_pool2d {
    eg_module base;
    eg_hw kernel_size, stride, padding, dilation; /**< stride 0 = kernel_size */
    eg_tensor *blur_filter;
} eg_blur_max_pool2d;
EG_API extern const eg_class eg_blur_max_pool2d_class;
#define eg_blur_max_pool2d(...) eg_new(eg_blur_max_pool2d, __VA_ARGS__)

/** x * gain * sigmoid(excite(relu(squeeze(mean(x))))), by channels (Hu et al. 2018): eg_squeeze_excite2d(ctx, 64, 16).
 */
typedef struct eg_squeeze_excite2d {
    eg_module base;
    int64_t num_features, latent_channels;
    double gain; /**< 0 = 1 */
    eg_module *squeeze, *excite;
} eg_squeeze_excite2d;
EG_API extern const eg_class eg_squeeze_excite2d_class;
#define eg_squeeze_excite2d(...) eg_new(eg_squeeze_excite2d, __VA_ARGS__)
/** A Sequential of a convolution and its SqueezeExcite2d. */
typedef eg_sequential eg_squeeze_excite_conv2d;
EG_API extern const eg_class eg_squeeze_excite_conv2d_class;
#define eg_squeeze_excite_conv2d(...) eg_new(eg_squeeze_excite_conv2d, __VA_ARGS__)

/** A batch norm that in training normalizes parts of at most ghost_batch_size samples: eg_ghost_batch_norm2d(ctx,
 *  EG_NAMED({"norm", b}), .ghost_batch_size = 32). Smaller batches are EINVAL. */
typedef struct eg_ghost_batch_norm2d {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
    int64_t ghost_batch_size; /**< 0 = 32 */
} eg_ghost_batch_norm2d;
EG_API extern const eg_class eg_ghost_batch_norm2d_class;
#define eg_ghost_batch_norm2d(...) eg_new(eg_ghost_batch_norm2d, __VA_ARGS__)

/** A Conv2d that uses its weight with mean 0 and variance 1 for each output (Qiao et al. 2019). */
typedef eg_conv2d eg_weight_standardized_conv2d;
EG_API extern const eg_class eg_weight_standardized_conv2d_class;
#define eg_weight_standardized_conv2d(...) eg_new(eg_weight_standardized_conv2d, __VA_ARGS__)

/** relu(conv(x)): a Conv2d without a need for a module behind it. */
typedef eg_conv2d eg_conv_relu2d;
EG_API extern const eg_class eg_conv_relu2d_class;
#define eg_conv_relu2d(...) eg_new(eg_conv_relu2d, __VA_ARGS__)

/** A LayerNorm and a GroupNorm that in a context of precision bfloat16 (eg_context_set_precision()) take what is
 * float32 as bfloat16, so that what they give and what backward needs is. Elsewhere they are as any other. */
typedef eg_layer_norm eg_low_precision_layer_norm;
EG_API extern const eg_class eg_low_precision_layer_norm_class;
#define eg_low_precision_layer_norm(...) eg_new(eg_low_precision_layer_norm, __VA_ARGS__)
typedef eg_group_norm eg_low_precision_group_norm;
EG_API extern const eg_class eg_low_precision_group_norm_class;
#define eg_low_precision_group_norm(...) eg_new(eg_low_precision_group_norm, __VA_ARGS__)

/** A MultiheadAttention with linear biases (Press et al. 2022): from the products of queries and keys a slope of each
 *  head, 2^(-8 (h + 1) / num_heads), times the distance |i - j| is taken. It needs no embedding of positions. */
typedef eg_multihead_attention eg_alibi_attention;
EG_API extern const eg_class eg_alibi_attention_class;
#define eg_alibi_attention(...) eg_new(eg_alibi_attention, __VA_ARGS__)

/** Several Linears that read one tensor, as one with their weights below each other: each LinearPart of it gives some
 * of its outputs, and the first that is called computes them all for the others that follow with the same input. */
typedef struct eg_parallel_linear {
    eg_module base;
    int64_t in_features, out_features; /**< as in eg_linear */
    bool no_bias;
    eg_tensor *weight, *bias;
    int64_t n_parts;                     /**< when all have been taken, what was computed is let go */
    struct eg_parallel_reading *reading; /**< internal */
} eg_parallel_linear;
EG_API extern const eg_class eg_parallel_linear_class;
/** eg_parallel_linear(ctx, 16, 48, .n_parts = 3). */
#define eg_parallel_linear(...) eg_new(eg_parallel_linear, __VA_ARGS__)
/** eg_linear_part(ctx, EG_NAMED({"linear", whole}), .first = 16, .out_features = 16). */
typedef struct eg_linear_part {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
    int64_t first, out_features;
} eg_linear_part;
EG_API extern const eg_class eg_linear_part_class;
#define eg_linear_part(...) eg_new(eg_linear_part, __VA_ARGS__)

/** act(gate(x)) * linear(x) (Shazeer 2020): eg_gated_linear_unit(ctx, EG_NAMED({"linear", l}, {"gate", g}, {"act",
 * a})); without a third module the sigmoid. */
typedef struct eg_gated_linear_unit {
    eg_module base;
    const eg_named_module *named; /**< the list is read while it is built and NULL after */
    size_t n_named;
} eg_gated_linear_unit;
EG_API extern const eg_class eg_gated_linear_unit_class;
#define eg_gated_linear_unit(...) eg_new(eg_gated_linear_unit, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
