"""Time and memory of the fused head, as ratios to cross-entropy on whole logits in the same run.

    python benchmarks/head.py                    # all shapes, about an hour; writes benchmarks/results/head.md
    python benchmarks/head.py --quick            # one small shape, under two minutes; prints the table
    python benchmarks/head.py --shapes 512x512x32000 --dtypes float32 --rounds 7

Time is CPU seconds of one thread, all methods of a shape interleaved in one fresh process, the ratio taken within each
round, the median over the rounds. Memory is the high-water mark of a fresh process a method (VmHWM after clear_refs),
less what stood before and the gradients that are returned. Labels follow Zipf's law over a shuffled vocabulary.
"""

from __future__ import annotations

import os

os.environ.update(OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS="1")  # before torch: waiting threads must not spin

import argparse
import ctypes
import functools
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "head.md"
SHAPES = ("512x512x32000", "2048x1024x32000", "1024x896x151936")
BASE = "cross_entropy on whole logits"
KINDS = {  # our losses by the kind that a goal is about
    "cross_entropy": "TargetLoss",
    "focal": "TargetLoss",
    "squentropy": "row statistics",
    "label_smoothing": "row statistics",
    "eaft": "RowLoss",
    "emo": "EMO",
    "generalized_dice": "generalized dice",
    "lovasz_softmax": "Lovasz",
}
TIME_GOALS = {
    ("float32", False): {
        "TargetLoss": 0.90, "row statistics": 0.95, "RowLoss": 0.95, "EMO": 1.10, "generalized dice": 1.15,
        "Lovasz": 1.10,
    },
    ("float32", True): {"TargetLoss": 0.80, "Lovasz": 0.90},
    ("bfloat16", False): {"TargetLoss": 0.90, "row statistics": 1.15, "EMO": 1.5, "Lovasz": 1.3},
}  # fmt: skip
MEMORY_GOALS = {
    "float32": {"EMO": 0.12, **dict.fromkeys(("TargetLoss", "row statistics", "RowLoss", "generalized dice"), 0.06)},
    "bfloat16": {"TargetLoss": 0.12},
}


class Setting:
    """A head, hidden states and labels of one shape, and the methods that are measured on them."""

    def __init__(self, shape: str, dtype: str, *, frozen: bool, ignored: float = 0.0) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.n, self.h, self.v = (int(size) for size in shape.split("x"))
        self.dtype = getattr(torch, dtype)
        frequency = 1 / torch.arange(1, self.v + 1, dtype=torch.float64)
        self.labels = torch.randperm(self.v)[torch.multinomial(frequency, self.n, replacement=True)]
        weight = torch.randn(self.v, self.h) / self.h**0.5
        push = 14 * torch.rand(self.n, 1)  # logit of the label: probabilities spread over (0, 1)
        hidden = torch.randn(self.n, self.h) + push * weight[self.labels]
        self.weight = weight.to(self.dtype).requires_grad_(not frozen)
        self.hidden = hidden.to(self.dtype).requires_grad_()
        if ignored:
            self.labels[torch.rand(self.n) < ignored] = -100

    def method(self, name: str) -> Callable[[], None] | None:
        """One forward and backward of a method; None where its package is not installed."""
        import torch
        import torch.nn.functional as F

        hidden, weight, labels = self.hidden, self.weight, self.labels
        if name == BASE:
            return lambda: F.cross_entropy(hidden @ weight.T, labels).backward()
        if name == "matrix products alone":
            return self._products
        if name == "torch linear_cross_entropy":
            from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions as Options

            fused: Any = functools.partial(F.linear_cross_entropy, hidden, weight, labels, options=Options())
            return lambda: fused().backward()
        if name == "compiled linear + cross_entropy":  # what cut-cross-entropy runs where there is no Triton
            compiled = torch.compile(lambda x, w, y: F.cross_entropy((x @ w.T).float(), y), dynamic=False)
            compiled(hidden, weight, labels).backward()
            return lambda: compiled(hidden, weight, labels).backward()
        if name == "EMOLoss package":
            try:
                from emo import EMOLoss
            except ImportError:
                return None
            cost = weight.detach().clone()
            padded = F.pad(labels, (1, 0), value=-100)[None]  # it shifts the labels itself
            return lambda: EMOLoss(F.pad(hidden @ weight.T, (0, 0, 0, 1))[None], padded, cost).backward()
        if name == "kornia lovasz_softmax":
            try:
                from kornia.losses import lovasz_softmax_loss
            except ImportError:
                return None
            return lambda: lovasz_softmax_loss(
                (hidden @ weight.T).T[None, :, :, None], labels[None, :, None]
            ).backward()
        return self._ours(name)

    def _ours(self, name: str) -> Callable[[], None]:
        from lossbench import losses

        loss = losses.create(name)
        if "embedding" in loss.needs:
            loss.bind(embedding=self.weight.detach().clone())
        return lambda: losses.linear(self.hidden, self.weight, self.labels, loss).backward()

    def _products(self) -> None:
        hidden, weight = self.hidden.detach(), self.weight.detach()
        logits = hidden @ weight.T
        logits @ weight
        if self.weight.requires_grad:
            logits.T @ hidden

    def run(self, method: Callable[[], None]) -> float:
        """CPU seconds of one call."""
        self.hidden.grad = self.weight.grad = None
        start = time.process_time()
        method()
        return time.process_time() - start

    @property
    def gradient_bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (self.hidden, self.weight) if x.requires_grad)


