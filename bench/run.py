"""Runs benchmark cases, each beside its peers in the same run at the same number of threads.

usage: python3 bench/run.py BUILD_DIR [--alone] [--rounds N] [--steps N] [CASE...]      (no case: all by default)

Prints one JSON line a case and peer, and for people a table at the end. engraft and the peers take turns for some
rounds, each time in a process of its own; seconds are medians of all steps after warming up, spread is (90th
percentile - 10th) / median. ratio = peer_s / engraft_s; in single-path training, whose steps differ, the ratio of the
seconds of all steps together, and ratio_spread that of the single steps' ratios. roofline is the share of engraft_s that the step takes at the
least, by counted operations and bytes and this machine's rates (see bench/bench.c). load is the system's load average
when the case began, what ran before it included; others is how many processors other programs kept busy meanwhile: with
more than a few hundredths the line is not to be quoted. What fails has a line with "error", and the rest goes on; the
exit status is then 1, also when PyTorch ran on the reference BLAS.
--alone runs engraft only, --rounds and --steps replace a case's own numbers.

Neither side gets settings that its users would not have: OMP_NUM_THREADS is the number of threads, OMP_WAIT_POLICY is
what the environment says. Both sides are faster without one (threads that spin) than with "passive" on a quiet machine,
and both are much slower so on a busy one.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Peer:
    """A variant of the PyTorch side, or of engraft itself; `least` is the ratio that we want to have at least."""

    def __init__(self, name, arguments="", least=None, engraft=False):
        self.name, self.arguments, self.least, self.engraft = name, arguments.split(), least, engraft


class Case:
    """`steps` are timed in each of `rounds`; one that is not `usual` runs only when it is named."""

    def __init__(self, family, arguments, peers, threads=2, steps=5, rounds=3, usual=True):
        self.family, self.arguments, self.peers = family, arguments.split(), peers
        self.paired = family == "spos"  # steps do different work, in the same order on both sides
        self.threads, self.steps, self.rounds, self.usual = threads, steps, rounds, usual


def layouts(nchw, nhwc):
    return [Peer("nchw", "layout=nchw", nchw), Peer("nhwc", "layout=nhwc", nhwc)]


PAPER = "batch=64 layers=8 channels=16 size=32 warmup=1"
CASES = {
    # the peers take 5 to 30 s a step: a single round, and fewer steps of theirs
    "darts_step": Case("darts", PAPER, [Peer("nchw", "layout=nchw steps=2", 8), Peer("nhwc", "layout=nhwc steps=3", 3)],
                       rounds=1),
    "darts_step_low": Case("darts", f"{PAPER} memory=low", [Peer("full", "memory=full", 1 / 1.4, engraft=True)],
                           rounds=1),
    "darts_step_bf16": Case("darts", f"{PAPER} precision=bf16", [Peer("f32", "precision=f32", 1, engraft=True)],
                            rounds=1),
    "darts_step_1t": Case("darts", PAPER, [Peer("nchw", "layout=nchw steps=3", 7), Peer("nhwc", "layout=nhwc", 2.5)],
                          threads=1, rounds=1, usual=False),
    "darts_tiny": Case("darts", "batch=16 layers=3 channels=4 size=16", layouts(8, 8), steps=10),
    "spos_darts": Case("spos", "space=darts warmup=10", layouts(4, 2), steps=10, rounds=1),
    "spos_mobile": Case("spos", "space=mobile warmup=10", layouts(4, 2), steps=10, rounds=1),
    "resnet20_train": Case("train", "net=resnet20", layouts(1.7, 1.3), steps=10),
    "resnet20_train_bf16": Case("train", "net=resnet20 precision=bf16",
                                [Peer("f32", "precision=f32", 1, engraft=True)], steps=10),
    "mobilenet_train": Case("train", "net=mobilenet", layouts(3.5, 2.2), steps=20),
    "mlp": Case("train", "net=mlp", [Peer("", "", 3)], steps=300),
    "mlp_1t": Case("train", "net=mlp", [Peer("", "", 3)], threads=1, steps=300),
    "mlp_tiny": Case("train", "net=mlp sizes=16-16-16-4 classes=4 batch=8", [Peer("", "", 15)], steps=2000),
    "lstm_train": Case("train", "net=lstm", [Peer("")], steps=50),
    "resnet20_infer": Case("infer", "net=resnet20 batch=1 warmup=10",
                           [*layouts(6, 6), Peer("jit", "jit=1"), Peer("nchw-unfolded", "layout=nchw fold=0")],
                           steps=100),
    "sgd": Case("optimizer", "kind=sgd", [Peer("default", "foreach=0", 3), Peer("foreach", "foreach=1", 3)], steps=100),
    "adam": Case("optimizer", "kind=adam", [Peer("default", "foreach=0", 4), Peer("foreach", "foreach=1", 4)],
                 steps=100),
    # a hundred thousand modules, half of the leaves replaced; undo beside what the peers' replacing takes
    "surgery": Case("surgery", "kind=commit", [Peer("recursive", "form=recursive", 9), Peer("list", "form=list", 45)],
                    threads=1, steps=10),
    "surgery_undo": Case("surgery", "kind=undo", [Peer("recursive", "form=recursive", 13)], threads=1, steps=10),
    "surgery_1m": Case("surgery", "kind=commit containers=10000", [Peer("recursive", "form=recursive steps=2", 9)],
                       threads=1, steps=5, rounds=1, usual=False),
    "startup": Case("startup", "", [Peer("import torch")], threads=1, steps=10),
}


# of a program that ends early, is not there, or prints something else
FAILURES = (RuntimeError, OSError, ValueError, KeyError)


def say(*words):
    print("bench:", *words, file=sys.stderr, flush=True)


def cpu_seconds():
    """Of all programs, and of this one and those that it has run; the former 0 where /proc does not tell."""
    own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    try:
        with open("/proc/stat") as stat:
            user, nice, system, _, _, *interrupts = map(int, stat.readline().split()[1:8])
    except OSError:
        return 0, own
    return sum([user, nice, system, *interrupts]) / os.sysconf("SC_CLK_TCK"), own


class Conditions:
    """What else the machine does while a case runs."""

    def __init__(self):
        self.load, self.start, self.cpu = os.getloadavg()[0], time.perf_counter(), cpu_seconds()

    def row(self):
        took, (total, own) = time.perf_counter() - self.start, cpu_seconds()
        others = (total - self.cpu[0]) - (own - self.cpu[1])
        return {"load": round(self.load, 2), "others": round(max(0, others) / took, 2), "took_s": round(took, 1)}


def merge(results):
    """One result of several rounds: all seconds, the largest peak, the best rates."""
    merged = dict(results[0])
    merged["seconds"] = [s for r in results for s in r["seconds"]]
    for key in ("peak_mb", "macs_rate", "bytes_rate", "primitive_misses", "system_allocations"):
        if key in merged:
            merged[key] = max(r[key] for r in results)
    return merged


class Unsupported(Exception):
    """What the case asks for is not to be had on this machine."""


class Runner:
    def __init__(self, build, case, options):
        self.case = case
        self.steps, self.rounds = options.steps or case.steps, options.rounds or case.rounds
        self.replaced = [f"steps={options.steps}"] if options.steps else []
        self.program, self.engraft = f"{build}/bench/bench_engraft", f"{build}/engraft"
        self.environment = dict(os.environ, OMP_NUM_THREADS=str(case.threads))

    def json_of(self, command, arguments):
        # the arguments of a peer replace those of its case
        given = dict(a.split("=", 1) for a in [f"threads={self.case.threads}", f"steps={self.steps}",
                                               *self.case.arguments, *arguments, *self.replaced])
        done = subprocess.run([*command, self.case.family, *(f"{k}={v}" for k, v in given.items())],
                              env=self.environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"'{' '.join(done.args)}' ended with status {done.returncode}")
        result = json.loads(done.stdout.strip().splitlines()[-1])
        if "unsupported" in result:
            raise Unsupported(result["unsupported"])
        return result

    def startup(self, command):
        """Start to end of a program."""
        seconds = []
        for i in range(self.steps + 1):
            start = time.perf_counter()
            with subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL) as process:
                usage = os.wait4(process.pid, 0)[2]
                process.returncode = 0
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds[1:], "peak_mb": usage.ru_maxrss // 1024, "params": 0}

    def ours(self, arguments=()):
        if self.case.family == "startup":
            return self.startup([self.engraft, "--help"])
        return self.json_of([self.program], arguments)

    def peer(self, peer, ours):
        if peer.engraft:
            return dict(self.ours(peer.arguments), peer="engraft")
        if self.case.family == "startup":
            return dict(self.startup([sys.executable, "-c", "import torch"]), peer="python3")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as paths:  # SPOS: those that engraft drew
            json.dump(ours.get("paths"), paths)
            paths.flush()
            extra = [f"paths={paths.name}"] if "paths" in ours else []
            return self.json_of([sys.executable, f"{HERE}/peers/peer.py"], [*peer.arguments, *extra])

    def run(self, peers):
        """Rounds of engraft, then each peer. Returns engraft's merged result and those of the peers, each of which may
        be a failure instead."""
        ours, theirs = [], [[] for _ in peers]
        for turn in range(self.rounds):
            say(f"  round {turn + 1} of {self.rounds}: engraft")
            ours.append(self.ours())
            for i, peer in enumerate(peers):
                say(f"  round {turn + 1} of {self.rounds}: {peer.name or 'the peer'}")
                try:
                    if isinstance(theirs[i], list):
                        theirs[i].append(self.peer(peer, ours[-1]))
                        self.check(peer, theirs[i][-1], ours[-1])
                except FAILURES as error:
                    theirs[i] = error
        return merge(ours), [merge(results) if isinstance(results, list) else results for results in theirs]

    @staticmethod
    def check(peer, theirs, ours):
        if theirs["params"] != ours["params"]:
            raise RuntimeError(f"engraft trains {ours['params']} parameters, {peer.name or 'the peer'} "
                               f"{theirs['params']}")


def spread(seconds):
    tenths = statistics.quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else [seconds[0]]
    return round((tenths[-1] - tenths[0]) / statistics.median(seconds), 3)


def rounded(seconds):
    return float(f"{seconds:.4g}")


def roofline(ours, seconds):
    """The share of the time that the counted work takes at the machine's rates; None where none was counted."""
    if not ours.get("bytes"):
        return None
    return round(min(1, max(ours["macs"] / ours["macs_rate"], ours["bytes"] / ours["bytes_rate"]) / seconds), 3)


