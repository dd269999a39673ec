#!/usr/bin/python3
"""Writes tests/vectors/functions.json: what PyTorch computes for functions of one number, comparisons, indexing and the
losses made of them. Read make_kernels.py first: format and use are the same.

    /usr/bin/python3 tools/vectors/make_functions.py
"""
import sys

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
from make_kernels import File, backward, values


def functions(out):
    for name, function, a, b, low in [
            ("elu", lambda x: F.elu(x, 0.75), 0.75, 0, -64), ("softplus", lambda x: F.softplus(x, 1, 20), 1, 20, -64),
            ("softplus", lambda x: F.softplus(x, 2, 1.5), 2, 1.5, -64), ("mish", F.mish, 0, 0, -64),
            ("exp", torch.exp, 0, 0, -64), ("ln", torch.log, 0, 0, 1), ("sqrt", torch.sqrt, 0, 0, 1),
            ("abs", torch.abs, 0, 0, -64), ("neg", torch.neg, 0, 0, -64), ("pow", lambda x: x ** 2, 2, 0, -64),
            ("pow", lambda x: x ** 0.5, 0.5, 0, 1), ("pow", lambda x: x ** -1, -1, 0, 1),
            ("pow", lambda x: x ** 3, 3, 0, -64), ("pow", lambda x: x ** -0.75, -0.75, 0, 4),
            ("pow", lambda x: x ** 0, 0, 0, -64), ("clamp", lambda x: x.clamp(-1, 1.5), -1, 1.5, -64)]:
        x = values(2, 3, 3, 2, low=low, high=64)
        out.add("function", name, dict(a=a, b=b), x=x, **backward(function(x), x=x))
    for shape, n in [((2, 3, 3, 2), 3), ((2, 3, 3, 2), 1), ((4, 24), 24), ((5,), 1)]:
        x, weight = values(*shape), values(n)
        out.add("prelu", "%s by %d" % (shape, n), {}, x=x, weight=weight,
                **backward(F.prelu(x, weight), x=x, weight=weight))


def comparisons(out):
    for shape_a, shape_b in [((2, 3, 3, 2), (2, 3, 3, 2)), ((2, 3, 3, 2), (3, 1, 1)), ((1, 24), (3, 1)), ((), (5,))]:
        for name, function in [("maximum", torch.maximum), ("minimum", torch.minimum)]:
            a, b = values(*shape_a, low=-6, high=6), values(*shape_b, low=-6, high=6)
            out.add("extreme", name, {}, a=a, b=b, **backward(function(a, b), a=a, b=b))
        for name, function in [("gt", torch.gt), ("lt", torch.lt), ("eq", torch.eq)]:
            p, q = values(*shape_a, low=-3, high=3).detach(), values(*shape_b, low=-3, high=3).detach()
            a, b = values(*shape_a), values(*shape_b)
            out.add("where", name, {}, p=p, q=q, a=a, b=b, **backward(torch.where(function(p, q), a, b), a=a, b=b))


def indexing(out):
    for shape, dim, n in [((2, 5, 4, 3), 1, 7), ((6, 9), 0, 4), ((6, 9), -1, 12), ((5,), 0, 8), ((2, 3, 4), 2, 1)]:
        size, to = shape[dim], list(shape)
        to[dim] = n
        for name, sizes in [("whole", to), ("corner", [max(1, s - 1) if s != n else s for s in to])]:
            x, index = values(*shape), torch.randint(0, size, sizes)
            out.add("gather", "%s of %s" % (name, shape), dict(dim=dim), x=x, index=index,
                    **backward(x.gather(dim, index), x=x))
        x, index = values(*shape), torch.randint(0, size, (n,))
        out.add("index_select", "%s along %d" % (shape, dim), dict(dim=dim), x=x, index=index,
                **backward(x.index_select(dim, index), x=x))
        x = values(*shape)
        out.add("cumsum", "%s along %d" % (shape, dim), dict(dim=dim), x=x, **backward(x.cumsum(dim), x=x))
        for largest in (True, False):
            # different numbers: PyTorch does not say which of equal ones come first
            x = (torch.randperm(torch.Size(shape).numel()).double().reshape(shape) / 16).requires_grad_()
            k = min(3, size)
            y, index = x.topk(k, dim, largest=largest)
            out.add("topk", "%s along %d" % (shape, dim), dict(dim=dim, k=k, largest=largest), x=x, position=index,
                    **backward(y, x=x))
            if largest:
                out.add("topk", "argmax of %s along %d" % (shape, dim), dict(dim=dim, k=1, largest=True), x=x,
                        position=x.argmax(dim, keepdim=True), **backward(x.max(dim, keepdim=True)[0], x=x))


def losses(out):
    for i, reduction in enumerate(("mean", "sum", "none", "batchmean")):
        for shape in [(2, 3, 2, 2), (5,), (4, 3)]:
            def add(loss, name, params, y, **inputs):
                out.add(loss, "%s %s %s" % (name, shape, reduction), dict(params, reduction=i), **inputs,
                        **backward(y, **{k: v for k, v in inputs.items() if v.requires_grad}))
            a, b, positive = values(*shape, low=-48, high=48), values(*shape), values(*shape, low=1, high=16)
            add("kl_div", "probabilities", dict(log_target=False), F.kl_div(a, positive, reduction=reduction), a=a,
                b=positive)
            add("kl_div", "logarithms", dict(log_target=True), F.kl_div(a, b, reduction=reduction, log_target=True), a=a,
                b=b)
            if reduction == "batchmean":
                continue
            add("l1_loss", "", {}, F.l1_loss(a, b, reduction=reduction), a=a, b=b)
            for beta in (1, 0.5):
                add("smooth_l1_loss", "beta %g" % beta, dict(beta=beta),
                    F.smooth_l1_loss(a, b, reduction=reduction, beta=beta), a=a, b=b)
            share = values(*shape, low=0, high=16).detach()
            add("bce", "", {}, F.binary_cross_entropy_with_logits(a, share, reduction=reduction), x=a, target=share)
            weight = values(shape[-1], low=1, high=32).detach()
            add("bce", "weighted", {}, F.binary_cross_entropy_with_logits(a, share, pos_weight=weight,
                                                                          reduction=reduction),
                x=a, target=share, weight=weight)
            if len(shape) > 1:
                c = shape[1]
                target, weight = torch.randint(0, c, (shape[0],) + shape[2:]), values(c, low=1, high=32).detach()
                add("nll_loss", "", {}, F.nll_loss(a, target, reduction=reduction), x=a, target=target)
                add("nll_loss", "weighted", {}, F.nll_loss(a, target, weight, reduction=reduction), x=a, target=target,
                    weight=weight)


if __name__ == "__main__":
    everything = File("functions")
    for family in (functions, comparisons, indexing, losses):
        family(everything)
    everything.write()
