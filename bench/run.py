"""Runs benchmark cases, each beside its peers in the same run at the same thread count; prints one JSON line a case and peer.

usage: python3 bench/run.py BUILD_DIR [CASE...]
Seconds are medians of steps after two to warm up; spread = (largest - smallest) / median. ratio = peer_s / engraft_s.
"""
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = "5"
# case: (threads, arguments of the program and of the peer: batch, layers, channels, size)
DARTS = {
    "darts_step": ("2", ["64", "8", "16", "32"]),
    "darts_step_1t": ("1", ["64", "8", "16", "32"]),
    "darts_tiny": ("2", ["16", "3", "4", "16"]),
}


def run(command, threads):
    environment = dict(os.environ, OMP_NUM_THREADS=threads, OMP_WAIT_POLICY=os.environ.get("OMP_WAIT_POLICY", "passive"))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def spread(seconds):
    return round((max(seconds) - min(seconds)) / statistics.median(seconds), 3)


def darts(build, case):
    threads, arguments = DARTS[case]
    ours = run([f"{build}/bench/bench_darts_step", threads, *arguments, STEPS], threads)
    for layout in ("nchw", "nhwc"):
        peer = run([sys.executable, f"{HERE}/peers/darts_step.py", threads, *arguments, layout, STEPS], threads)
        if peer["params"] != ours["params"]:
            sys.exit(f"bench: {case}: engraft's network has {ours['params']} parameters, the peer's {peer['params']}")
        engraft_s, peer_s = statistics.median(ours["seconds"]), statistics.median(peer["seconds"])
        print(json.dumps({
            "case": case, "threads": int(threads), "params": ours["params"],
            "engraft_s": round(engraft_s, 4), "engraft_spread": spread(ours["seconds"]),
            "peer": peer["peer"], "peer_s": round(peer_s, 4), "peer_spread": spread(peer["seconds"]),
            "ratio": round(peer_s / engraft_s, 2),
            "engraft_peak_mb": ours["peak_mb"], "peer_peak_mb": peer["peak_mb"],
        }), flush=True)


def main():
    build, cases = sys.argv[1], sys.argv[2:] or list(DARTS)
    for case in cases:
        if case not in DARTS:
            sys.exit(f"bench: no case '{case}'; there are {', '.join(DARTS)}")
        darts(build, case)


main()