def ratio(theirs, ours, paired):
    if not paired:
        return {"ratio": round(statistics.median(theirs["seconds"]) / statistics.median(ours["seconds"]), 2)}
    return {"ratio": round(sum(theirs["seconds"]) / sum(ours["seconds"]), 2),
            "ratio_spread": spread([t / o for t, o in zip(theirs["seconds"], ours["seconds"])])}


def own_columns(ours):
    engraft_s = statistics.median(ours["seconds"])
    row = {"params": ours["params"], "engraft_s": rounded(engraft_s), "engraft_spread": spread(ours["seconds"]),
           "steps": len(ours["seconds"]), "engraft_peak_mb": ours["peak_mb"], "roofline": roofline(ours, engraft_s)}
    row.update((key, ours[key]) for key in ("primitive_misses", "system_allocations") if key in ours)
    return row


def peer_columns(peer, theirs, ours, paired):
    if isinstance(theirs, FAILURES):
        return {"peer": peer.name, "error": str(theirs)}
    peer_s = statistics.median(theirs["seconds"])
    return {"peer": "-".join(filter(None, [theirs["peer"], peer.name])), "peer_s": rounded(peer_s),
            "peer_spread": spread(theirs["seconds"]), "peer_steps": len(theirs["seconds"]),
            "peer_peak_mb": theirs["peak_mb"], "peer_blas": theirs.get("blas"), **ratio(theirs, ours, paired),
            "least": peer.least and round(peer.least, 2)}


