/*
 * tests/nn/json_rows.h - a module of each class as JSON, with ' for ", and ` for a " in a text.
 */
#ifndef EG_TESTS_NN_JSON_ROWS_H
#define EG_TESTS_NN_JSON_ROWS_H

/* Each class with fields that have not their defaults. */
static const char *const rows[] = {
    "{'class': 'Sequential', 'modules': [{'class': 'ReLU'}, {'class': 'Tanh'}, null]}",
    "{'class': 'Sequential', 'named': {'b': {'class': 'ReLU'}, 'a': {'class': 'Tanh'}, '0': null}}",
    "{'class': 'ModuleList', 'modules': [{'class': 'ReLU'}]}",
    "{'class': 'ModuleList', 'named': {'one': {'class': 'ReLU'}}}",
    "{'class': 'Repeat', 'modules': [{'class': 'ReLU'}, {'class': 'Tanh'}], 'depth': 1}",
    "{'class': 'Repeat', 'named': {'b': {'class': 'ReLU'}, 'a': {'class': 'Tanh'}}}",
    "{'class': 'Repeat', 'modules': [{'class': 'ReLU'}, {'class': 'Tanh'}],"
    " 'depth': {'value_choice': [0, 2, 1], 'key': 'depth'}}",
    "{'class': 'Conv2d', 'in_channels': 4, 'out_channels': 6, 'kernel_size': [3, 1], 'stride': 2, 'padding': [1, 0],"
    " 'dilation': [1, 2], 'groups': 2, 'no_bias': true}",
    "{'class': 'Conv1d', 'in_channels': 4, 'out_channels': 6, 'kernel_size': 3, 'stride': 2, 'padding': 1,"
    " 'dilation': 2, 'groups': 2, 'no_bias': true}",
    "{'class': 'ConvTranspose2d', 'in_channels': 4, 'out_channels': 6, 'kernel_size': [3, 2], 'stride': 2,"
    " 'padding': 1, 'output_padding': [0, 1], 'dilation': 2, 'groups': 2, 'no_bias': true}",
    "{'class': 'Linear', 'in_features': 3, 'out_features': 4, 'no_bias': true}",
    "{'class': 'Linear', 'in_features': 3, 'out_features': {'value_choice': [4, 8], 'key': 'width', 'fixed': '4'}}",
    "{'class': 'Conv2d', 'in_channels': {'value_choice': [4], 'key': 'in'},"
    " 'out_channels': {'value_choice': [6, 2], 'key': 'width'}, 'kernel_size': {'value_choice': [1, 5, 3], 'key': "
    "'kernel'},"
    " 'padding': {'value_choice': [0, 2, 1], 'key': 'kernel'}}",
    "{'class': 'Dropout', 'p': {'value_choice': [0.1, 0.25], 'key': 'p'}}",
    "{'class': 'LeakyReLU', 'negative_slope': {'value_choice': [0, 0.01], 'key': 'slope'}}",
    "{'class': 'Embedding', 'num_embeddings': 5, 'embedding_dim': 3, 'padding_idx': -1}",
    "{'class': 'MultiheadAttention', 'embed_dim': 6, 'num_heads': 2, 'dropout': 0.25, 'no_bias': true,"
    " 'batch_first': true, 'is_causal': true, 'head_dim': 4}",
    "{'class': 'LSTM', 'input_size': 3, 'hidden_size': 4, 'num_layers': 2, 'no_bias': true, 'batch_first': true,"
    " 'dropout': 0.1, 'bidirectional': true}",
    "{'class': 'GRU', 'input_size': 3, 'hidden_size': 4, 'num_layers': 2, 'no_bias': true, 'batch_first': true,"
    " 'dropout': 0.1, 'bidirectional': true}",
    "{'class': 'LSTMCell', 'input_size': 3, 'hidden_size': 4, 'no_bias': true}",
    "{'class': 'GRUCell', 'input_size': 3, 'hidden_size': 4, 'no_bias': true}",
    "{'class': 'BatchNorm2d', 'num_features': 3, 'eps': 0.001, 'momentum': 0, 'no_affine': true, 'relu': true,"
    " 'cumulative': true, 'no_track_running_stats': true}",
    "{'class': 'GroupNorm', 'num_groups': 2, 'num_channels': 4, 'eps': 0.1, 'no_affine': true}",
    "{'class': 'LayerNorm', 'normalized_shape': [3, 4], 'eps': 0.1, 'no_affine': true}",
    "{'class': 'InstanceNorm2d', 'num_features': 3, 'eps': 1e-06, 'affine': true}",
    "{'class': 'MaxPool2d', 'kernel_size': [3, 2], 'stride': [1, 2], 'padding': 1, 'ceil_mode': true, 'dilation': 2}",
    "{'class': 'AvgPool2d', 'kernel_size': 3, 'stride': 1, 'padding': [1, 0], 'ceil_mode': true, 'exclude_pad': true}",
    "{'class': 'AdaptiveAvgPool2d', 'output_size': [2, 3]}",
    "{'class': 'GlobalAvgPool2d'}",
    "{'class': 'Upsample', 'size': [4, 6], 'mode': 'bilinear', 'align_corners': true}",
    "{'class': 'Upsample', 'scale_factor': 2.5}",
    "{'class': 'PixelShuffle', 'upscale_factor': 2}",
    "{'class': 'PixelUnshuffle', 'downscale_factor': 2}",
    "{'class': 'ResidualBlock', 'named': {'body': {'class': 'ReLU'}, 'shortcut': {'class': 'Tanh'}}}",
    "{'class': 'StochasticResidual', 'named': {'body': {'class': 'ReLU'}}, 'drop_rate': 0.25, 'by_sample': true, "
    "'held_back': 0.5}",
    "{'class': 'Factorized', 'modules': [{'class': 'Linear', 'in_features': 3, 'out_features': 2}], 'error': 0.125}",
    "{'class': 'LowRankAdapter', 'named': {'base_layer': {'class': 'ReLU'}}, 'scale': 2, 'merged': true}",
    "{'class': 'BlurConv2d', 'named': {'conv': {'class': 'Conv2d', 'in_channels': 1, 'out_channels': 2, 'kernel_size': "
    "3}}, 'conv_first': true, 'stride': 2}",
    "{'class': 'BlurMaxPool2d', 'kernel_size': 3, 'stride': [1, 2], 'padding': 1, 'dilation': 2}",
    "{'class': 'SqueezeExcite2d', 'num_features': 4, 'latent_channels': 2, 'gain': 2}",
    "{'class': 'SqueezeExciteConv2d', 'named': {'conv': {'class': 'ReLU'}}}",
    "{'class': 'ConvReLU2d', 'in_channels': 1, 'out_channels': 2, 'kernel_size': 3, 'padding': 1}",
    "{'class': 'LowPrecisionLayerNorm', 'normalized_shape': [3, 4], 'eps': 0.1, 'no_affine': true}",
    "{'class': 'LowPrecisionGroupNorm', 'num_groups': 2, 'num_channels': 4, 'eps': 0.1, 'no_affine': true}",
    "{'class': 'ALiBiAttention', 'embed_dim': 6, 'num_heads': 3, 'batch_first': true, 'is_causal': true}",
    "{'class': 'ParallelLinear', 'in_features': 3, 'out_features': 5, 'no_bias': true, 'n_parts': 2}",
    "{'class': 'LinearPart', 'named': {'linear': {'class': 'ParallelLinear', 'in_features': 3, 'out_features': 5,"
    " 'n_parts': 1}}, 'first': 1, 'out_features': 2}",
    "{'class': 'GhostBatchNorm2d', 'named': {'norm': {'class': 'BatchNorm2d', 'num_features': 3}}, "
    "'ghost_batch_size': 4}",
    "{'class': 'WeightStandardizedConv2d', 'in_channels': 2, 'out_channels': 4, 'kernel_size': 3, 'no_bias': true}",
    "{'class': 'GatedLinearUnit', 'named': {'linear': {'class': 'ReLU'}, 'gate': {'class': 'Tanh'}}}",
    "{'class': 'ReLU'}",
    "{'class': 'ReLU6'}",
    "{'class': 'Sigmoid'}",
    "{'class': 'Tanh'}",
    "{'class': 'GELU'}",
    "{'class': 'SiLU'}",
    "{'class': 'Hardswish'}",
    "{'class': 'Hardsigmoid'}",
    "{'class': 'Mish'}",
    "{'class': 'Identity'}",
    "{'class': 'LeakyReLU', 'negative_slope': 0}",
    "{'class': 'ELU', 'alpha': 0.5}",
    "{'class': 'Softplus', 'beta': 2, 'threshold': 10}",
    "{'class': 'PReLU', 'num_parameters': 3, 'init': 0.5}",
    "{'class': 'Softmax', 'dim': -1}",
    "{'class': 'LogSoftmax', 'dim': 1}",
    "{'class': 'Dropout', 'p': 0.5}",
    "{'class': 'DropPath', 'p': 0.2}",
    "{'class': 'Flatten', 'start_dim': 2, 'end_dim': 3}",
    "{'class': 'LayerChoice', 'named': {'b': {'class': 'ReLU'}, 'a': {'class': 'Identity'}}, 'key': 'op',"
    " 'reduction': 'mean', 'return_mask': true, 'fixed': '[0, 1]'}",
    "{'class': 'LayerChoice', 'modules': [{'class': 'ReLU'}, {'class': 'Identity'}], 'key': 'op'}",
    "{'class': 'InputChoice', 'n_candidates': 2, 'choose_from': ['x', ''], 'n_chosen': 1, 'key': 'in',"
    " 'reduction': 'concat', 'return_mask': true, 'fixed': '0'}",
    "{'class': 'Cell', 'index': 2, 'channels': 4, 'drop_path': 0.5}",
    "{'class': 'DartsNetwork', 'in_channels': 3, 'classes': 5, 'channels': 4, 'layers': 2, 'drop_path': 0.5}",
    "{'class': 'DartsCell', 'n_nodes': 3, 'channels_pp': 4, 'channels_p': 8, 'channels': 4, 'reduction_p': true, "
    "'reduction': true,"
    " 'drop_path': 0.5}",
    "{'class': 'FactorizedReduce', 'in_channels': 3, 'out_channels': 5}",
    "{'class': 'FactorizedReduce', 'in_channels': 3, 'out_channels': 5, 'no_relu': true, 'affine': true,"
    " 'momentum': 0.5, 'no_track_running_stats': true}",
    "{'class': 'MLPLayer', 'index': 1, 'width': 8, 'drop_path': 0.5}",
    "{'class': 'ENASMacroGeneralModel', 'num_layers': 3, 'out_filters': 4, 'in_channels': 1, 'num_classes': 5,"
    " 'dropout_rate': 0.25, 'drop_path': 0.5}",
    "{'class': 'ENASMacroLayer', 'key': 'layer', 'index': 2, 'filters': 4, 'drop_path': 0.5}",
    "{'class': 'ENASMicroNetwork', 'in_channels': 3, 'classes': 5, 'channels': 4, 'layers': 3, 'drop_path': 0.5}",
    "{'class': 'ENASMicroLayer', 'num_nodes': 2, 'in_channels_pp': 4, 'in_channels_p': 6, 'out_channels': 8,"
    " 'reduction': true, 'drop_path': 0.5}",
    "{'class': 'ENASNode', 'key': 'node', 'index': 1, 'channels': 4, 'reduction': true, 'drop_path': 0.5}",
    "{'class': 'NASBench101', 'in_channels': 1, 'num_classes': 5, 'channels': 4, 'cells': 1,"
    " 'fixed': '{`input1`: 0}', 'drop_path': 0.5}",
    "{'class': 'NASBench101Cell', 'in_channels': 4, 'out_channels': 8, 'drop_path': 0.5}",
    "{'class': 'NASBench101Cell', 'in_channels': 4, 'out_channels': 8, 'fixed': '{`input1`: 0}'}",
    "{'class': 'ConvNormReLU', 'in_channels': 4, 'out_channels': 8, 'kernel_size': 3}",
    "{'class': 'NASBench201Cell', 'cell_id': 'first', 'C_in': 4, 'C_out': 8, 'stride': 2, 'no_bn_affine': true,"
    " 'bn_momentum': 0.5, 'no_bn_track_running_stats': true, 'drop_path': 0.5}",
    "{'class': 'ReductionBlock', 'channels': 4}",
    "{'class': 'Zero', 'channels': 4, 'stride': 2}",
    "{'class': 'NoBranch'}",
    "{'class': 'Residual', 'named': {'conv': {'class': 'ReLU'}}, 'drop_path': 0.5}",
    "{'class': 'ShuffleNetBlock', 'in_channels': 4, 'out_channels': 8, 'kernel_size': 5, 'stride': 2,"
    " 'xception': true, 'drop_path': 0.5}",
    "{'class': 'TextNetwork', 'features': 1, 'classes': 3, 'channels': 4, 'layers': 2, 'vocabulary': 9,"
    " 'drop_path': 0.5}",
    "{'class': 'TextLayer', 'key': 'layer', 'index': 2, 'channels': 4, 'drop_path': 0.5}",
    "{'class': 'OverPositions', 'channels': 4, 'attention': true}",
};
enum { N_ROWS = sizeof rows / sizeof *rows };

#endif
