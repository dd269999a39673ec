#!/usr/bin/python3
"""Writes tests/vectors/*.json: what PyTorch computes for every kernel, forward and backward, in float64.

Regenerate with

    /usr/bin/python3 tools/vectors/make_kernels.py

(Debian: apt-get install python3-torch; version 1.13 made the committed files. Nothing else needs PyTorch.)

A file is a JSON array of cases {"op", "name", "params", "tensors"}; a tensor is {"shape", "data"} in logical
row-major order, with "unit" where the data are whole multiples of it. Inputs are multiples of 1/16, exact in float32
and often equal to each other, so that ties between maxima are tested as well. Gradients are named d<input> and belong
to the output gradient dy. tests/vectors.h reads the files.
"""
import json
import os

import torch
import torch.nn.functional as F

UNIT = 1 / 16
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "vectors")

torch.manual_seed(1)
torch.set_num_threads(1)


def values(*shape, low=-24, high=24):
    """Random multiples of UNIT, requiring gradients."""
    return (torch.randint(low, high + 1, shape).double() * UNIT).requires_grad_()


def number(v):
    text = "0" if abs(v) < 1e-13 else "%.10g" % v
    return text[:-2] if text.endswith(".0") else text


def tensor_text(t):
    t = t.detach()
    data = t.reshape(-1).tolist()
    head = '{"shape":%s' % json.dumps(list(t.shape), separators=(",", ":"))
    if t.dtype == torch.int64:
        return head + ',"data":[%s]}' % ",".join(str(v) for v in data)
    if all(float(v / UNIT).is_integer() for v in data):
        return head + ',"unit":%s,"data":[%s]}' % (UNIT, ",".join("%d" % (v / UNIT) for v in data))
    return head + ',"data":[%s]}' % ",".join(number(v) for v in data)


class File:
    """The cases of one family."""

    def __init__(self, name):
        self.name, self.cases = name, []

    def add(self, op, name, params, **tensors):
        tensors = ",".join('\n  "%s":%s' % (k, tensor_text(v)) for k, v in tensors.items())
        self.cases.append('{"op":"%s","name":"%s","params":%s,"tensors":{%s}}'
                          % (op, name, json.dumps(params, sort_keys=True), tensors))

    def write(self):
        with open(os.path.join(ROOT, self.name + ".json"), "w", encoding="ascii") as out:
            out.write("[\n" + ",\n".join(self.cases) + "\n]\n")


def backward(y, **inputs):
    """A random dy and the gradients of the inputs, as keyword arguments for File.add()."""
    dy = values(*y.shape).detach()
    grads = torch.autograd.grad(y, list(inputs.values()), dy)
    return dict(y=y, dy=dy, **{"d" + k: g for k, g in zip(inputs, grads)})


def pair(v):
    return list(v) if isinstance(v, (tuple, list)) else [v, v]


