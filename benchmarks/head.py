"""Time and memory of the fused head, as ratios to cross-entropy on whole logits in the same run.

    python benchmarks/head.py                    # all shapes, about an hour; writes benchmarks/results/head.md
    python benchmarks/head.py --quick            # one small shape, under two minutes; prints the table
    python benchmarks/head.py --only 512x512x32000,float32,trained --rounds 7    # one table again

Time is CPU seconds of one thread, all methods of a table in turn in one fresh process, the ratio taken within each
round, the median over the rounds. Memory is the high-water mark of a fresh process a method (VmHWM after clear_refs),
less what stood before and the gradients that are returned. A goal is the largest ratio to be reached. Every number is
kept in benchmarks/results/head.json, from which the page is written, so that tables can be measured one by one.

Other people's code is measured where it is installed: pip install EMOLoss kornia, and without dependencies
pip install --no-deps cut-cross-entropy segmentation-models-pytorch.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from head_cases import BASE, CUT, EMO_AUTHORS, KORNIA, LOVASZ_AUTHORS, PLAIN, PRODUCTS, SMALL, TORCH, Setting

RESULTS = Path(__file__).parent / "results"
SHAPES = ("512x512x32000", "2048x1024x32000", "1024x896x151936")
KINDS = {  # our losses by the kind that a goal is about
    "cross_entropy": "TargetLoss",
    "focal": "TargetLoss",
    SMALL: "small",
    "squentropy": "row statistics",
    "label_smoothing": "row statistics",
    PLAIN: "RowLoss",
    "eaft": "RowLoss",
    "emo": "EMO",
    "generalized_dice": "generalized dice",
    "lovasz_softmax": "Lovasz",
}
OURS = list(KINDS)
TIME_GOALS = {
    ("float32", "trained"): {
        "TargetLoss": 0.90, "row statistics": 0.95, "RowLoss": 0.95, "EMO": 1.10, "generalized dice": 1.15,
        "Lovasz": 1.10,
    },
    ("float32", "frozen"): {"TargetLoss": 0.80, "Lovasz": 0.90},
    ("bfloat16", "trained"): {"TargetLoss": 0.90, "row statistics": 1.15, "EMO": 1.5, "Lovasz": 1.3},
    ("float32", "two threads"): {"TargetLoss": 0.95, "EMO": 1.10},
}  # fmt: skip
MEMORY_GOALS = {
    "float32": {
        "small": 0.03,
        "EMO": 0.12,
        **dict.fromkeys(("TargetLoss", "row statistics", "RowLoss", "generalized dice"), 0.06),
    },
    "bfloat16": {"small": 0.12},
}


@dataclass
class Verdicts:
    """Which goals were met."""

    missed: list[str] = field(default_factory=list)
    met: int = 0
    beyond: int = 0  # missed ones that the matrix products alone do not meet
    asked: bool = True  # False where the goals are not about what is measured

    def of(self, what: str, found: float, goal: float | None, products: float = 0.0) -> str:
        """The cell of a goal; `products` is what the matrix products of the method alone would have made of it."""
        if goal is None or not self.asked:
            return ""
        if found <= goal:
            self.met += 1
            return f"{goal:.3g} met"
        self.beyond += products > goal
        alone = f"; the products alone take {products:.3g}" if products else ""
        self.missed.append(f"{what}: {found:.3g} instead of {goal:.3g}{alone}")
        return f"{goal:.3g} **missed**"


# ------------------------------------------------------------------------------------------- in a process of its own


def run_once(setting: Setting, method: Callable[[], None], clock: Callable[[], float]) -> float:
    """Seconds of one call."""
    setting.hidden.grad = setting.weight.grad = None
    start = clock()
    method()
    return clock() - start


def measure_time(setting: Setting, names: list[str], rounds: int, threads: int) -> dict[str, list[float]]:
    """Seconds of every method, round by round: of the CPU with one thread, of the clock with more."""
    import torch

    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.monotonic
    methods = {name: method for name in names if (method := setting.method(name)) is not None}
    found: dict[str, list[float]] = {name: [] for name in methods}
    run_once(setting, methods[BASE], clock)
    for _ in range(rounds):
        for name, method in methods.items():
            found[name].append(run_once(setting, method, clock))
    return found


def measure_memory(setting: Setting, name: str) -> float | None:
    """Bytes beyond inputs and returned gradients at the high-water mark of one call."""
    method = setting.method(name)
    if method is None:
        return None
    small = Setting(f"4x{setting.h}x64", str(setting.dtype)[6:], frozen=not setting.weight.requires_grad)
    if (warm := small.method(name)) is not None:  # libraries and threads that the first call of anything loads
        warm()
    setting.hidden.grad = setting.weight.grad = None
    ctypes.CDLL(None).malloc_trim(0)  # else memory that the set-up has given back hides what the call takes
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    method()
    return (_memory("VmHWM") - before) - setting.returned_bytes


def _memory(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}; memory is measured on Linux only.")


def serve(request: dict[str, Any]) -> Any:
    setting = Setting(request["shape"], request["dtype"], frozen=request["frozen"], ignored=request.get("ignored", 0.0))
    if "memory" in request:
        return measure_memory(setting, request["memory"])
    return measure_time(setting, request["names"], request["rounds"], request.get("threads", 1))


def in_a_fresh_process(**request: Any) -> Any:
    """What `serve` answers; None, and the reason on stderr, where the process failed."""
    command = [sys.executable, __file__, "--serve", json.dumps({"dtype": "float32", "frozen": False, **request})]
    threads = {"OMP_NUM_THREADS": str(request.get("threads", 1)), "OMP_WAIT_POLICY": "PASSIVE"}  # none must spin
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads})
    if done.returncode:
        print(f"  {request}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def ratio(times: dict[str, list[float]], name: str, base: str = BASE) -> float:
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


# ----------------------------------------------------------------------------------------------------- what is measured


@dataclass(frozen=True)
class Table:
    """Methods at one shape and dtype; `how` is trained, frozen or two threads."""

    shape: str
    dtype: str
    how: str
    names: tuple[str, ...]
    memory: bool = True

    @property
    def title(self) -> str:
        return f"{self.shape},{self.dtype},{self.how}"

    def measure(self, rounds: int) -> dict[str, Any]:
        common = {"shape": self.shape, "dtype": self.dtype, "frozen": self.how == "frozen"}
        threads = 2 if self.how == "two threads" else 1
        times = in_a_fresh_process(names=[BASE, PRODUCTS, *self.names], rounds=rounds, threads=threads, **common)
        measured = [name for name in times or () if name != PRODUCTS] if self.memory else []
        return {"times": times, "memory": {name: in_a_fresh_process(memory=name, **common) for name in measured}}


@dataclass(frozen=True)
class Growth:
    """Extra memory against tokens and vocabulary, and the time of our Lovasz-softmax against tokens."""

    title: str = "growth"
    methods: tuple[str, ...] = ("cross_entropy", "emo", "lovasz_softmax")

    def measure(self, rounds: int) -> dict[str, Any]:
        sizes = [(512, 32000), (2048, 32000), (8192, 32000), (1024, 8000), (1024, 128000)]
        memory = {
            f"{n}x64x{v}": [in_a_fresh_process(memory=m, shape=f"{n}x64x{v}") for m in (BASE, *self.methods)]
            for n, v in sizes
        }
        seconds = {}
        for n in (512, 1024, 2048):
            times = in_a_fresh_process(names=[BASE, "lovasz_softmax"], rounds=rounds, shape=f"{n}x64x32000")
            seconds[n] = statistics.median(times["lovasz_softmax"])
        return {"memory": memory, "seconds": seconds}


@dataclass(frozen=True)
class HalfIgnored:
    """The time of a batch half of whose labels are ignored, to that of the whole batch."""

    title: str = "half ignored"
    shape: str = SHAPES[0]

    def measure(self, rounds: int) -> dict[str, Any]:
        whole, half = (
            in_a_fresh_process(shape=self.shape, ignored=share, names=[BASE, "focal"], rounds=rounds)
            for share in (0.0, 0.5)
        )
        return {"ratio": statistics.median(half["focal"]) / statistics.median(whole["focal"])}


def everything() -> list[Table | Growth | HalfIgnored]:
    few = ("cross_entropy", SMALL, "squentropy", PLAIN, "emo", "generalized_dice", "lovasz_softmax")
    found: list[Table | Growth | HalfIgnored] = []
    for shape, dtype in itertools.product(SHAPES, ("float32", "bfloat16")):
        ours = tuple(OURS) if shape != SHAPES[2] else few
        others = (CUT, EMO_AUTHORS) if dtype == "float32" and shape != SHAPES[2] else (CUT,)
        others += (TORCH,) if (shape, dtype) == (SHAPES[0], "float32") else ()  # minutes a call at the other shapes
        found.append(Table(shape, dtype, "trained", ours + others))
    for shape in SHAPES:
        found.append(Table(shape, "float32", "frozen", ("cross_entropy", "focal", "lovasz_softmax"), memory=False))
    found.append(Table(SHAPES[1], "float32", "two threads", ("focal", "emo"), memory=False))
    lovasz = ("lovasz_softmax", LOVASZ_AUTHORS, KORNIA)
    found.append(Table("512x64x32000", "float32", "trained", lovasz, memory=False))
    return [*found, HalfIgnored(), Growth()]


QUICK = Table("256x256x16000", "float32", "trained", ("cross_entropy", SMALL, "squentropy", "emo", "lovasz_softmax"))

# ---------------------------------------------------------------------------------------------------------- the page


def page(results: dict[str, Any]) -> str:
    verdicts = Verdicts()
    parts = []
    for part in everything():
        found = results.get(part.title)
        if found is None:
            continue
        write = {Table: table, Growth: growth, HalfIgnored: half_ignored}[type(part)]
        parts.append(write(part, found, verdicts))
    asked = verdicts.met + len(verdicts.missed)
    lines = [f"{verdicts.met} of {asked} goals are met."]
    if verdicts.beyond:
        lines[0] += (
            f" {verdicts.beyond} of the others ask for less than the matrix products alone take on this processor."
        )
    if verdicts.missed:
        lines[0] += " Missed:"
    lines += ["", *(f"- {line}" for line in verdicts.missed)]
    return "\n".join([heading(results), *lines, "", *parts]).rstrip() + "\n"


def heading(results: dict[str, Any]) -> str:
    machines = sorted({found["machine"] for found in results.values()})
    return (
        f"# The fused head against whole logits\n\n{'; '.join(machines)}. Made by `python benchmarks/head.py`. Ratios "
        "within a round hold on a shared machine, seconds do not. *To matrix products*: to the three products of the "
        "head alone (two where it is frozen), the least that there is to compute.\n"
    )


def table(part: Table, found: dict[str, Any], verdicts: Verdicts) -> str:
    times, extra = found["times"], found["memory"]
    title = f"{part.shape}, {part.dtype}, {part.how}"
    if times is None:
        return f"## {title}\n\nnot measured: the process ended early\n"
    base = extra.get(BASE)
    clock = "wall" if part.how == "two threads" else "CPU"
    lines = [
        f"## {title}",
        "",
        f"{len(times[BASE])} rounds.",
        "",
        f"| method | {clock} s | time ratio | goal | to matrix products | extra MB | memory ratio | goal |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in times:
        cells = [name, f"{statistics.median(times[name]):.2f}", f"{ratio(times, name):.2f}"]
        goal = TIME_GOALS.get((part.dtype, part.how), {}).get(KINDS.get(name, "")) if part.shape in SHAPES else None
        cells += [verdicts.of(f"time of {name}, {title}", ratio(times, name), goal, products_of(part, name, times))]
        cells += [f"{ratio(times, name, PRODUCTS):.2f}"]
        size = extra.get(name)
        if size is None or not base:
            cells += ["", "", ""]
        else:
            goal = memory_goal(part, name, base)
            cells += [f"{size / 1e6:.0f}", f"{size / base:.3f}"]
            cells += [verdicts.of(f"memory of {name}, {title}", size / base, goal)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + comparisons(part, times, extra, verdicts)) + "\n"


def memory_goal(part: Table, name: str, base: float) -> float | None:
    """The largest ratio to the extra memory of whole logits."""
    kind = KINDS.get(name, "")
    n = int(part.shape.split("x")[0])
    if part.how != "trained" or part.shape not in SHAPES or (kind == "EMO" and n < 2048):
        return None
    if kind == "Lovasz" and part.dtype == "float32":  # and 4 bytes for each pair of a token and a class that occurs
        return 0.06 + 4 * n * classes(part) / base
    return MEMORY_GOALS.get(part.dtype, {}).get(kind)


def classes(part: Table) -> int:
    """How many different labels occur."""
    n, _, v = (int(size) for size in part.shape.split("x"))
    return len(set(Setting(f"{n}x1x{v}", part.dtype, frozen=True).labels.tolist()))


def products_of(part: Table, name: str, times: dict[str, list[float]], base: str = BASE) -> float:
    """The time of the matrix products that a method cannot do without, to that of `base`: those of the head, and for
    EMO the cosines of every label that occurs with the whole vocabulary."""
    more = 0.0
    if KINDS.get(name) == "EMO":
        more = classes(part) / int(part.shape.split("x")[0]) / (2 if part.how == "frozen" else 3)
    return ratio(times, PRODUCTS, base) * (1 + more)


def comparisons(part: Table, times: Any, extra: dict[str, float], verdicts: Verdicts) -> list[str]:
    """Sentences about other people's code in the same table."""
    lines = []
    title = f"{part.shape}, {part.dtype}, {part.how}"
    for ours, theirs, time_goal, memory_limit in (
        ("cross_entropy", CUT, 1.0, 0.15),
        ("emo", EMO_AUTHORS, 0.40, 0.06),
        ("lovasz_softmax", LOVASZ_AUTHORS, 1 / 50, None),
        ("lovasz_softmax", KORNIA, None, None),
    ):
        if theirs not in times or ours not in times:
            continue
        found = ratio(times, ours, theirs)
        alone = products_of(part, ours, times, theirs)
        cell = verdicts.of(f"time of {ours} to {theirs}, {title}", found, time_goal, alone)
        line = f"{ours} takes {found:.3g} of the time of {theirs}{f' ({cell})' if cell else ''}"
        if extra.get(ours) and extra.get(theirs):
            share = extra[ours] / extra[theirs]
            cell = verdicts.of(f"memory of {ours} to {theirs}, {title}", share, memory_limit)
            line += f" and {share:.3g} of its memory{f' ({cell})' if cell else ''}"
        lines += ["", line + "."]
    return lines


