"""The DARTS supernet of Liu et al. 2019 for CIFAR, with the names that engraft's space `darts` has, and a step of it.

Candidates: max and average pooling, skip, separable 3x3 and 5x5, dilated 3x3 and 5x5, and none.
"""
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from peer import count

NODES = 4


def norm(c):
    return nn.BatchNorm2d(c, affine=False)


class FactorizedReduce(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv0 = nn.Conv2d(c_in, c_out // 2, 1, stride=2, bias=False)
        self.conv1 = nn.Conv2d(c_in, c_out - c_out // 2, 1, stride=2, bias=False)
        self.norm = norm(c_out)

    def forward(self, x):
        x = F.relu(x)
        return self.norm(torch.cat([self.conv0(x), self.conv1(x[:, :, 1:, 1:])], dim=1))


class Zero(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return x[:, :, :: self.stride, :: self.stride] * 0


def relu_conv_norm(c_in, c_out):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(c_in, c_out, 1, bias=False), norm(c_out))


def depthwise(c, kernel, stride, padding, dilation=1):
    return [nn.Conv2d(c, c, kernel, stride, padding, dilation, groups=c, bias=False),
            nn.Conv2d(c, c, 1, bias=False), norm(c)]


def dil_conv(c, kernel, stride):
    return nn.Sequential(nn.ReLU(), *depthwise(c, kernel, stride, kernel - 1, 2))


def sep_conv(c, kernel, stride):
    layers = [nn.ReLU(), *depthwise(c, kernel, stride, kernel // 2), *depthwise(c, kernel, 1, kernel // 2)]
    named = [(str(i), layer) for i, layer in enumerate(layers)]
    return nn.Sequential(OrderedDict(named[:4] + [("relu", nn.ReLU())] + named[4:]))


def candidates(c, stride, none):
    """By name; `none` is the last, as in engraft's weights of an edge."""
    return nn.ModuleDict({
        "maxpool": nn.Sequential(nn.MaxPool2d(3, stride, 1), norm(c)),
        "avgpool": nn.Sequential(nn.AvgPool2d(3, stride, 1, count_include_pad=False), norm(c)),
        "skipconnect": nn.Identity() if stride == 1 else FactorizedReduce(c, c),
        "sepconv3x3": sep_conv(c, 3, stride),
        "sepconv5x5": sep_conv(c, 5, stride),
        "dilconv3x3": dil_conv(c, 3, stride),
        "dilconv5x5": dil_conv(c, 5, stride),
        **({"none": Zero(stride)} if none else {}),
    })


class Cell(nn.Module):
    def __init__(self, c_pp, c_p, c, reduction, reduction_p, none):
        super().__init__()
        self.kind = "reduce" if reduction else "normal"
        self.preprocess0 = FactorizedReduce(c_pp, c) if reduction_p else relu_conv_norm(c_pp, c)
        self.preprocess1 = relu_conv_norm(c_p, c)
        for node in range(2, NODES + 2):
            for i in range(node):
                self.add_module(f"n{node}_p{i}", candidates(c, 2 if reduction and i < 2 else 1, none))

    def forward(self, s0, s1, combine):
        """combine(key, edges, states): a node's value, where edges are the candidates of its incoming edges."""
        states = [self.preprocess0(s0), self.preprocess1(s1)]
        for node in range(2, NODES + 2):
            edges = {f"{self.kind}_n{node}_p{i}": getattr(self, f"n{node}_p{i}") for i in range(node)}
            states.append(combine(f"{self.kind}_n{node}", edges, states))
        return torch.cat(states[2:], dim=1)


class Network(nn.Module):
    def __init__(self, channels=16, layers=8, none=True):
        super().__init__()
        c, stem = channels, 3 * channels
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem))
        self.cells, c_pp, c_p, reduction_p = nn.ModuleList(), stem, stem, False
        for i in range(layers):
            reduction = i in (layers // 3, 2 * layers // 3)
            c *= 2 if reduction else 1
            self.cells.append(Cell(c_pp, c_p, c, reduction, reduction_p, none))
            c_pp, c_p, reduction_p = c_p, 4 * c, reduction
        self.classifier = nn.Linear(c_p, 10)

    def forward(self, x, combine):
        s0 = s1 = self.stem(x)
        for cell in self.cells:
            s0, s1 = s1, cell(s0, s1, combine)
        return self.classifier(s1.mean((2, 3)))


class Supernet(nn.Module):
    """All candidates of all edges, weighted by the softmax of one vector an edge (shared by cells of a kind)."""

    def __init__(self, channels, layers):
        super().__init__()
        self.net = Network(channels, layers)
        self.alphas = nn.ParameterDict({
            f"{kind}_n{node}_p{i}": nn.Parameter(1e-3 * torch.randn(8))
            for kind in ("normal", "reduce") for node in range(2, NODES + 2) for i in range(node)})

    def forward(self, x):
        # one softmax over the edges together, as the original has it
        weights = dict(zip(self.alphas, F.softmax(torch.stack(list(self.alphas.values())), dim=-1)))

        def combine(_, edges, states):
            return sum(sum(w * candidate(s) for w, candidate in zip(weights[key], edge.values()))
                       for (key, edge), s in zip(edges.items(), states))

        return self.net(x, combine)


def darts(arguments):
    network = arguments.place(Supernet(arguments.number("channels", 16), arguments.number("layers", 8)))
    batch, size = arguments.number("batch", 64), arguments.number("size", 32)
    x, y = arguments.place(torch.randn(batch, 3, size, size)), torch.arange(batch) % 10

    def step():
        F.cross_entropy(network(x), y).backward()
        network.zero_grad(set_to_none=True)

    return step, count(network)
