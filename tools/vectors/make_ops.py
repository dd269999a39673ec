#!/usr/bin/python3
"""Writes tests/vectors/ops.json: what PyTorch computes for operations that are more than one kernel, or that only say
which elements go where. Read make_kernels.py first: format and use are the same.

    /usr/bin/python3 tools/vectors/make_ops.py
"""
import sys

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
from make_kernels import File, backward, values

END = 2 ** 63 - 1  # "to the end" of a slice


def reductions(out):
    for shape, dims, keepdim in [((2, 3, 4, 5), [], False), ((2, 3, 4, 5), [2, -1], False), ((2, 24, 3, 2), [1], True),
                                 ((3, 1, 5), [0, 2], False), ((7,), [-1], True), ((2, 36, 1, 1), [3, 2], False)]:
        # of an empty list PyTorch 1.13 makes the mean over everything, but amax has to be told
        named = dims or list(range(len(shape)))
        for name, function in [("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)]:
            x = values(*shape)
            if name == "max":  # no ties: amax shares the gradient among equal maxima
                x = (torch.randperm(x.numel()).double().reshape(shape) / 16).requires_grad_()
            y = function(x, named, keepdim=keepdim)
            out.add(name, "%s over %s%s" % (shape, dims, " kept" if keepdim else ""),
                    dict(dims=dims, keepdim=keepdim), x=x, **backward(y, x=x))


def shapes(out):
    for shape, to in [((2, 3, 4, 5), [2, -1]), ((2, 60), [2, 3, 4, 5]), ((2, 3, 4, 6), [3, 4, 2, 6]), ((6, 4), [2, 3, 4]),
                      ((2, 3, 1, 1), [2, 3]), ((1, 1), []), ((), [1, 1, 1]), ((2, 6, 3, 2), [2, 3, 2, 3, 2]),
                      ((4, 3, 2, 2), [-1, 2])]:
        x = values(*shape)
        out.add("reshape", "%s to %s" % (shape, to), dict(shape=to), x=x, **backward(x.reshape(to), x=x))
    for shape, start, end in [((2, 3, 4, 5), 1, -1), ((2, 3, 4, 5), 0, -1), ((2, 3, 4, 5), 1, 2), ((2, 3, 4), 2, 2)]:
        x = values(*shape)
        out.add("flatten", "%s %d to %d" % (shape, start, end), dict(start=start, end=end), x=x,
                **backward(x.flatten(start, end), x=x))
    for shape, order in [((2, 3, 4, 5), [0, 2, 3, 1]), ((2, 3, 4, 5), [3, -3, 0, 2]), ((3, 4), [1, 0]), ((5,), [0])]:
        x = values(*shape)
        out.add("permute", "%s by %s" % (shape, order), dict(order=order), x=x, **backward(x.permute(order), x=x))
    for shape, dim, start, stop, step in [((2, 7, 3, 2), 1, 1, -1, 2), ((2, 3, 4, 5), -1, -3, END, 1),
                                          ((9,), 0, 0, END, 4), ((2, 3, 4, 5), 2, 1, 3, 1), ((3, 4), 0, 2, 3, 5)]:
        x = values(*shape)
        index = [slice(None)] * len(shape)
        index[dim] = slice(start, stop, step)
        out.add("slice", "%s %d %d:%d:%d" % (shape, dim, start, stop, step),
                dict(dim=dim, start=start, stop=stop, step=step), x=x, **backward(x[tuple(index)], x=x))
    for shape, size, dim in [((2, 7, 3, 2), 3, 1), ((5, 4), 2, 0), ((2, 6), 2, -1)]:
        x = values(*shape)
        pieces = x.split(size, dim)
        y = torch.cat(pieces[::-1], dim)
        out.add("split", "%s by %d along %d, reversed" % (shape, size, dim), dict(size=size, dim=dim, n=len(pieces)), x=x,
                **backward(y, x=x))
    for all_shapes, dim in [(((2, 1, 3, 2), (2, 3, 3, 2), (2, 24, 3, 2)), 1), (((2, 3), (1, 3)), 0),
                            (((2, 3, 2, 4), (2, 3, 2, 1)), -1)]:
        inputs = {"x%d" % i: values(*shape) for i, shape in enumerate(all_shapes)}
        out.add("concat", "%s along %d" % (all_shapes, dim), dict(dim=dim, n=len(all_shapes)), **inputs,
                **backward(torch.cat(list(inputs.values()), dim), **inputs))
    for shape, pads, value in [((2, 3, 4, 3), [1, 2, 0, 1], 0.5), ((2, 3, 4, 5), [-1, -2, 1, -1], 0), ((5,), [0, 3], -1),
                               ((2, 3, 4), [1, 0, -1, 2, 1, 1], 2), ((3, 24, 2, 2), [0, 0, 0, 0, 1, 1], 0)]:
        x = values(*shape)
        out.add("pad", "%s %s" % (shape, pads), dict(pads=pads, value=value), x=x,
                **backward(F.pad(x, pads, value=value), x=x))


def losses(out):
    for n, c in [(5, 10), (2, 3), (1, 24)]:
        for reduction in ("mean", "sum", "none"):
            for soft, smoothing in [(False, 0), (False, 0.1), (True, 0), (True, 0.2)]:
                x = values(n, c, low=-64, high=64)
                target = values(n, c, low=0, high=16).detach() if soft else torch.randint(0, c, (n,))
                y = F.cross_entropy(x, target, reduction=reduction, label_smoothing=smoothing)
                out.add("cross_entropy", "%dx%d %s smoothing %g%s" % (n, c, reduction, smoothing, " soft" if soft else ""),
                        dict(smoothing=smoothing, reduction=["mean", "sum", "none"].index(reduction)), x=x,
                        target=target, **backward(y, x=x))
    for shape in [(2, 3, 4, 5), (7,), (3, 1)]:
        a, b = values(*shape), values(*shape)
        out.add("mse_loss", str(shape), {}, a=a, b=b, **backward(F.mse_loss(a, b), a=a, b=b))


def linear(out):
    for shape, cout in [((7,), 3), ((2, 3, 5), 4), ((2, 3, 4, 5), 6), ((2, 1, 24), 1)]:
        inputs = dict(x=values(*shape), w=values(cout, shape[-1]), b=values(cout))
        out.add("linear", "%s to %d" % (shape, cout), {}, **inputs, **backward(F.linear(*inputs.values()), **inputs))


if __name__ == "__main__":
    ops = File("ops")
    for family in (reductions, shapes, losses, linear):
        family(ops)
    ops.write()
