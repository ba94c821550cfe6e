"""What training costs beside the model: python benchmarks/training.py [--quick] [--out FILE]

CPU seconds of one thread, so that other work on the machine changes little. The two loops are interleaved in one
process, and what counts is the ratio within a pair.
"""

from __future__ import annotations

import argparse
import copy
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "training.md"
GOALS = {"overhead": 1.10, "compose": 1.5, "first_step": 8.0}
WARM_UP = 5  # steps

FIRST_STEP = """
import os, sys, time
from lossbench import app
from lossbench.progress import ProgressDisplay
from lossbench.run import run

def update(self, done, note=""):
    if self._name == "training":
        print(time.process_time(), file=sys.stderr, flush=True)
        os._exit(0)

ProgressDisplay.update = update
run(app.compose("tracking.mode=disabled", f"paths.runs={sys.argv[1]}"))
"""


def loops(steps: int, pairs: int) -> list[tuple[float, float]]:
    """(bare, lossbench) CPU seconds a step, in pairs."""
    import torch

    from lossbench import app
    from lossbench.data import task as tasks
    from lossbench.data.tokens import tokenize
    from lossbench.models.load import context_window, load

    torch.set_num_threads(1)
    config = app.compose(f"trainer.max_steps={steps}", "trainer.validate_every=1000000", "tracking.mode=disabled")
    task = tasks.create(config.dataset)
    examples = tasks.load(task, "train", steps * config.trainer.batch_size)
    model, tokenizer = load(config.model, config.peft)
    tokens = tokenize(examples, tokenizer, context_window(model) or sys.maxsize, ends_with_eos=task.ends_with_eos)
    found = []
    for pair in range(pairs + 1):
        bare = _bare(copy.deepcopy(model), tokens, config)
        ours = _ours(copy.deepcopy(model), tokenizer, task, tokens, config)
        if pair:  # the first pair warms up
            found.append((bare, ours))
            print(f"bare {bare * 1e3:.1f} ms, lossbench {ours * 1e3:.1f} ms, ratio {ours / bare:.3f}", file=sys.stderr)
    return found


def _bare(model: Any, tokens: Sequence[Any], config: Any) -> float:
    """The shortest loop that trains the same: the same batches, AdamW, schedule, clipping, cross-entropy on logits."""
    import torch
    import torch.nn.functional as F
    from torch.utils.data import DataLoader

    from lossbench.data.batches import StepDataset
    from lossbench.training.fit import step_plan
    from lossbench.training.optimization import create_optimizer, schedule

    steps = config.trainer.max_steps
    model.train()
    optimizer = create_optimizer(model, config.optimizer)
    rates = schedule(optimizer, config.scheduler, steps)
    weights = list(model.parameters())
    clock = _Clock(steps)
    for number, step in enumerate(DataLoader(StepDataset(tokens, step_plan(tokens, config), steps), batch_size=None)):
        (batch,) = step.batches
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        F.cross_entropy(logits.flatten(0, 1), batch.labels["answer"].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(weights, config.trainer.gradient_clip)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        clock.tick(number + 1)
    return clock.seconds_a_step


def _ours(model: Any, tokenizer: Any, task: Any, tokens: Sequence[Any], config: Any) -> float:
    """`fit` as a run calls it: fused head, log lines, checkpoints."""
    from lossbench.progress import ProgressDisplay
    from lossbench.training.context import Context
    from lossbench.training.fit import fit
    from lossbench.training.journal import Bystander
    from lossbench.training.objective import create_objective
    from lossbench.training.selection import Validation

    clock = _Clock(config.trainer.max_steps)

    class Ticking(ProgressDisplay):
        def update(self, done: int, note: str = "") -> None:
            clock.tick(done)

    objective = create_objective(config.loss)
    context = Context(objective, model, tokenizer, tokens)
    validation = Validation(task, [], tokens[:1], tokenizer, config)
    with tempfile.TemporaryDirectory() as folder:
        journal, progress = Bystander(Path(folder)), Ticking("benchmark", enabled=False)
        fit(model, objective, context, tokens, validation, config, journal, progress)
    return clock.seconds_a_step


class _Clock:
    """CPU seconds a step, from the end of the warm-up to the end of the last step but one."""

    def __init__(self, steps: int) -> None:
        self._first, self._last = WARM_UP, steps - 1
        self._begun = self.seconds_a_step = 0.0

    def tick(self, done: int) -> None:
        if done == self._first:
            self._begun = time.process_time()
        if done == self._last:
            self.seconds_a_step = (time.process_time() - self._begun) / (self._last - self._first)


def compose_seconds(times: int) -> list[float]:
    """CPU seconds of `python train.py --cfg job`, in processes of their own."""
    found = []
    for _ in range(times):
        before = _children()
        subprocess.run([sys.executable, "train.py", "--cfg", "job"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        found.append(_children() - before)
    return found


def first_step_seconds(times: int) -> list[float]:
    """CPU seconds from the start of a process to the end of the first training step of the default run."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as runs:
            ended = subprocess.run(
                [sys.executable, "-c", FIRST_STEP, runs], capture_output=True, text=True, check=True, cwd=ROOT
            )
        found.append(float(ended.stderr.splitlines()[-1]))
    return found


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(pairs: Sequence[tuple[float, float]], compose: Sequence[float], first: Sequence[float], steps: int) -> str:
    import lightning
    import torch

    ratios = sorted(ours / bare for bare, ours in pairs)
    rows = [
        ("CPU time a step ÷ that of a bare PyTorch loop", statistics.median(ratios), GOALS["overhead"], "",
         f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs"),
        ("`python train.py --cfg job`, CPU time", statistics.median(compose), GOALS["compose"], " s",
         f"{min(compose):.2f} to {max(compose):.2f} s in {len(compose)} starts"),
        ("start to the end of the first training step, CPU time", statistics.median(first), GOALS["first_step"], " s",
         f"{min(first):.2f} to {max(first):.2f} s in {len(first)} starts"),
    ]  # fmt: skip
    bare, ours = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    lines = [
        "# What training costs beside the model",
        "",
        "`python benchmarks/training.py` wrote this. CPU seconds, one thread, the embedded model (0.9 M parameters) on "
        "its default task.",
        "",
        "| what | median | goal | reached | range |",
        "|---|---|---|---|---|",
    ]
    for what, value, goal, unit, spread in rows:
        reached = "yes" if value <= goal else "no"
        lines.append(f"| {what} | {value:.2f}{unit} | ≤ {goal:.2f}{unit} | {reached} | {spread} |")
    lines += [
        "",
        f"A step took {bare:.1f} ms in the bare loop and {ours:.1f} ms in lossbench (medians of {len(pairs)} pairs of "
        f"{steps} steps). The bare loop computes cross-entropy on whole logits and logs nothing; lossbench's has the "
        "fused head and everything else that a run does: Lightning's loop, log lines with the gate mean, bookkeeping. "
        "Validation and checkpoints are not in these steps: both loops would pay for them alike.",
        "",
        f"Python {platform.python_version()}, torch {torch.__version__}, Lightning {lightning.__version__}, "
        f"{platform.machine()}, {os.cpu_count()} CPUs.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    steps, pairs, starts = (25, 3, 1) if arguments.quick else (60, 7, 5)
    text = report(loops(steps, pairs), compose_seconds(starts), first_step_seconds(starts), steps)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