def growth(part: Growth, found: dict[str, Any], verdicts: Verdicts) -> str:
    lines = ["## Growth (float32, H = 64, trained)", ""]
    lines += [f"| N | V | whole logits MB | {' MB | '.join(part.methods)} MB |", "|--:|--:|" + "--:|" * 4]
    for shape, sizes in found["memory"].items():
        n, _, v = shape.split("x")
        lines.append(f"| {n} | {v} | " + " | ".join("" if x is None else f"{x / 1e6:.0f}" for x in sizes) + " |")
    seconds = {int(n): value for n, value in found["seconds"].items()}
    for n in (512, 1024):
        times = seconds[2 * n] / seconds[n]
        cell = verdicts.of(f"time of lovasz_softmax from {n} to {2 * n} tokens", times, 2.6)
        lines += ["", f"lovasz_softmax: {2 * n} tokens take {times:.2f} times as long as {n} ({cell})."]
    return "\n".join(lines) + "\n"


def half_ignored(part: HalfIgnored, found: dict[str, Any], verdicts: Verdicts) -> str:
    cell = verdicts.of(f"half of the labels ignored, {part.shape}", found["ratio"], 0.6)
    text = f"At {part.shape} focal takes {found['ratio']:.2f} of its whole time ({cell})."
    return f"## Half of the labels ignored\n\n{text}\n"


def machine() -> str:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")] or ["unknown processor"]
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {platform.machine()} {capability}, {names[0]}, {len(names)} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="TABLE", help="; ".join(part.title for part in everything()))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one small shape, printed and not kept; no goals")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        print(json.dumps(serve(json.loads(options.serve))))
        return
    if options.quick:
        print(table(QUICK, QUICK.measure(3), Verdicts(asked=False)))
        return
    for part in everything():
        if options.only and part.title not in options.only:
            continue
        print(part.title, file=sys.stderr, flush=True)
        found = {"machine": machine(), **part.measure(options.rounds)}
        kept = RESULTS / "head.json"
        results = {**(json.loads(kept.read_text()) if kept.exists() else {}), part.title: found}
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "head.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