def measure_time(setting: Setting, names: list[str], rounds: int, seconds: float) -> dict[str, list[float]]:
    """CPU seconds of every method, round by round; no further round once `seconds` are over, but three at least."""
    methods = {name: method for name in names if (method := setting.method(name)) is not None}
    found: dict[str, list[float]] = {name: [] for name in methods}
    started = time.monotonic()
    setting.run(methods[BASE])
    for done in range(rounds):
        for name, method in methods.items():
            found[name].append(setting.run(method))
        if done >= 2 and time.monotonic() - started > seconds:
            break
    return found


def measure_memory(setting: Setting, name: str) -> float | None:
    """Bytes beyond inputs and returned gradients at the high-water mark of one call."""
    method = setting.method(name)
    if method is None:
        return None
    _warm_up(name, setting)
    setting.hidden.grad = setting.weight.grad = None
    ctypes.CDLL(None).malloc_trim(0)  # else memory that the set-up has given back hides what the call takes
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    method()
    return (_memory("VmHWM") - before) - setting.gradient_bytes


def _warm_up(name: str, setting: Setting) -> None:
    """Load the libraries and threads that the first call of anything allocates, on a few tokens."""
    small = Setting(
        f"4x{setting.h}x64", str(setting.dtype).removeprefix("torch."), frozen=not setting.weight.requires_grad
    )
    method = small.method(name)
    if method is not None:
        method()


def _memory(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}; memory is measured on Linux only.")


