"""A step of single-path one-shot training on the spaces of bench/spos.c, along engraft's own paths: paths=FILE."""
import json

import torch
from torch import nn
from torch.nn import functional as F

from darts import Network
from nets import GlobalAvgPool
from peer import count


def relu6():
    return nn.ReLU6(inplace=True)


class InvertedResidual(nn.Module):
    def __init__(self, c_in, c_out, kernel, expansion, stride):
        super().__init__()
        hidden = c_in * expansion
        self.residual = stride == 1 and c_in == c_out
        self.layers = nn.Sequential(
            nn.Conv2d(c_in, hidden, 1, bias=False), nn.BatchNorm2d(hidden), relu6(),
            nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
            relu6(), nn.Conv2d(hidden, c_out, 1, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


class Mobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), relu6())
        self.choices, c_in = nn.ModuleList(), 16
        for i in range(12):
            c_out, stride = (24, 40, 80)[i // 4], 2 if i in (4, 8) else 1
            choice = [InvertedResidual(c_in, c_out, kernel, expansion, stride)
                      for kernel in (3, 5, 7) for expansion in (3, 6)]
            skip = [nn.Identity()] if stride == 1 and c_in == c_out else []
            self.choices.append(nn.ModuleList(choice + skip))
            c_in = c_out
        self.head = nn.Sequential(nn.Conv2d(c_in, 320, 1, bias=False), nn.BatchNorm2d(320), relu6(), GlobalAvgPool(),
                                  nn.Linear(320, 10))

    def forward(self, x, path):
        x = self.stem(x)
        for i, choice in enumerate(self.choices):
            x = choice[path[f"layer{i}"].index(True)](x)
        return self.head(x)


class Darts(Network):
    def __init__(self):
        super().__init__(none=False)

    def forward(self, x, path):
        def combine(node, edges, states):
            chosen = zip(path[f"{node}_switch"], edges.items(), states)
            return sum(list(edge.values())[path[key].index(True)](s) for taken, (key, edge), s in chosen if taken)

        return super().forward(x, combine)


def spos(arguments):
    network = arguments.place(Mobile() if arguments["space"] == "mobile" else Darts())
    batch = arguments.number("batch", 64)
    x, y = arguments.place(torch.randn(batch, 3, 32, 32)), torch.arange(batch) % 10
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    with open(arguments["paths"]) as f:
        paths = iter(json.load(f))

    def step():
        logits = network(x, next(paths))
        loss = F.cross_entropy(logits, y)
        loss.item(), (logits.argmax(1) == y).float().mean().item()  # as the strategy reports them
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, count(network)
