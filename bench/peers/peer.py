"""The driver of the PyTorch side of the benchmarks, which mirrors bench/bench.c.

usage: python3 peer.py FAMILY [key=value ...]
A family is a function of the arguments that returns one step as a function, the number of trained parameters, and
optionally further members of the result.
Prints one JSON line: seconds of each step after those to warm up, peak resident memory, parameters.

Keys that all know: threads, steps, warmup, and layout: nchw (PyTorch's default) or nhwc (channels-last).
"""
import json
import sys
import time

import torch


class Arguments(dict):
    def number(self, key, otherwise):
        return int(self.get(key, otherwise))

    def place(self, x):
        """A network or a batch in the memory layout that is measured; only images have one."""
        images = not torch.is_tensor(x) or x.dim() == 4
        return x.to(memory_format=torch.channels_last) if images and self.get("layout") == "nhwc" else x


def count(network):
    return sum(p.numel() for p in network.parameters())


def peak_mb():
    """Since the process started its program; ru_maxrss begins with that of the parent."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) // 1024


def blas():
    """Which library multiplies matrices for PyTorch: Debian's default may be the reference one, which is slow."""
    with open("/proc/self/maps") as maps:
        text = maps.read()
    return next((name for name in ("openblas", "mkl_rt", "blis", "atlas") if name in text), "reference")


def measure(step, warmup, steps):
    seconds = []
    for i in range(warmup + steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds[warmup:]


def main():
    from curve import curve
    from darts import darts
    from optimizer import optimizer
    from spos import spos
    from surgery import surgery
    from train import infer, train
    families = {"train": train, "infer": infer, "darts": darts, "spos": spos, "optimizer": optimizer, "curve": curve,
                "surgery": surgery}
    arguments = Arguments(argument.split("=", 1) for argument in sys.argv[2:])
    torch.set_num_threads(arguments.number("threads", 1))
    torch.manual_seed(1)
    step, params, *further = families[sys.argv[1]](arguments)
    seconds = measure(step, arguments.number("warmup", 2), arguments.number("steps", 5))
    print(json.dumps({"peer": f"torch-{torch.__version__}", "seconds": seconds, "peak_mb": peak_mb(),
                      "params": params, "blas": blas(), **(further[0] if further else {})}))


if __name__ == "__main__":
    main()
