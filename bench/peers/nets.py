"""The networks of bench/nets.c: the same layers, under the same names."""
from collections import OrderedDict

from torch import nn
from torch.nn import functional as F


def conv_norm(c_in, c_out, kernel, stride=1, groups=1, relu=True):
    layers = [("conv", nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)),
              ("norm", nn.BatchNorm2d(c_out))]
    return nn.Sequential(OrderedDict(layers + [("relu", nn.ReLU(inplace=True))] * relu))


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = conv_norm(c_in, c_out, 3, stride)
        self.conv2 = conv_norm(c_out, c_out, 3, relu=False)
        self.shortcut = nn.Identity() if c_in == c_out else conv_norm(c_in, c_out, 1, stride, relu=False)

    def forward(self, x):
        return F.relu(self.conv2(self.conv1(x)) + self.shortcut(x), inplace=True)


class GlobalAvgPool(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def resnet20():
    layers, c_in = [conv_norm(3, 16, 3)], 16
    for i in range(9):
        c_out = 16 << i // 3
        layers.append(BasicBlock(c_in, c_out, 1 if c_in == c_out else 2))
        c_in = c_out
    return nn.Sequential(*layers, GlobalAvgPool(), nn.Linear(64, 10))


def mobilenet():
    layers, c_in = [conv_norm(3, 8, 3)], 8
    for i, c_out in enumerate([16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256]):
        layers += [conv_norm(c_in, c_in, 3, 2 if i > 0 and c_out != c_in else 1, c_in), conv_norm(c_in, c_out, 1)]
        c_in = c_out
    return nn.Sequential(*layers, GlobalAvgPool(), nn.Linear(c_in, 10))


def mlp(sizes):
    layers = []
    for c_in, c_out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(c_in, c_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class LastOfLstm(nn.Module):
    """A classifier of sequences (N, 32, 64) by the last output of an LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.classifier = nn.Linear(128, 10)

    def forward(self, x):
        return self.classifier(self.lstm(x)[0][:, -1])


def net(arguments):
    """The network that `net=` names, and the shape of its input at `batch=`."""
    name, batch = arguments["net"], arguments.number("batch", 64)
    if name == "mlp":
        sizes = [int(size) for size in arguments.get("sizes", "784-256-128-10").split("-")]
        return mlp(sizes), (batch, sizes[0])
    if name == "lstm":
        return LastOfLstm(), (batch, 32, 64)
    return {"resnet20": resnet20, "mobilenet": mobilenet}[name](), (batch, 3, 32, 32)
