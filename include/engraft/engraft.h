/** @file
 * engraft/engraft.h - all of engraft: neural architecture search and model surgery in C.
 *
 * C; from C++, call the `_with` functions, and eg_module_new() and eg_module_call() with structs and arrays. The macros
 * that take arguments by name or in lists (eg_context_new(.seed = 1), eg_conv2d(ctx, 1, 16, 3), eg_call(m, x),
 * EG_SHAPE(..), EG_MODULES(..), EG_F64(..)) make compound literals, which C++ does not have:
 *
 *     eg_context_options options{};
 *     options.struct_size = sizeof options;
 *     eg_context *ctx = eg_context_new_with(&options);
 *     struct eg_conv2d c{};
 *     c.base.ctx = ctx;
 *     c.in_channels = 1, c.out_channels = 16, c.kernel_size = 3;
 *     eg_module *conv = eg_module_new(&eg_conv2d_class, sizeof c, &c);
 *     eg_tensor *y = eg_module_call(conv, &x, 1);
 */
#ifndef ENGRAFT_ENGRAFT_H
#define ENGRAFT_ENGRAFT_H

#include "autograd.h"
#include "base.h"
#include "data.h"
#include "io.h"
#include "layers.h"
#include "methods.h"
#include "nas.h"
#include "nn.h"
#include "ops.h"
#include "optim.h"
#include "surgery.h"
#include "surgery_report.h"
#include "tensor.h"
#include "train.h"
#include "zoo.h"

#endif
