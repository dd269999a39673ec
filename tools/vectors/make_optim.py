#!/usr/bin/env python3
"""Makes tests/vectors/optimizers.json: what PyTorch's optimizers, schedules and gradient clipping do.

usage: make_optim.py > tests/vectors/optimizers.json      (made with PyTorch 1.13)
"""
import json
import random
import warnings

import torch

warnings.filterwarnings("ignore")
SHAPES = [(3, 4), (5,), (2, 3, 2, 2)]
STEPS = 5

OPTIMIZERS = [
    ("sgd", torch.optim.SGD, [
        {"lr": 0.1},
        {"lr": 0.05, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"lr": 0.1, "weight_decay": 0.1},
        {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 3e-4},
    ]),
    ("adam", torch.optim.Adam, [
        {"lr": 0.001},
        {"lr": 0.02, "betas": [0.5, 0.999], "weight_decay": 0.001},
        {"lr": 0.1, "betas": [0.0, 0.9], "eps": 0.01},
    ]),
    ("adamw", torch.optim.AdamW, [
        {"lr": 0.001, "weight_decay": 0.01},
        {"lr": 0.05, "weight_decay": 0.1, "betas": [0.8, 0.95]},
        {"lr": 0.01, "weight_decay": 0.0},
    ]),
]


def numbers(rng, shape):
    """Exact in binary and short in text."""
    n = 1
    for size in shape:
        n *= size
    return [rng.randint(-32, 32) / 16 for _ in range(n)]


def flat(tensor):
    return [float("%.9g" % x) for x in tensor.detach().flatten().tolist()]


def trajectory(kind, make, options, rng):
    start = [numbers(rng, shape) for shape in SHAPES]
    # The second parameter has no gradient in steps 1 and 3, as when a supernet trains other paths.
    grads = [[None if i == 1 and step in (1, 3) else numbers(rng, shape) for i, shape in enumerate(SHAPES)]
             for step in range(STEPS)]
    params = [torch.nn.Parameter(torch.tensor(values).reshape(shape)) for values, shape in zip(start, SHAPES)]
    optimizer = make(params, **options)
    after = []
    for step in range(STEPS):
        for param, grad in zip(params, grads[step]):
            param.grad = None if grad is None else torch.tensor(grad).reshape(param.shape)
        optimizer.step()
        after.append([flat(param) for param in params])
    return {"kind": kind, "options": options, "shapes": SHAPES, "start": start, "grads": grads, "after": after}


def clip(max_norm, rng):
    grads = [numbers(rng, shape) for shape in SHAPES]
    params = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    for param, grad in zip(params, grads):
        param.grad = torch.tensor(grad).reshape(param.shape)
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
    return {"max_norm": max_norm, "shapes": SHAPES, "grads": grads, "norm": float(norm),
            "after": [flat(param.grad) for param in params]}


def schedule(kind, arguments, make, lr=0.1, steps=16):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return {"kind": kind, "arguments": arguments, "lr": lr, "rates": [float("%.12g" % rate) for rate in rates]}


def schedules():
    lr = torch.optim.lr_scheduler
    warm = lambda o, n, f: lr.LinearLR(o, start_factor=f, end_factor=1.0, total_iters=n)
    return [
        schedule("step", [3, 0.5], lambda o: lr.StepLR(o, 3, 0.5)),
        schedule("step", [1, 0.97], lambda o: lr.StepLR(o, 1, 0.97)),
        schedule("multi_step", [[2, 5, 5, 11], 0.1], lambda o: lr.MultiStepLR(o, [2, 5, 5, 11], 0.1)),
        schedule("cosine", [16, 0.001], lambda o: lr.CosineAnnealingLR(o, 16, 0.001), lr=0.025),
        schedule("cosine", [20, 0.0], lambda o: lr.CosineAnnealingLR(o, 20)),
        schedule("warmup", [5, 0.2], lambda o: warm(o, 5, 0.2)),
        schedule("warmup_step", [4, 0.1, 3, 0.5],
                 lambda o: lr.SequentialLR(o, [warm(o, 4, 0.1), lr.StepLR(o, 3, 0.5)], [4])),
        schedule("warmup_cosine", [4, 0.25, 12, 0.01],
                 lambda o: lr.SequentialLR(o, [warm(o, 4, 0.25), lr.CosineAnnealingLR(o, 12, 0.01)], [4])),
        schedule("one_cycle", [0.2, 17, 0, 0, 0],
                 lambda o: lr.OneCycleLR(o, 0.2, total_steps=17, cycle_momentum=False)),
        schedule("one_cycle", [0.4, 20, 0.25, 10, 100],
                 lambda o: lr.OneCycleLR(o, 0.4, total_steps=20, pct_start=0.25, div_factor=10, final_div_factor=100,
                                         cycle_momentum=False)),
    ]


def main():
    rng = random.Random(7)
    out = {
        "made_by": "tools/vectors/make_optim.py, PyTorch " + torch.__version__,
        "optimizers": [trajectory(kind, make, options, rng) for kind, make, cases in OPTIMIZERS for options in cases],
        "clip": [clip(1.0, rng), clip(1000.0, rng)],
        "schedules": schedules(),
    }
    print(json.dumps(out, separators=(",", ":")).replace('{"kind"', '\n{"kind"').replace('{"max_norm"', '\n{"max_norm"'))


if __name__ == "__main__":
    main()
