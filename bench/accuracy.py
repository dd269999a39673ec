"""Compares the numbers inside of a training step with PyTorch's: which is closer to float64?

usage: python3 bench/accuracy.py BUILD_DIR [--after N] [--tensors] [NET...]

From the same weights on the same batch, in float32: the output of every module, the statistics that batch norms have
updated, the gradient of every parameter. Each has its relative error |x - y| / |y| against PyTorch in float64. Prints
one JSON line a network and kind of tensor: the median and the worst of the errors of engraft, of PyTorch and of PyTorch
channels-last, the median and the worst of engraft's / PyTorch's tensor by tensor, and where that is.
--after N takes the weights after N steps of training, --tensors prints a line a tensor, in the network's order.
"""
import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/peers")

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from curve import load_safetensors, make, make_optimizer, save_data  # noqa: E402
from curves import CURVES  # noqa: E402
from peer import Arguments  # noqa: E402

KINDS = ("output", "buffer", "gradient")


def train(network, batches, rate):
    optimizer = make_optimizer(network, rate)
    for x, y in batches:
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def numbers(network, x, y, dtype=torch.float32, layout=torch.contiguous_format):
    """What one step computes, by name."""
    network, seen = copy.deepcopy(network).to(dtype), {}
    x = x.to(dtype)
    if x.dim() == 4:
        network, x = network.to(memory_format=layout), x.to(memory_format=layout)
    root = getattr(network, "net", network)  # a supernet without its alphas

    def note(name):
        def hook(module, inputs, output):
            if torch.is_tensor(output):
                seen[f"output.{name}"] = output
        return hook

    for name, module in root.named_modules():
        module.register_forward_hook(note(name))
        if name.endswith(".relu"):  # the ReLU behind a batch norm, which engraft fuses: overwrites what was noted
            module.inplace = True
    F.cross_entropy(network(x), y).backward()
    seen.update((f"buffer.{name}", t) for name, t in root.named_buffers() if t.is_floating_point())
    seen.update((f"gradient.{name}", p.grad) for name, p in root.named_parameters())
    return {name: t.detach() for name, t in seen.items()}


def ours(build, arguments, network, batch, folder):
    data, saved = f"{folder}/data", f"{folder}/saved"
    save_data(data, network, [batch])
    subprocess.run([f"{build}/bench/bench_engraft", "curve", *(f"{k}={v}" for k, v in arguments.items()),
                    "threads=2", "steps=1", "warmup=0", f"data={data}", f"save={saved}"],
                   check=True, stdout=subprocess.DEVNULL)
    return load_safetensors(saved)


def error(x, exact):
    norm = exact.norm().item()
    return (x.double() - exact).norm().item() / norm if norm > 0 else 0.0


def report(net, kind, after, errors, tensors):
    """errors: (engraft's, PyTorch's, PyTorch's channels-last) by name."""
    rows = {name: e for name, e in errors.items() if name.startswith(kind) and min(e) > 0}
    if not rows:
        return
    if tensors:
        for name, e in rows.items():
            print(f"{e[0]:.2e} {e[1]:.2e} {e[2]:.2e} {e[0] / e[1]:6.2f}  {name}", file=sys.stderr)
    ratios = {name: e[0] / e[1] for name, e in rows.items()}
    worst = max(ratios, key=ratios.get)
    columns = dict(zip(("engraft", "torch-nchw", "torch-nhwc"), zip(*rows.values())))
    print(json.dumps({
        "net": net, "after": after, "kind": kind, "tensors": len(rows),
        "median": {name: float(f"{statistics.median(c):.3g}") for name, c in columns.items()},
        "max": {name: float(f"{max(c):.3g}") for name, c in columns.items()},
        "ratio": round(statistics.median(ratios.values()), 3), "worst_ratio": round(ratios[worst], 2),
        "worst": worst, "worst_errors": [float(f"{e:.3g}") for e in rows[worst]]}), flush=True)


def compare(options, net):
    arguments = Arguments(a.split("=", 1) for a in [f"net={net}", *CURVES[net].split()])
    torch.manual_seed(1)
    network, batches = make(Arguments(arguments, steps=options.after + 1))
    train(network, batches[:-1], float(arguments["lr"]))
    with tempfile.TemporaryDirectory() as folder:
        engraft = ours(options.build, arguments, network, batches[-1], folder)
    exact = numbers(network, *batches[-1], dtype=torch.float64)
    sides = [engraft, numbers(network, *batches[-1]),
             numbers(network, *batches[-1], layout=torch.channels_last)]
    errors = {name: [error(side[name], t) for side in sides] for name, t in exact.items()
              if name in engraft and t.dim() > 0}
    for kind in KINDS:
        report(net, kind, options.after, errors, options.tensors)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench accuracy")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("nets", metavar="NET", nargs="*", help=f"of {', '.join(CURVES)}")
    parser.add_argument("--after", type=int, default=0, help="steps of training before")
    parser.add_argument("--tensors", action="store_true",
                        help="a line a tensor: engraft, PyTorch, PyTorch channels-last, engraft's / PyTorch's")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(2)
    for net in options.nets or CURVES:
        if net not in CURVES:
            parser.error(f"no network '{net}'; there are {', '.join(CURVES)}")
        compare(options, net)


if __name__ == "__main__":
    main()