def run_case(name, options):
    """The rows of a case, printed."""
    case, conditions = CASES[name], Conditions()
    peers = [] if options.alone else case.peers
    say(f"{name}, beside {len(peers)} peers ..." if peers else f"{name} ...")
    head = {"case": name, "threads": case.threads}
    try:
        ours, theirs = Runner(options.build, case, options).run(peers)
        columns = [peer_columns(peer, result, ours, case.paired) for peer, result in zip(peers, theirs)]
        rows = [{**head, **own_columns(ours), **further} for further in columns or [{}]]
    except Unsupported as error:
        say(f"{name}: skipped: {error}")
        return []
    except FAILURES as error:
        rows = [{**head, "error": str(error)}]
    rows = [{**row, **conditions.row()} for row in rows]
    say(f"  took {rows[0]['took_s']:.0f} s")
    for row in rows:
        print(json.dumps(row), flush=True)
        if "error" in row:
            say(f"{name}: {row['error']}")
    return rows


def table(rows):
    def milliseconds(s):
        return f"{s * 1e3:.4g}" if s is not None else ""

    cells = [("case", "threads", "engraft ms", "spread", "MB", "roofline", "peer", "peer ms", "spread", "MB", "ratio",
              "wanted", "others")]
    for r in rows:
        cells.append((r["case"], r["threads"], milliseconds(r.get("engraft_s")), r.get("engraft_spread"),
                      r.get("engraft_peak_mb"), r.get("roofline"), r.get("peer"),
                      "failed" if "error" in r else milliseconds(r.get("peer_s")), r.get("peer_spread"),
                      r.get("peer_peak_mb"), r.get("ratio"), r.get("least"), r["others"]))
    cells = [["" if c is None else str(c) for c in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print("  ".join(c.ljust(w) if i in (0, 6) else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))),
              file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", usage="%(prog)s [--alone] [--rounds N] [--steps N] [CASE...]")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("cases", metavar="CASE", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--rounds", type=int, help="turns of engraft and its peers")
    parser.add_argument("--steps", type=int, help="measured in each turn")
    options = parser.parse_intermixed_args()
    for name in options.cases:
        if name not in CASES:
            parser.error(f"no case '{name}'; there are {', '.join(CASES)}")
    if os.getloadavg()[0] > 0.5:
        say(f"WARNING: the machine is busy (load average {os.getloadavg()[0]:.2f}); measure on a quiet one")
    rows = []
    for name in options.cases or [name for name, case in CASES.items() if case.usual]:
        rows += run_case(name, options)
    table(rows)
    slow_peer = any(row.get("peer_blas") == "reference" for row in rows)
    if slow_peer:
        say("ERROR: PyTorch ran on the reference BLAS: its linear layers, LSTMs and convolutions of a single image are",
            "many times slower than with OpenBLAS (libopenblas0-pthread, which ./dev bench installs; see",
            "'update-alternatives --display libblas.so.3-x86_64-linux-gnu'). Do not quote these.")
    sys.exit(slow_peer or any("error" in row for row in rows))


if __name__ == "__main__":
    main()