def in_a_fresh_process(**request: Any) -> Any:
    """What `serve` prints for a request."""
    done = subprocess.run([sys.executable, __file__, "--serve", json.dumps(request)], capture_output=True, text=True)
    if done.returncode:
        print(f"  {request}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def serve(request: dict[str, Any]) -> Any:
    setting = Setting(request["shape"], request["dtype"], frozen=request["frozen"], ignored=request.get("ignored", 0.0))
    if "memory" in request:
        return measure_memory(setting, request["memory"])
    return measure_time(setting, request["names"], request["rounds"], request["seconds"])


def section(
    shape: str, dtype: str, frozen: bool, ours: list[str], peers: list[str], options: argparse.Namespace
) -> str:
    """One table: every method at one shape and dtype."""
    common = {"shape": shape, "dtype": dtype, "frozen": frozen}
    names = [BASE, "matrix products alone", *ours, *peers]
    print(f"{shape} {dtype}{' frozen' if frozen else ''}", file=sys.stderr)
    times = in_a_fresh_process(names=names, rounds=options.rounds, seconds=options.seconds, **common)
    if times is None:
        return f"## {shape}, {dtype}\n\nnot measured: the process ended early\n"
    measured = [name for name in names if name in times and name != "matrix products alone"]
    extra = {name: in_a_fresh_process(memory=name, **common) for name in measured if not options.no_memory}
    title = f"## {shape}, {dtype}{', frozen head' if frozen else ''} ({len(times[BASE])} rounds)"
    lines = [
        title,
        "",
        "| method | CPU s | time ratio | goal | extra MB | memory ratio | goal |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in (name for name in names if name in times):
        ratio = statistics.median(a / b for a, b in zip(times[name], times[BASE], strict=True))
        goal = TIME_GOALS.get((dtype, frozen), {}).get(KINDS.get(name, ""))
        cells = [name, f"{statistics.median(times[name]):.2f}", f"{ratio:.2f}", verdict(ratio, goal)]
        size, base = extra.get(name), extra.get(BASE)
        if size is None or not base:
            cells += ["", "", ""]
        else:
            limit = MEMORY_GOALS.get(dtype, {}).get(KINDS.get(name, "")) if not frozen else None
            cells += [f"{size / 1e6:.0f}", f"{size / base:.3f}", verdict(size / base, limit)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def verdict(found: float, goal: float | None) -> str:
    return "" if goal is None else f"{goal:.2f} {'met' if found <= goal else 'missed'}"


def growth(options: argparse.Namespace) -> str:
    """Extra memory against the number of tokens, and the time of a batch whose labels are half ignored."""
    lines = [
        "## Growth",
        "",
        "| tokens (H 64, V 32000, float32) | whole logits MB | cross_entropy MB | emo MB | lovasz MB |",
        "|--:|--:|--:|--:|--:|",
    ]
    for n in options.growth:
        common = {"shape": f"{n}x64x32000", "dtype": "float32", "frozen": False}
        found = [in_a_fresh_process(memory=m, **common) for m in (BASE, "cross_entropy", "emo", "lovasz_softmax")]
        lines.append(f"| {n} | " + " | ".join("" if x is None else f"{x / 1e6:.0f}" for x in found) + " |")
    common = {
        "shape": options.shapes[0],
        "dtype": "float32",
        "frozen": False,
        "names": [BASE, "focal"],
        "rounds": options.rounds,
    }
    whole, half = (in_a_fresh_process(ignored=share, seconds=60, **common) for share in (0.0, 0.5))
    ratio = statistics.median(half["focal"]) / statistics.median(whole["focal"])
    lines += ["", f"With half of the labels ignored focal takes {ratio:.2f} of its whole time (goal 0.60)."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), metavar="NxHxV")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--ours", nargs="+", default=list(KINDS), metavar="LOSS", help="losses to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600.0, help="start no further round of a table after this")
    parser.add_argument("--growth", nargs="*", type=int, default=[512, 2048, 8192])
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--no-frozen", action="store_true", help="leave out the tables of a frozen head")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table that is written")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one small shape, printed and not written")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        print(json.dumps(serve(json.loads(options.serve))))
        return
    if options.quick:
        options.shapes, options.dtypes, options.growth, options.rounds = ["256x256x16000"], ["float32"], [], 3
        options.ours, options.no_peers, options.no_frozen = (
            ["cross_entropy", "squentropy", "emo", "lovasz_softmax"],
            True,
            True,
        )
    peers = (
        [] if options.no_peers else ["compiled linear + cross_entropy", "torch linear_cross_entropy", "EMOLoss package"]
    )
    parts = [heading()]
    for text in sections(options, peers):
        parts.append(text)
        print(text, flush=True)
        if not options.quick:
            options.out.parent.mkdir(exist_ok=True)
            options.out.write_text("\n".join(parts), encoding="utf-8")


def sections(options: argparse.Namespace, peers: list[str]) -> Iterator[str]:
    """The tables, one by one as they are measured."""
    for k, shape in enumerate(options.shapes):
        for dtype in options.dtypes:
            slow = ["kornia lovasz_softmax"] if k == 0 and dtype == "float32" and peers else []
            chosen = [
                p for p in peers if not (p.startswith("torch") and (k or dtype != "float32"))
            ]  # minutes a call there
            yield section(shape, dtype, False, options.ours, [*chosen, *slow], options)
        if k < 2 and not options.no_frozen:
            ours = ["cross_entropy", "focal", "goldfish", "lovasz_softmax"]
            yield section(shape, "float32", True, ours, [], options)
    if options.growth:
        yield growth(options)


def heading() -> str:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return (
        "# The fused head against whole logits\n\n"
        f"torch {torch.__version__}, {platform.machine()}, {capability}, one thread, cores shared with other work: "
        "ratios within a round hold, seconds do not. A goal is the largest ratio to be reached.\n"
    )


if __name__ == "__main__":
    main()
