"""An update of two million parameters in 600 tensors; foreach=1: by the multi-tensor functions."""
import torch


def optimizer(arguments):
    params = [torch.randn((16, 576, 9408)[i % 3], requires_grad=True) for i in range(600)]
    for p in params:
        p.grad = torch.randn_like(p)
    foreach = arguments.number("foreach", 0) != 0
    chosen = (torch.optim.Adam(params, lr=1e-4, foreach=foreach) if arguments["kind"] == "adam"
              else torch.optim.SGD(params, lr=1e-4, momentum=0.9, foreach=foreach))
    return chosen.step, sum(p.numel() for p in params)
