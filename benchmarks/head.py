"""Time and memory of the fused head, as ratios to cross-entropy on whole logits in the same run.

    python benchmarks/head.py                    # all shapes, about an hour; writes benchmarks/results/head.md
    python benchmarks/head.py --quick            # one small shape, under two minutes; prints the table
    python benchmarks/head.py --only 512x512x32000 --rounds 7

Time is CPU seconds of one thread, all methods of a table in turn in one fresh process, the ratio taken within each
round, the median over the rounds. Memory is the high-water mark of a fresh process a method (VmHWM after clear_refs),
less what stood before and the gradients that are returned. A goal is the largest ratio to be reached.

Other people's code is measured where it is installed: pip install EMOLoss kornia, and without dependencies
pip install --no-deps cut-cross-entropy segmentation-models-pytorch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from head_cases import BASE, CUT, EMO_AUTHORS, KORNIA, LOVASZ_AUTHORS, PLAIN, PRODUCTS, SMALL, TORCH, Setting

RESULTS = Path(__file__).parent / "results" / "head.md"
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
    asked: bool = True  # False where the goals are not about what is measured

    def of(self, what: str, found: float, goal: float | None) -> str:
        """The cell of a goal."""
        if goal is None or not self.asked:
            return ""
        if found <= goal:
            self.met += 1
            return f"{goal:.3g} met"
        self.missed.append(f"{what}: {found:.3g} instead of {goal:.3g}")
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


# ------------------------------------------------------------------------------------------------------- the tables


def table(
    shape: str, dtype: str, how: str, names: list[str], rounds: int, verdicts: Verdicts, *, memory: bool = True
) -> str:
    """One table: methods at one shape and dtype; `how` is trained, frozen or two threads."""
    common = {"shape": shape, "dtype": dtype, "frozen": how == "frozen"}
    title = f"{shape}, {dtype}, {how}"
    print(title, file=sys.stderr)
    threads = 2 if how == "two threads" else 1
    times = in_a_fresh_process(names=[BASE, PRODUCTS, *names], rounds=rounds, threads=threads, **common)
    if times is None:
        return f"## {title}\n\nnot measured: the process ended early\n"
    measured = [name for name in times if name != PRODUCTS]
    extra = {name: in_a_fresh_process(memory=name, **common) for name in measured} if memory else {}
    base = extra.get(BASE)
    lines = [
        f"## {title} ({rounds} rounds)",
        "",
        f"| method | {'CPU' if threads == 1 else 'wall'} s | time ratio | goal | to matrix products | extra MB "
        "| memory ratio | goal |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in times:
        found = ratio(times, name)
        goal = TIME_GOALS.get((dtype, how), {}).get(KINDS.get(name, "")) if shape in SHAPES else None
        cells = [name, f"{statistics.median(times[name]):.2f}", f"{found:.2f}"]
        cells += [verdicts.of(f"time of {name}, {title}", found, goal), f"{ratio(times, name, PRODUCTS):.2f}"]
        size = extra.get(name)
        if size is None or not base:
            cells += ["", "", ""]
        else:
            goal = memory_goal(shape, dtype, name, base) if how == "trained" else None
            cells += [f"{size / 1e6:.0f}", f"{size / base:.3f}"]
            cells += [verdicts.of(f"memory of {name}, {title}", size / base, goal)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + comparisons(times, extra, title, verdicts)) + "\n"


def memory_goal(shape: str, dtype: str, name: str, base: float) -> float | None:
    """The largest ratio to the extra memory of whole logits."""
    kind = KINDS.get(name, "")
    n, _, v = (int(size) for size in shape.split("x"))
    if kind == "EMO" and n < 2048:
        return None
    if kind == "Lovasz" and dtype == "float32":  # and 4 bytes for each pair of a token and a class that occurs
        return 0.06 + 4 * n * len(set(Setting(f"{n}x1x{v}", dtype, frozen=True).labels.tolist())) / base
    return MEMORY_GOALS.get(dtype, {}).get(kind)


def comparisons(times: Any, extra: dict[str, float], title: str, verdicts: Verdicts) -> list[str]:
    """Sentences about other people's code in the same table."""
    lines = []
    for ours, theirs, time_goal, memory_goal_ in (
        ("cross_entropy", CUT, 1.0, 0.15),
        ("emo", EMO_AUTHORS, 0.40, 0.06),
        ("lovasz_softmax", LOVASZ_AUTHORS, 1 / 50, None),
        ("lovasz_softmax", KORNIA, None, None),
    ):
        if theirs not in times or ours not in times:
            continue
        found = ratio(times, ours, theirs)
        cell = verdicts.of(f"time of {ours} to {theirs}, {title}", found, time_goal)
        line = f"{ours} takes {found:.3g} of the time of {theirs}{f' ({cell})' if cell else ''}"
        if extra.get(ours) and extra.get(theirs):
            share = extra[ours] / extra[theirs]
            cell = verdicts.of(f"memory of {ours} to {theirs}, {title}", share, memory_goal_)
            line += f" and {share:.3g} of its memory{f' ({cell})' if cell else ''}"
        lines += ["", line + "."]
    return lines


