#!/usr/bin/python3
"""Writes tests/vectors/layers.json: what PyTorch computes for further convolutions and normalizations, for images in
another size, and for normalized parameters. Read make_kernels.py first: format and use are the same.

    /usr/bin/python3 tools/vectors/make_layers.py
"""
import sys

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
from make_kernels import File, backward, pair, values


def convolutions(out):
    for n, cin, length, cout, k, s, p, d, g, bias in [(2, 3, 9, 4, 3, 1, 1, 1, 1, True), (1, 1, 1, 1, 1, 1, 0, 1, 1, False),
                                                      (2, 24, 8, 24, 3, 2, 2, 2, 24, True),
                                                      (3, 6, 7, 9, 2, 3, 0, 1, 3, False)]:
        inputs = dict(x=values(n, cin, length), w=values(cout, cin // g, k))
        if bias:
            inputs["b"] = values(cout)
        y = F.conv1d(inputs["x"], inputs["w"], inputs.get("b"), s, p, d, g)
        out.add("conv1d", "%d to %d, length %d, kernel %d" % (cin, cout, length, k),
                dict(stride=s, padding=p, dilation=d, groups=g), **inputs, **backward(y, **inputs))
    # name, N, in, H, W, out, kernel, stride, padding, output padding, dilation, groups, bias
    for name, n, cin, h, w, cout, k, s, p, o, d, g, bias in [
            ("one pixel", 2, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, True),
            ("3x3", 2, 3, 4, 5, 4, 3, 1, 1, 0, 1, 1, True),
            ("doubling", 2, 24, 3, 4, 5, 3, 2, 1, 1, 1, 1, True),
            ("2x2 stride 2", 1, 6, 3, 3, 24, 2, 2, 0, 0, 1, 1, False),
            ("pointwise stride 3", 2, 5, 2, 3, 3, 1, 3, 0, 2, 1, 1, True),
            ("groups", 2, 6, 3, 4, 9, 3, 2, 1, 0, 1, 3, True),
            ("depthwise", 1, 24, 4, 3, 24, 3, 2, 1, 1, 1, 24, False),
            ("dilated", 1, 3, 4, 3, 2, 3, 1, 2, 0, 2, 1, True),
            ("output padding beyond the stride", 2, 3, 3, 4, 2, 3, 1, 1, 2, 3, 1, True),
            ("asymmetric", 1, 4, 3, 5, 6, (3, 2), (2, 1), (1, 0), (1, 0), (1, 2), 2, True)]:
        inputs = dict(x=values(n, cin, h, w), w=values(cin, cout // g, *pair(k)))
        if bias:
            inputs["b"] = values(cout)
        y = F.conv_transpose2d(inputs["x"], inputs["w"], inputs.get("b"), s, p, o, g, d)
        params = dict(stride=pair(s), padding=pair(p), output_padding=pair(o), dilation=pair(d), groups=g)
        out.add("conv_transpose2d", name, params, **inputs, **backward(y, **inputs))


def normalizations(out):
    for shape, groups, affine in [((2, 6, 3, 4), 2, True), ((1, 24, 5, 3), 1, True), ((3, 5, 2, 2), 5, False),
                                  ((4, 12), 3, True), ((2, 6, 7), 3, True), ((2, 4, 2, 3, 2), 2, True)]:
        inputs = dict(x=values(*shape))
        if affine:
            inputs.update(w=values(shape[1]), b=values(shape[1]))
        y = F.group_norm(inputs["x"], groups, inputs.get("w"), inputs.get("b"), 1e-3)
        out.add("group_norm", "%s in %d groups" % (shape, groups), dict(groups=groups), **inputs, **backward(y, **inputs))
    for shape, affine in [((2, 24, 3, 3), True), ((3, 2, 5), False)]:
        inputs = dict(x=values(*shape))
        if affine:
            inputs.update(w=values(shape[1]), b=values(shape[1]))
        y = F.instance_norm(inputs["x"], None, None, inputs.get("w"), inputs.get("b"), True, 0.1, 1e-3)
        out.add("instance_norm", str(shape), {}, **inputs, **backward(y, **inputs))
    for shape, dims, affine in [((5, 24), 1, True), ((2, 3, 7), 1, False), ((2, 3, 4, 5), 3, True), ((2, 3, 4, 5), 1, True),
                                ((2, 3, 2), 2, True)]:
        last = shape[-dims:]
        inputs = dict(x=values(*shape))
        if affine:
            inputs.update(w=values(*last), b=values(*last))
        y = F.layer_norm(inputs["x"], last, inputs.get("w"), inputs.get("b"), 1e-3)
        out.add("layer_norm", "%s over %d" % (shape, dims), dict(shape=last), **inputs, **backward(y, **inputs))


def sizes(out):
    # of a contiguous input: in another memory order PyTorch 1.13 rounds otherwise
    for shape, size, scale, mode, corners in [
            ((2, 3, 3, 4), None, 2, "nearest", None), ((1, 5, 7, 5), (3, 4), None, "nearest", None),
            ((2, 1, 5, 7), None, 1.3, "nearest", None), ((1, 2, 9, 4), None, 0.7, "nearest", None),
            ((1, 3, 4, 10), (11, 23), None, "nearest", None), ((2, 24, 3, 4), None, 2, "bilinear", False),
            ((2, 3, 9, 8), (4, 3), None, "bilinear", False), ((2, 3, 4, 5), (7, 9), None, "bilinear", True),
            ((2, 5, 1, 1), (3, 1), None, "bilinear", True), ((1, 2, 6, 7), None, 0.6, "bilinear", False),
            ((1, 2, 5, 3), None, 1.7, "bilinear", False), ((1, 2, 5, 3), None, 1.7, "bilinear", True)]:
        x = values(*shape)
        y = F.interpolate(x, size, scale, mode, corners)
        out.add("interpolate", "%s to %s %s %s" % (shape, size or scale, mode, corners),
                dict(size=list(size or (0, 0)), scale=scale or 0, bilinear=mode == "bilinear", corners=bool(corners)), x=x,
                **backward(y, x=x))
    for shape, r in [((2, 12, 3, 2), 2), ((1, 9, 2, 2), 3), ((2, 3, 1, 4), 1)]:
        x = values(*shape)
        out.add("pixel_shuffle", "%s by %d" % (shape, r), dict(factor=r), x=x, **backward(F.pixel_shuffle(x, r), x=x))
    for shape, r in [((2, 3, 4, 6), 2), ((1, 1, 3, 6), 3)]:
        x = values(*shape)
        out.add("pixel_unshuffle", "%s by %d" % (shape, r), dict(factor=r), x=x, **backward(F.pixel_unshuffle(x, r), x=x))


def weights(out):
    for shape, dim in [((5, 3, 2, 2), 0), ((4, 7), 1), ((3, 4), -1), ((6,), 0)]:
        v = values(*shape)
        g = values(*([] if dim < 0 else [n if d == dim else 1 for d, n in enumerate(shape)]))
        out.add("weight_norm", "%s along %d" % (shape, dim), dict(dim=dim), v=v, g=g,
                **backward(torch._weight_norm(v, g, dim), v=v, g=g))
    # a layer with spectral normalization: outputs and gradients of two calls in training and one in evaluation
    for name, make, dim in [("conv", lambda: torch.nn.Conv2d(3, 4, 2), 0),
                            ("transposed", lambda: torch.nn.ConvTranspose2d(3, 4, 2), 1)]:
        layer = make().double()
        w, b, x = values(*layer.weight.shape), values(4), values(2, 3, 3, 3)
        layer.weight.data.copy_(w.detach())
        layer.bias.data.copy_(b.detach())
        layer = torch.nn.utils.spectral_norm(layer, n_power_iterations=2)
        u, v = layer.weight_u.clone(), layer.weight_v.clone()
        first, second = layer(x), layer(x)
        after = dict(u_after=layer.weight_u, v_after=layer.weight_v)
        inputs = dict(x=x, w=layer.weight_orig, b=layer.bias)
        out.add("spectral_norm", name, dict(dim=dim), u=u, v=v, first=first, last=layer.eval()(x), **after, **inputs,
                **backward(second, **inputs))


if __name__ == "__main__":
    layers = File("layers")
    for family in (convolutions, normalizations, sizes, weights):
        family(layers)
    layers.write()
