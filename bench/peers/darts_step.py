"""One step of the DARTS supernet (forward and backward of all candidates) in PyTorch, the peer of bench/darts_step.c.

usage: python3 darts_step.py THREADS BATCH LAYERS CHANNELS SIZE nchw|nhwc STEPS
The network is that of Liu et al. 2019 for CIFAR: candidates none, max and average pooling, skip, separable 3x3 and 5x5, dilated 3x3 and 5x5.
Prints one JSON line: seconds of each step after two to warm up, peak resident memory, parameters (with the architecture's).
"""
import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

threads, batch, layers, channels, size = map(int, sys.argv[1:6])
layout, steps = sys.argv[6], int(sys.argv[7])
torch.set_num_threads(threads)


def norm(c):
    return nn.BatchNorm2d(c, affine=False)


class FactorizedReduce(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.even = nn.Conv2d(c_in, c_out // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(c_in, c_out - c_out // 2, 1, stride=2, bias=False)
        self.norm = norm(c_out)

    def forward(self, x):
        x = F.relu(x)
        return self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], dim=1))


class Zero(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return x[:, :, :: self.stride, :: self.stride] * 0


def relu_conv_norm(c_in, c_out):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))


def depthwise(c, kernel, stride, padding, dilation=1):
    return [nn.ReLU(), nn.Conv2d(c, c, kernel, stride, padding, dilation, groups=c, bias=False),
            nn.Conv2d(c, c, 1, bias=False), norm(c)]


def candidates(c, stride):
    return nn.ModuleList([
        Zero(stride),
        nn.Sequential(nn.MaxPool2d(3, stride, 1), norm(c)),
        nn.Sequential(nn.AvgPool2d(3, stride, 1, count_include_pad=False), norm(c)),
        nn.Identity() if stride == 1 else FactorizedReduce(c, c),
        nn.Sequential(*depthwise(c, 3, stride, 1), *depthwise(c, 3, 1, 1)),
        nn.Sequential(*depthwise(c, 5, stride, 2), *depthwise(c, 5, 1, 2)),
        nn.Sequential(*depthwise(c, 3, stride, 2, 2)),
        nn.Sequential(*depthwise(c, 5, stride, 4, 2)),
    ])


class Cell(nn.Module):
    def __init__(self, c_pp, c_p, c, reduction, reduction_p):
        super().__init__()
        self.reduction = reduction
        self.pre0 = FactorizedReduce(c_pp, c) if reduction_p else relu_conv_norm(c_pp, c)
        self.pre1 = relu_conv_norm(c_p, c)
        self.edges = nn.ModuleList(candidates(c, 2 if reduction and j < 2 else 1)
                                   for node in range(4) for j in range(2 + node))

    def forward(self, s0, s1, weights):
        states, first = [self.pre0(s0), self.pre1(s1)], 0
        for node in range(4):
            states.append(sum(sum(w * op(s) for w, op in zip(weights[first + j], self.edges[first + j]))
                              for j, s in enumerate(states)))
            first += 2 + node
        return torch.cat(states[2:], dim=1)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        c, stem = channels, 3 * channels
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem))
        self.cells, c_pp, c_p, reduction_p = nn.ModuleList(), stem, stem, False
        for i in range(layers):
            reduction = i in (layers // 3, 2 * layers // 3)
            c *= 2 if reduction else 1
            self.cells.append(Cell(c_pp, c_p, c, reduction, reduction_p))
            c_pp, c_p, reduction_p = c_p, 4 * c, reduction
        self.classifier = nn.Linear(c_p, 10)
        self.normal = nn.Parameter(1e-3 * torch.randn(14, 8))
        self.reduce = nn.Parameter(1e-3 * torch.randn(14, 8))

    def forward(self, x):
        s0 = s1 = self.stem(x)
        for cell in self.cells:
            alpha = self.reduce if cell.reduction else self.normal
            s0, s1 = s1, cell(s0, s1, F.softmax(alpha, dim=-1))
        return self.classifier(s1.mean((2, 3)))


network = Network()
x, y = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
if layout == "nhwc":
    network = network.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
seconds = []
for step in range(steps + 2):
    start = time.perf_counter()
    F.cross_entropy(network(x), y).backward()
    seconds.append(time.perf_counter() - start)
    network.zero_grad(set_to_none=True)
print(json.dumps({"peer": f"torch-{torch.__version__}-{layout}", "seconds": seconds[2:],
                  "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                  "params": sum(p.numel() for p in network.parameters())}))
