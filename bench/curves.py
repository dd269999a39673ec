"""Compares the losses of trainings with PyTorch's, from the same initial weights on the same batches.

usage: python3 bench/curves.py BUILD_DIR [--lr RATE] [--float64] [NET...]

Prints one JSON line a network: the relative difference of engraft's first loss from PyTorch's and the largest of all
(both with two threads), the largest of PyTorch's with one thread from its own with two, and what is allowed: a
thousandth or, where sums in another order matter more, twice the latter. Exit status 1 when a network exceeds it.
parted_at are the steps at which differences first exceed a thousandth.

Trainings with ReLU and batch norm are chaotic: what differs in the last bit grows by a factor each step, by jumps
where an activation near zero falls on the other side. Differences at one and at two threads are no full measure of
that, since most sums of PyTorch do not depend on the threads: its forward pass has the same bits. So three more numbers
tell what float32 leaves open: the difference of PyTorch channels-last from its default, and with --float64 those of
engraft and of PyTorch from PyTorch in float64. accuracy.py looks at a single step.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 50
TOLERANCE = 1e-3
# SGD with momentum 0.9 and weight decay 3e-4, at rates that papers begin with: Liu et al. 2019; He et al. 2016, who
# warm up with a tenth of their 0.1
CURVES = {
    "darts": "lr=0.025 batch=16 channels=8 layers=5 size=16",
    "resnet20": "lr=0.01 batch=64",
    "lstm": "lr=0.1 batch=64",
    "mlp": "lr=0.01 batch=64",
}


def difference(a, b):
    return max((abs(p - q) / max(abs(p), abs(q)) for p, q in zip(a, b)), default=0.0)


def parted(a, b):
    """The first step (from 1 on) whose losses differ by more than a thousandth, or None."""
    return next((i for i in range(1, len(a) + 1) if difference(a[:i], b[:i]) > TOLERANCE), None)


class Runs:
    def __init__(self, build, net, rate, data):
        self.engraft, self.torch = [f"{build}/bench/bench_engraft"], [sys.executable, f"{HERE}/peers/peer.py"]
        self.arguments = [f"net={net}", *CURVES[net].split(), *rate, f"data={data}", f"steps={STEPS}", "warmup=0"]
        self.params = set()

    def losses(self, program, *further, threads=2):
        given = dict(a.split("=", 1) for a in [*self.arguments, f"threads={threads}", *further])
        command = [*program, "curve", *(f"{k}={v}" for k, v in given.items())]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"'{' '.join(command)}' ended with status {done.returncode}")
        result = json.loads(done.stdout)
        self.params.add(result["params"])
        return result["losses"]


def compare(options, net):
    rate = [f"lr={options.lr}"] if options.lr else []
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as data:
        runs = Runs(options.build, net, rate, data.name)
        torch = runs.losses(runs.torch)
        torch_1t = runs.losses(runs.torch, threads=1)
        torch_nhwc = runs.losses(runs.torch, "layout=nhwc")
        engraft = runs.losses(runs.engraft)  # from the data that the peer wrote, last the same
        exact = runs.losses(runs.torch, "dtype=float64") if options.float64 else None
    if len(runs.params) != 1:
        raise RuntimeError(f"the sides train different numbers of parameters: {runs.params}")
    own, ours = difference(torch, torch_1t), difference(torch, engraft)
    allowed = max(TOLERANCE, 2 * own)
    row = {"curve": net, "settings": " ".join([CURVES[net], *rate]), "steps": STEPS, "params": runs.params.pop(),
           "first_loss": torch[0], "last_loss": torch[-1], "least_loss": min(torch),
           "first_difference": difference(torch[:1], engraft[:1]), "difference": ours,
           "torch_1t_difference": own, "torch_nhwc_difference": difference(torch, torch_nhwc),
           "parted_at": {"engraft": parted(torch, engraft), "torch_1t": parted(torch, torch_1t),
                         "torch_nhwc": parted(torch, torch_nhwc)},
           "allowed": allowed, "ok": ours <= allowed}
    if exact:
        row.update({"engraft_from_float64": difference(exact, engraft), "torch_from_float64": difference(exact, torch),
                    "torch_1t_from_float64": difference(exact, torch_1t),
                    "torch_nhwc_from_float64": difference(exact, torch_nhwc)})
    print(json.dumps(row), flush=True)
    return row["ok"]


def main():
    parser = argparse.ArgumentParser(prog="./dev bench curves")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("nets", metavar="NET", nargs="*", help=f"of {', '.join(CURVES)}")
    parser.add_argument("--lr", help="another learning rate")
    parser.add_argument("--float64", action="store_true", help="compare with PyTorch in float64 as well")
    options = parser.parse_intermixed_args()
    ok = True
    for net in options.nets or CURVES:
        if net not in CURVES:
            parser.error(f"no network '{net}'; there are {', '.join(CURVES)}")
        try:
            ok &= compare(options, net)
        except RuntimeError as error:
            print(f"curves: {net}: {error}", file=sys.stderr)
            ok = False
    sys.exit(not ok)


if __name__ == "__main__":
    main()
