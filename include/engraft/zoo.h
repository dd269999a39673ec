/** @file
 * engraft/zoo.h - cells of well-known search spaces, to build networks of one's own from.
 *
 * The spaces themselves are made by name: eg_space_build(). Cells of a kind have the same keys, and so share their
 * decisions; fields, keys and numbers of parameters are those of the classic NNI search-space zoo. In all of them
 * `drop_path` is the share of samples for which an edge is dropped in training (stochastic depth).
 */
#ifndef ENGRAFT_ZOO_H
#define ENGRAFT_ZOO_H

#include "nas.h"

#ifdef __cplusplus
extern "C" {
#endif

/** eg_darts_cell(ctx, 4, 48, 48, 16): a cell of DARTS (Liu et al., ICLR 2019). Node d = 2, 3, .. adds up two of its d
 *  incoming edges, one from each input and each earlier node: layer choices "normal_n2_p0", .. ("reduce_.." with
 * `reduction`) of seven candidates, and input choices "normal_n2_switch". Takes (N, channels_pp, H, W), with
 * reduction_p (N, channels_pp, 2 H, 2 W), and (N, channels_p, H, W); gives (N, n_nodes * channels, H, W), with
 * reduction half of the size, rounded up. Batch norms have no weights: the softmax scales already. */
typedef struct eg_darts_cell {
    eg_module base;
    int64_t n_nodes; /**< 1 .. 16 */
    int64_t channels_pp, channels_p, channels;
    bool reduction_p, reduction;
    double drop_path;
    eg_module *preprocess0, *preprocess1;
} eg_darts_cell;
EG_API extern const eg_class eg_darts_cell_class;
#define eg_darts_cell(...) eg_new(eg_darts_cell, __VA_ARGS__)

/** eg_enas_micro_layer(ctx, 5, 48, 48, 20): a cell of ENAS's micro space (Pham et al., ICML 2018). A node is a scope
 *  "normal_node_0" ("reduce_..") that adds up two halves, each a layer ("normal_node_0_x_op", five candidates) on one
 * input or earlier node ("normal_node_0_x_input"). What no node takes goes through a ReLU, a 1x1 convolution and a
 * batch norm. Takes (N, in_channels_pp, H, W) and (N, in_channels_p, H, W). Gives a tuple of two: its second input,
 *  (reduction: halved, with out_channels), and (N, out_channels, H, W) (half of it, rounded up). */
typedef struct eg_enas_micro_layer {
    eg_module base;
    int64_t num_nodes; /**< 1 .. 16 */
    int64_t in_channels_pp, in_channels_p, out_channels;
    bool reduction;
    double drop_path;
    eg_module *reduce0, *reduce1, *preproc0, *preproc1, *nodes, *bn; /**< the first two with reduction only */
    eg_tensor *final_conv_w; /**< (out_channels, (num_nodes + 2) * out_channels, 1, 1): a slice for each state */
} eg_enas_micro_layer;
EG_API extern const eg_class eg_enas_micro_layer_class;
#define eg_enas_micro_layer(...) eg_new(eg_enas_micro_layer, __VA_ARGS__)

/** eg_enas_macro(ctx): the network of ENAS's macro space. Layer i is a scope "layer_<i>": one of six operations, to
 *  which any of the states before it are added, then a batch norm. Keys are numbered as automatic ones of a new context
 *  are ("LayerChoice1", "LayerChoice2", "InputChoice3", ..). In an input choice "layer_<k>" is what layer k takes, that
 *  is, what the layer before it gives. Takes (N, in_channels, H, W), gives (N, num_classes); the image is halved after
 *  one and two thirds of the layers. */
typedef struct eg_enas_macro {
    eg_module base;
    int64_t num_layers;  /**< 0 = 12 */
    int64_t out_filters; /**< 0 = 24 */
    int64_t in_channels; /**< 0 = 3 */
    int64_t num_classes; /**< 0 = 10 */
    double dropout_rate; /**< before the classifier */
    double drop_path;
    eg_module *stem, *layers, *pool_layers, *dropout, *dense;
} eg_enas_macro;
EG_API extern const eg_class eg_enas_macro_class;
#define eg_enas_macro(...) eg_new(eg_enas_macro, __VA_ARGS__)

/** eg_nasbench101_cell(ctx, 128, 128): the cell of NAS-Bench-101 (Ying et al., ICML 2019), a graph of seven vertices:
 * the input, five that are layer choices "op1" to "op5" of "conv3x3-bn-relu", "conv1x1-bn-relu" and "maxpool3x3", and
 * the output. Input choice "input3" is
 *  which vertices before vertex 3 (0: the input) lead to it, "input6" those that lead to the output. A vertex takes the
 *  sum of what leads to it; the output is its vertices side by side, and the input added. What is on no path from the
 *  input to the output does not run; without such a path the output is zeros. (N, in_channels, H, W) ->
 *  (N, out_channels, H, W). A vertex that leads to the output has its share of the channels (none where these do not
 *  suffice), another one as many as the widest that it leads to, of what it takes the first ones.
 *
 *  With `fixed`, an architecture's text, also of fewer vertices ("op1", "input1", "input2"), the cell has no choices,
 *  and the benchmark's parameters: EINVAL for what is no architecture of a cell or has no such path. */
typedef struct eg_nasbench101_cell {
    eg_module base;
    int64_t in_channels, out_channels;
    const char *fixed;
    double drop_path;
    eg_module *ops[5], *inputs[6], *projections[6]; /**< of vertices 1, 2, ..; NULL for what a fixed cell lacks */
} eg_nasbench101_cell;
EG_API extern const eg_class eg_nasbench101_cell_class;
#define eg_nasbench101_cell(...) eg_new(eg_nasbench101_cell, __VA_ARGS__)

/** eg_nasbench101(ctx, .fixed = text): the network of NAS-Bench-101, a convolution and three stacks of cells, between
 *  which the image is halved and the channels are doubled. (N, in_channels, H, W) -> (N, num_classes). */
typedef struct eg_nasbench101 {
    eg_module base;
    int64_t in_channels; /**< 0 = 3 */
    int64_t num_classes; /**< 0 = 10 */
    int64_t channels;    /**< 0 = 128 */
    int64_t cells;       /**< in a stack; 0 = 3 */
    const char *fixed;   /**< as in the cell */
    double drop_path;
    eg_module *stem, *body;
} eg_nasbench101;
EG_API extern const eg_class eg_nasbench101_class;
#define eg_nasbench101(...) eg_new(eg_nasbench101, __VA_ARGS__)

/** Whether NAS-Bench-101 has a cell: EINVAL for what is no architecture of a cell, for one without a path from the
 * input to the output, and for more than nine edges on such paths (the message says which). Operations are names or
 *  indices, inputs an index or a list of them. */
EG_API eg_status eg_nasbench101_check(const eg_arch *arch);
/** The benchmark's name for a cell: 32 hexadecimal digits, the same for all graphs that differ in the order of
 * vertices, or in what is on no path from the input to the output. For eg_free(). NULL: EINVAL as
 * eg_nasbench101_check(). */
EG_API char *eg_nasbench101_hash(const eg_arch *arch);

/** eg_nasbench201_cell(ctx, "cell", 16, 16, 1): the cell of NAS-Bench-201 (Dong and Yang, ICLR 2020): three nodes, each
 * the sum of an edge from the input and from every node before it, which are layer choices "0_1", "0_2", "1_2", "0_3",
 *  "1_3", "2_3" of five candidates. (N, C_in, H, W) -> (N, C_out, H / stride, W / stride), rounded up. Candidates that
 *  keep an image as it is ("skip_connect", "avg_pool_3x3") change channels and size by a convolution where they have
 *  to. */
typedef struct eg_nasbench201_cell {
    eg_module base;
    const char *cell_id; /**< a name to print */
    int64_t C_in, C_out;
    int64_t stride;         /**< 0 = 1 */
    bool no_bn_affine;      /**< bn_affine=False */
    eg_opt_f64 bn_momentum; /**< default 0.1 */
    bool no_bn_track_running_stats;
    double drop_path;
} eg_nasbench201_cell;
EG_API extern const eg_class eg_nasbench201_cell_class;
#define eg_nasbench201_cell(...) eg_new(eg_nasbench201_cell, __VA_ARGS__)

/** eg_shufflenet_block(ctx, 64, 64, 5): a block of ShuffleNetV2 (Ma et al., ECCV 2018), as Single Path One-Shot chooses
 *  them (Guo et al., ECCV 2020). Every second channel goes through a 1x1, a depthwise and a 1x1 convolution, the others
 *  are put before what they give. With stride 2 all channels do, and all in_channels go through a depthwise and a 1x1
 *  convolution beside it. (N, in_channels, H, W) -> (N, out_channels, H / stride, W / stride), rounded up. EINVAL
 * unless in_channels is even (stride 1), and smaller than out_channels (stride 2) or than twice of it. */
typedef struct eg_shufflenet_block {
    eg_module base;
    int64_t in_channels, out_channels;
    int64_t kernel_size; /**< odd: the image keeps its size */
    int64_t stride;      /**< 0 = 1; 2 */
    bool xception;       /**< three times a depthwise and a 1x1 convolution instead */
    double drop_path;
    eg_module *branch_main, *branch_proj; /**< the latter with stride 2 only */
} eg_shufflenet_block;
EG_API extern const eg_class eg_shufflenet_block_class;
#define eg_shufflenet_block(...) eg_new(eg_shufflenet_block, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
