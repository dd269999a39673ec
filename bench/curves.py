"""Compares the losses of trainings with PyTorch's, from the same initial weights on the same batches.

usage: python3 bench/curves.py BUILD_DIR [NET...]

Prints one JSON line a network: the relative difference of engraft's first loss from PyTorch's and the largest of all
(both with two threads), the largest of PyTorch's with one thread from its own with two, and what is allowed: a
thousandth or, where sums in another order matter more, twice the latter. Exit status 1 when a network exceeds it.

Trainings with batch norm are chaotic: what differs in the last bit grows by a factor each step. At usual learning
rates 50 steps make it as large as the loss, PyTorch beside itself included, and any two runs would pass. So the rate is
one at which losses fall while differences stay small.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 50
CURVES = {
    "darts": "batch=16 channels=8 layers=5 size=16",
    "resnet20": "batch=64",
    "mlp": "batch=64",
}


def losses(command, arguments, threads):
    command = [*command, "curve", *arguments, f"threads={threads}", f"steps={STEPS}", "warmup=0"]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"curves: '{' '.join(command)}' ended with status {done.returncode}")
    result = json.loads(done.stdout)
    return result["losses"], result["params"]


def difference(a, b):
    return max(abs(p - q) / max(abs(p), abs(q)) for p, q in zip(a, b))


def compare(build, net):
    peer = [sys.executable, f"{HERE}/peers/peer.py"]
    arguments = [f"net={net}", *CURVES[net].split()]
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as data:
        arguments.append(f"data={data.name}")
        torch, params = losses(peer, arguments, 2)
        torch_1t, _ = losses(peer, arguments, 1)
        engraft, our_params = losses([f"{build}/bench/bench_engraft"], arguments, 2)
    if params != our_params:
        sys.exit(f"curves: {net}: engraft trains {our_params} parameters, PyTorch {params}")
    own, ours = difference(torch, torch_1t), difference(torch, engraft)
    allowed = max(1e-3, 2 * own)
    print(json.dumps({"curve": net, "steps": STEPS, "params": params, "first_loss": torch[0], "last_loss": torch[-1],
                      "first_difference": difference(torch[:1], engraft[:1]), "difference": ours,
                      "torch_1t_difference": own, "allowed": allowed, "ok": ours <= allowed}), flush=True)
    return ours <= allowed


def main():
    build, nets = sys.argv[1], sys.argv[2:] or list(CURVES)
    for net in nets:
        if net not in CURVES:
            sys.exit(f"curves: no network '{net}'; there are {', '.join(CURVES)}")
    sys.exit(not all([compare(build, net) for net in nets]))


main()