def conv():
    out = File("conv")
    # name, N, in, H, W, out, kernel, stride, padding, dilation, groups, bias
    for (name, n, cin, h, w, cout, k, s, p, d, g, bias) in [
            ("one pixel", 2, 1, 1, 1, 1, 1, 1, 0, 1, 1, True),
            ("pointwise 1 to 3", 3, 1, 3, 2, 3, 1, 1, 0, 1, 1, False),
            ("pointwise 24 to 36", 1, 24, 3, 4, 36, 1, 1, 0, 1, 1, False),
            ("pointwise 36 to 24, stride 2", 2, 36, 4, 3, 24, 1, 2, 0, 1, 1, True),
            ("3x3", 2, 3, 7, 5, 4, 3, 1, 1, 1, 1, True),
            ("3x3 stride 2", 2, 3, 7, 6, 4, 3, 2, 1, 1, 1, False),
            ("3x3 dilation 2", 1, 3, 7, 6, 5, 3, 1, 2, 2, 1, False),
            ("3x3 24 to 3", 1, 24, 3, 5, 3, 3, 1, 1, 1, 1, True),
            ("3x3 no padding", 1, 1, 5, 5, 3, 3, 1, 0, 1, 1, True),
            ("2x2 stride 3, unread inputs", 1, 2, 6, 7, 3, 2, 3, 0, 1, 1, False),
            ("7x7 stride 2", 1, 3, 9, 8, 2, 7, 2, 3, 1, 1, False),
            ("asymmetric", 2, 6, 6, 8, 9, (3, 2), (2, 1), (1, 0), (1, 2), 3, True),
            ("1x7", 1, 3, 3, 8, 3, (1, 7), 1, (0, 3), 1, 1, False),
            ("groups of 12", 1, 24, 3, 3, 36, 1, 1, 0, 1, 12, False),
            ("depthwise 3x3", 2, 24, 5, 4, 24, 3, 1, 1, 1, 24, False),
            ("depthwise 3x3 stride 2", 1, 36, 6, 5, 36, 3, 2, 1, 1, 36, True),
            ("depthwise 5x5 dilation 2", 1, 3, 9, 7, 3, 5, 1, 4, 2, 3, False),
            ("depthwise with multiplier 2", 2, 3, 5, 5, 6, 3, 1, 1, 1, 3, True)]:
        x, weight = values(n, cin, h, w), values(cout, cin // g, *pair(k))
        inputs = dict(x=x, w=weight)
        if bias:
            inputs["b"] = values(cout)
        y = F.conv2d(x, weight, inputs.get("b"), s, p, d, g)
        params = dict(kernel=pair(k), stride=pair(s), padding=pair(p), dilation=pair(d), groups=g)
        out.add("conv2d", name, params, **inputs, **backward(y, **inputs))
    for m, k, n in [(1, 1, 1), (3, 5, 2), (24, 7, 3), (2, 36, 24)]:
        a, b = values(m, k), values(k, n)
        out.add("matmul", "%dx%d by %dx%d" % (m, k, k, n), {}, a=a, b=b, **backward(a @ b, a=a, b=b))
    for n, cin, cout, bias in [(2, 3, 1, True), (5, 24, 10, True), (1, 36, 3, False)]:
        inputs = dict(x=values(n, cin), w=values(cout, cin))
        if bias:
            inputs["b"] = values(cout)
        y = F.linear(inputs["x"], inputs["w"], inputs.get("b"))
        out.add("linear", "%d to %d" % (cin, cout), {}, **inputs, **backward(y, **inputs))
    out.write()


def norm():
    out = File("norm")
    for shape, affine, relu in [
            ((2, 1, 3, 3), True, False), ((3, 3, 5, 4), True, False), ((2, 24, 3, 2), True, False),
            ((2, 36, 2, 3), False, False), ((7, 3), True, False), ((4, 24), False, False),
            ((2, 3, 4, 5), True, True), ((2, 24, 3, 3), True, True), ((5, 3), False, True), ((3, 3, 7), True, True)]:
        for training in (True, False):
            c = shape[1]
            eps, momentum = 1e-5 if affine else 1e-3, 0.1
            normalized = torch.zeros(1)
            while normalized.abs().min() < 1e-3:  # rounding must not carry a value over ReLU's kink
                x = values(*shape)
                inputs = dict(x=x)
                if affine:
                    inputs.update(gamma=values(c), beta=values(c))
                mean, var = values(c).detach(), values(c, low=4, high=40).detach()
                after = dict(running_mean_after=mean.clone(), running_var_after=var.clone())
                normalized = F.batch_norm(x, *after.values(), inputs.get("gamma"), inputs.get("beta"), training,
                                          momentum, eps)
            y = F.relu(normalized) if relu else normalized
            extra = dict(running_mean=mean, running_var=var)
            if training:
                dims = [0] + list(range(2, len(shape)))
                extra.update(after, mean=x.mean(dims), var=x.var(dims, unbiased=False))
            name = "%s%s%s%s" % ("x".join(map(str, shape)), " affine" if affine else "", " relu" if relu else "",
                                 " training" if training else "")
            out.add("batch_norm", name, dict(eps=eps, momentum=momentum, relu=relu, training=training), **inputs,
                    **extra, **backward(y, **inputs))
    out.write()


def pool():
    out = File("pool")
    # N, C, H, W, kernel, stride, padding, dilation, ceil
    for n, c, h, w, k, s, p, d, ceil in [
            (1, 1, 1, 1, 1, 1, 0, 1, False), (2, 3, 7, 5, 3, 1, 1, 1, False), (2, 3, 7, 6, 3, 2, 1, 1, False),
            (1, 24, 5, 4, 3, 2, 1, 1, True), (1, 36, 4, 4, 2, 2, 0, 1, False), (1, 3, 6, 7, 2, 3, 1, 1, True),
            (1, 1, 7, 9, 3, 1, 1, 2, False), (2, 1, 8, 7, (2, 3), (1, 2), (1, 0), (2, 1), True),
            (1, 3, 5, 5, 5, 5, 2, 1, True), (1, 24, 3, 3, 3, 1, 1, 1, False)]:
        params = dict(kernel=pair(k), stride=pair(s), padding=pair(p), dilation=pair(d), ceil_mode=ceil)
        x = values(n, c, h, w, low=-9, high=9)
        y, index = F.max_pool2d(x, k, s, p, d, ceil, return_indices=True)
        name = "%dx%dx%dx%d k%s s%s p%s d%s%s" % (n, c, h, w, k, s, p, d, " ceil" if ceil else "")
        out.add("max_pool2d", name, params, x=x, index=index, **backward(y, x=x))
        if pair(d) != [1, 1]:
            continue
        for exclude in (False, True):
            x = values(n, c, h, w)
            y = F.avg_pool2d(x, k, s, p, ceil, not exclude)
            out.add("avg_pool2d", name + (" exclude_pad" if exclude else ""), dict(params, exclude_pad=exclude), x=x,
                    **backward(y, x=x))
    for shape, size in [((1, 1, 1, 1), (1, 1)), ((2, 3, 5, 7), (1, 1)), ((2, 24, 4, 3), (1, 1)), ((1, 3, 5, 7), (3, 2)),
                        ((2, 1, 7, 3), (5, 3)), ((1, 3, 2, 3), (4, 5)), ((1, 36, 4, 6), (2, 3))]:
        x = values(*shape)
        y = F.adaptive_avg_pool2d(x, size)
        out.add("adaptive_avg_pool2d", "%s to %s" % (shape, size), {}, x=x, **backward(y, x=x))
    out.write()


def hardswish(x):
    """With the gradients of current PyTorch at -3 and 3 (pull request 148049); those of 1.13 depend on the CPU."""
    return torch.where(x <= -3, torch.zeros_like(x), torch.where(x < 3, x * (x + 3) / 6, x))


def hardsigmoid(x):
    """In full precision; the slope in PyTorch 1.13 is a float32 number."""
    return F.relu6(x + 3) / 6


def elementwise():
    out = File("elementwise")
    for name, function, a, b in [
            ("relu", F.relu, 0, 0), ("relu6", F.relu6, 0, 0),
            ("leaky_relu", lambda x: F.leaky_relu(x, 0.125), 0.125, 0), ("sigmoid", torch.sigmoid, 0, 0),
            ("tanh", torch.tanh, 0, 0), ("gelu", F.gelu, 0, 0), ("silu", F.silu, 0, 0),
            ("hardswish", hardswish, 0, 0), ("hardsigmoid", hardsigmoid, 0, 0),
            ("affine", lambda x: x * -1.5 + 0.25, -1.5, 0.25)]:
        # every kink (-3, 0, 3, 6) and its neighbours are among these
        x = torch.cat([torch.arange(-8, 8.25, 0.25), torch.tensor([-2.9375, -3.0625, 2.9375, 3.0625, 5.9375, 6.0625,
                                                                   -0.0625])]).double().reshape(2, 2, 2, 9)
        x.requires_grad_()
        out.add("unary", name, dict(a=a, b=b), x=x, **backward(function(x), x=x))
    for name, function in [("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div)]:
        for shape_a, shape_b in [((2, 3, 3, 2), (2, 3, 3, 2)), ((2, 3, 3, 2), (1, 3, 1, 1)), ((1, 24), (3, 1)),
                                 ((5,), (1,)), ((), ())]:
            a = values(*shape_a)
            b = values(*shape_b, low=1) if name == "div" else values(*shape_b)
            out.add("binary", name, {}, a=a, b=b, **backward(function(a, b), a=a, b=b))
    for n, shape in [(1, (3,)), (3, (2, 3, 3, 2)), (4, (1, 24, 2, 1))]:
        inputs = {"x%d" % i: values(*shape) for i in range(n)}
        w = values(n)
        y = sum(w[i] * x for i, x in enumerate(inputs.values()))
        out.add("weighted_sum", "%d of %s" % (n, shape), dict(n=n), **inputs, w=w, **backward(y, **inputs, w=w))
    out.write()


def reduce():
    out = File("reduce")
    for shape, dims in [((5,), (0,)), ((2, 3, 4, 5), (0, 1, 2, 3)), ((2, 3, 4, 5), (2, 3)), ((2, 24, 3, 1), (1,)),
                        ((3, 1, 4), (0, 2)), ((2, 36), (0,))]:
        x = values(*shape, low=-7, high=7)
        y = x.sum(dims, keepdim=True)
        out.add("sum", "%s over %s" % (shape, dims), dict(dims=list(dims)), x=x, **backward(y, x=x))
        # the gradient of the maximum goes to the first of equal ones, so it is made from the index
        keep = [d for d in range(len(shape)) if d not in dims]
        flat = x.detach().permute(keep + list(dims)).reshape([shape[d] for d in keep] + [-1])
        top = flat.max(-1, keepdim=True).values
        first = (flat == top).int().argmax(-1, keepdim=True)
        y = x.amax(dims, keepdim=True)
        dy = values(*y.shape).detach()
        spread = torch.zeros_like(flat).scatter_(-1, first, dy.reshape(first.shape))
        order = keep + list(dims)
        dx = spread.reshape([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
        out.add("max", "%s over %s" % (shape, dims), dict(dims=list(dims)), x=x, y=y, dy=dy, dx=dx.contiguous(),
                index=first.reshape(y.shape))
    for shape, dim in [((3, 1), 1), ((2, 3), 1), ((3, 24), 1), ((2, 3, 2, 3), 1), ((5, 2), 0), ((4,), 0),
                       ((2, 3, 36), 2)]:
        for name, function in [("softmax", F.softmax), ("log_softmax", F.log_softmax)]:
            x = values(*shape, low=-64, high=64)
            out.add(name, "%s along %d" % (shape, dim), dict(dim=dim), x=x, **backward(function(x, dim), x=x))
    for n, c in [(1, 1), (4, 3), (3, 10), (2, 36)]:
        for smoothing in (0, 0.1, 1):
            for soft in (False, True):
                x = values(n, c, low=-64, high=64)
                target = values(n, c, low=0, high=16).detach() if soft else torch.randint(0, c, (n,))
                y = F.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
                out.add("cross_entropy", "%dx%d smoothing %g%s" % (n, c, smoothing, " soft" if soft else ""),
                        dict(smoothing=smoothing), x=x, target=target, probability=F.softmax(x, 1),
                        **backward(y, x=x))
    out.write()


def optim():
    out = File("optim")
    steps = 5
    cases = [("sgd", dict(lr=0.1)),
             ("sgd", dict(lr=0.1, weight_decay=0.01)),
             ("sgd", dict(lr=0.1, momentum=0.9)),
             ("sgd", dict(lr=0.05, momentum=0.9, weight_decay=0.0003, nesterov=True)),
             ("sgd", dict(lr=0.1, momentum=0.5, dampening=0.25, weight_decay=0.01)),
             ("adam", dict(lr=0.01)),
             ("adam", dict(lr=0.01, betas=(0.5, 0.999), weight_decay=0.001)),
             ("adam", dict(lr=0.1, betas=(0.8, 0.9), eps=0.1)),
             ("adamw", dict(lr=0.01)),
             ("adamw", dict(lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1))]
    classes = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam, adamw=torch.optim.AdamW)
    for op, options in cases:
        p = values(3, 4)
        optimizer = classes[op]([p], **options)
        tensors = dict(p=p.detach().clone())
        for step in range(1, steps + 1):
            p.grad = values(3, 4).detach()
            tensors["grad%d" % step] = p.grad
            optimizer.step()
            tensors["p%d" % step] = p.detach().clone()
        params = {k: v for k, v in optimizer.defaults.items()
                  if k in ("lr", "momentum", "dampening", "weight_decay", "nesterov", "eps")}
        if op != "sgd":
            params["beta1"], params["beta2"] = optimizer.defaults["betas"]
        name = " ".join("%s %s" % (k, v) for k, v in options.items())
        out.add(op, name, dict(params, steps=steps), **tensors)
    for max_norm in (0.5, 100):
        grads = [values(3, 4).detach(), values(5).detach(), values().detach()]
        tensors = {"grad%d" % i: g.clone() for i, g in enumerate(grads)}
        holders = [torch.zeros_like(g, requires_grad=True) for g in grads]
        for holder, g in zip(holders, grads):
            holder.grad = g
        total = torch.nn.utils.clip_grad_norm_(holders, max_norm)
        tensors.update({"clipped%d" % i: h.grad for i, h in enumerate(holders)}, norm=total)
        out.add("clip_grad_norm", "to %g" % max_norm, dict(max_norm=max_norm, n=len(grads)), **tensors)
    out.write()


if __name__ == "__main__":
    os.makedirs(ROOT, exist_ok=True)
    for family in (conv, norm, pool, elementwise, reduce, optim):
        family()