def growth(tokens: list[int], verdicts: Verdicts) -> str:
    """Extra memory against tokens and vocabulary, and the time of our Lovasz-softmax against tokens."""
    methods = ["cross_entropy", "emo", "lovasz_softmax"]
    lines = ["## Growth (float32, H = 64, trained)", "", f"| N | V | whole logits MB | {' MB | '.join(methods)} MB |"]
    lines.append("|--:|--:|" + "--:|" * (1 + len(methods)))
    for n, v in [*((n, 32000) for n in tokens), (1024, 8000), (1024, 128000)]:
        found = [in_a_fresh_process(memory=m, shape=f"{n}x64x{v}") for m in (BASE, *methods)]
        lines.append(f"| {n} | {v} | " + " | ".join("" if x is None else f"{x / 1e6:.0f}" for x in found) + " |")
    seconds = {
        n: statistics.median(
            in_a_fresh_process(names=[BASE, "lovasz_softmax"], rounds=5, shape=f"{n}x64x32000")["lovasz_softmax"]
        )
        for n in (512, 1024, 2048)
    }
    for n in (512, 1024):
        found = seconds[2 * n] / seconds[n]
        cell = verdicts.of(f"time of lovasz_softmax from {n} to {2 * n} tokens", found, 2.6)
        lines += ["", f"lovasz_softmax: {2 * n} tokens take {found:.2f} times as long as {n} ({cell})."]
    return "\n".join(lines) + "\n"


def half_ignored(shape: str, rounds: int, verdicts: Verdicts) -> str:
    whole, half = (
        in_a_fresh_process(shape=shape, ignored=share, names=[BASE, "focal"], rounds=rounds) for share in (0.0, 0.5)
    )
    found = statistics.median(half["focal"]) / statistics.median(whole["focal"])
    cell = verdicts.of(f"half of the labels ignored, {shape}", found, 0.6)
    return f"## Half of the labels ignored\n\nAt {shape} focal takes {found:.2f} of its whole time ({cell}).\n"


def sections(options: argparse.Namespace, verdicts: Verdicts) -> Iterator[str]:
    """The tables, one by one as they are measured."""
    rounds = options.rounds
    if options.quick:
        names = ["cross_entropy", SMALL, "squentropy", "emo", "lovasz_softmax"]
        yield table("256x256x16000", "float32", "trained", names, 3, Verdicts(asked=False))
        return
    for k, shape in enumerate(options.only or SHAPES):
        for dtype in ("float32", "bfloat16"):
            others = [CUT, *([EMO_AUTHORS] if k < 2 and dtype == "float32" else [])]
            others += [TORCH] if k == 0 and dtype == "float32" else []  # minutes a call at the other shapes
            yield table(shape, dtype, "trained", [*OURS, *others], rounds, verdicts)
        yield table(shape, "float32", "frozen", ["cross_entropy", "focal", "lovasz_softmax"], rounds, verdicts)
    yield table("2048x1024x32000", "float32", "two threads", ["focal", "emo"], rounds, verdicts, memory=False)
    yield half_ignored("512x512x32000", rounds, verdicts)
    names = ["lovasz_softmax", LOVASZ_AUTHORS, KORNIA]
    yield table("512x64x32000", "float32", "trained", names, 2, verdicts, memory=False)
    yield growth([512, 2048, 8192], verdicts)


def heading() -> str:
    import torch

    return (
        "# The fused head against whole logits\n\n"
        f"torch {torch.__version__}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{processor()}; `python benchmarks/head.py`. Ratios within a round hold on a shared machine, seconds do not.\n"
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else "unknown processor"


def summary(verdicts: Verdicts) -> str:
    asked = verdicts.met + len(verdicts.missed)
    lines = [f"{verdicts.met} of {asked} goals are met." + (" Missed:" if verdicts.missed else "")]
    return "\n".join([*lines, "", *(f"- {line}" for line in verdicts.missed)]).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NxHxV", help=f"these shapes instead of {', '.join(SHAPES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file that is written")
    parser.add_argument("--quick", action="store_true", help="one small shape, printed and not written")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        print(json.dumps(serve(json.loads(options.serve))))
        return
    verdicts, parts = Verdicts(), []
    for text in sections(options, verdicts):
        parts.append(text)
        print(text, flush=True)
        if not options.quick:
            options.out.parent.mkdir(exist_ok=True)
            options.out.write_text("\n".join([heading(), summary(verdicts), *parts]), encoding="utf-8")


if __name__ == "__main__":
    main()
