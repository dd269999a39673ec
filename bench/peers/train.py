"""A training step (forward, backward, SGD with momentum) and an inference of the networks of nets.py."""
import torch
from torch.nn import functional as F

from nets import net
from peer import count


def train(arguments):
    network, shape = net(arguments)
    network, x = arguments.place(network), arguments.place(torch.randn(shape))
    y = torch.arange(shape[0]) % arguments.number("classes", 10)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)

    def step():
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, count(network)


def infer(arguments):
    network, shape = net(arguments)
    params = count(network)
    network.eval()
    x = arguments.place(torch.randn(shape))
    if arguments.number("fold", 1):
        from torch.fx.experimental.optimization import fuse
        network = fuse(network)
    network = arguments.place(network)
    if arguments.number("jit", 0):  # what PyTorch offers beyond eager mode: frozen, in oneDNN's own layouts
        network = torch.jit.optimize_for_inference(torch.jit.trace(network, x))

    def step():
        with torch.no_grad():
            network(x)

    return step, params
