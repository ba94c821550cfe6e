"""`lossbench runs`: what a study's runs are doing, and ways to reach them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from .application import COMPARE, Json, app

if TYPE_CHECKING:
    from lossbench.sweep.slurm.watch import Watcher
    from lossbench.sweep.status import Standing

Runs = Annotated[Path, typer.Option(help="The folder that holds the studies.")]
Study = Annotated[str, typer.Argument(help="A study below --runs, or its folder.")]
Which = Annotated[str, typer.Argument(metavar="ID", help="A study, or a run's id, its beginning, its name or its job.")]
DEFAULT = Path("runs")
REFRESH = 5.0  # seconds


class _ShortForm(TyperGroup):
    """`lossbench runs STUDY` means `lossbench runs list STUDY`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


runs = typer.Typer(
    cls=_ShortForm,
    no_args_is_help=True,
    help="""Show a study's runs; follow, cancel or retry them.

    Examples:
    lossbench runs demo
    lossbench runs demo --watch
    lossbench runs logs 3f2a
    lossbench runs cancel demo
    """,
)
app.add_typer(runs, name="runs", rich_help_panel=COMPARE)


@runs.command("list")
def list_runs(
    study: Study,
    runs: Runs = DEFAULT,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option(help="Show it again and again until nothing runs.")] = False,
) -> None:
    """List the runs of a study (the word `list` may be left out).

    Examples:
    lossbench runs demo --json
    """
    from lossbench.sweep.control import Target, looked_at
    from lossbench.sweep.status import expected, study_folder

    folder = study_folder(runs, study)
    while True:
        found, watcher = looked_at(Target(folder, tuple(expected(folder))))
        if as_json:
            print(json.dumps([_as_data(folder, one) for one in found], indent=2))
        else:
            text = "\n".join(_lines(folder, found, watcher))
            print(f"\x1b[2J\x1b[H{text}" if watch and sys.stdout.isatty() else text, flush=True)
        if not watch or not any(one.is_active for one in found):
            return
        try:
            time.sleep(REFRESH)
        except KeyboardInterrupt:
            return


@runs.command()
def attach(study: Study, runs: Runs = DEFAULT) -> None:
    """Follow a study that was submitted earlier, as the launcher would, to its end.

    Examples:
    lossbench runs attach emo_lm
    """
    from rich.console import Console

    from lossbench.sweep.slurm import registry
    from lossbench.sweep.slurm.launch import follow
    from lossbench.sweep.status import expected, study_folder

    folder = study_folder(runs, study)
    submissions = registry.recover(folder)
    poll_s = float(submissions[-1].settings.get("poll_s", 15.0)) if submissions else 15.0
    follow({folder: expected(folder)}, poll_s, Console(stderr=True))


@runs.command()
def cancel(which: Which, runs: Runs = DEFAULT, as_json: Json = False) -> None:
    """End a run, or all runs of a study. What is saved stays, and can be gone on with.

    Examples:
    lossbench runs cancel 3f2a
    """
    from lossbench.sweep.control import cancel, target

    ended = cancel(target(runs, which))
    if as_json:
        print(json.dumps({"cancelled": list(ended)}, indent=2))
        return
    print("\n".join(f"cancelled {name}" for name in ended) or "Nothing of it is running or waiting.")


@runs.command()
def retry(which: Which, runs: Runs = DEFAULT, as_json: Json = False) -> None:
    """Start again a run, or all of a study, that ended without being finished; on the cluster if it ran there.

    Examples:
    lossbench runs retry 3f2a
    """
    from lossbench.sweep.control import retry, target

    sys.path.insert(0, "")  # a loss of one's own may lie in the present folder
    again, arrays = retry(target(runs, which))
    if as_json:
        print(json.dumps({"started": list(again), "arrays": list(arrays)}, indent=2))
        return
    for name in again:
        print(f"started {name}")
    if arrays:
        print(f"Submitted as {', '.join(arrays)}.")
    if not again:
        print("Nothing of it can be started again: it is finished, or still runs.")


@runs.command()
def logs(
    which: Which,
    runs: Runs = DEFAULT,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines from the end.")] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what is added, until Ctrl-C.")] = False,
) -> None:
    """Print the end of a run's log, and what SLURM wrote about its job.

    Examples:
    lossbench runs logs 3f2a --follow
    """
    from lossbench.sweep.child import LOG
    from lossbench.sweep.slurm import registry
    from lossbench.sweep.status import batch_logs, find_run, tail

    study, run = find_run(runs, which)
    task = registry.latest_tasks(registry.submissions(study)).get(run.id)
    for file in batch_logs(study, task) if task else []:
        print(f"==> {file}")
        print("\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]))
    print(f"==> {run.folder / LOG}")
    print("\n".join(tail(run, lines)))
    if follow:
        _follow(run.folder / LOG)


def _follow(file: Path) -> None:
    place = file.stat().st_size if file.exists() else 0
    try:
        while True:
            time.sleep(0.5)
            if file.exists():
                with file.open("rb") as log:
                    log.seek(place)
                    added = log.read()
                place += len(added)
                sys.stdout.write(added.decode(errors="replace"))
                sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _lines(folder: Path, found: list[Standing], watcher: Watcher) -> list[str]:
    """The list as text."""
    from collections import Counter

    from lossbench.sweep.estimate import duration
    from lossbench.sweep.outcome import Kind
    from lossbench.sweep.status import tail

    counts = Counter(one.outcome.kind for one in found)
    done = counts.pop(Kind.FINISHED, 0)
    others = "".join(f", {count} {kind}" for kind, count in counts.items())
    lines = [f"{folder.name}: {len(found)} runs, {done} done{others}"]
    if watcher.trouble:
        age = f"{duration(time.time() - watcher.asked)} old" if watcher.asked else "not known"
        lines.append(f"SLURM does not answer ({watcher.trouble}); what follows about jobs is {age}.")
    width = max((len(one.run.name) for one in found), default=0)
    for one in found:
        lines.append(f"{one.outcome.kind:<13} {one.run.name:<{width}}  {_progress(one)}".rstrip())
        if one.outcome.reason:
            lines.append(f"{'':<13} {one.outcome.reason}")
        if one.outcome.kind.is_failure:
            lines += [f"{'':<13} | {line}" for line in tail(one.run, 3)]
    return lines


def _progress(one: Standing) -> str:
    """`step 120/320  4.1 step/s  49 s left  n0  job 12_3` for a run that is under way; its folder once it has ended."""
    from lossbench.sweep.estimate import duration
    from lossbench.sweep.outcome import Kind
    from lossbench.sweep.status import progress

    if one.outcome.kind in (Kind.FINISHED, Kind.MISSING):
        return str(one.run.folder) if one.outcome.kind is Kind.FINISHED else ""
    now = progress(one.run)
    parts = [f"step {now.step}/{now.steps or '?'}"] if now.step or one.outcome.kind is Kind.RUNNING else []
    if one.outcome.kind is Kind.RUNNING:
        parts += [f"{now.steps_per_second:.2f} step/s"] if now.steps_per_second else []
        parts += [f"{duration(now.seconds_left)} left"] if now.seconds_left is not None else []
    parts += [one.node] if one.node and one.outcome.kind is not Kind.PENDING else []
    parts += [f"job {one.task}"] if one.task else []
    return "  ".join(parts)


def _as_data(folder: Path, one: Standing) -> dict[str, Any]:
    """A run for scripts."""
    from lossbench.sweep import attempts
    from lossbench.sweep.outcome import Kind
    from lossbench.sweep.status import describe, progress, tail
    from lossbench.tracking.files import strict

    is_over = one.outcome.kind in (Kind.FINISHED, Kind.MISSING)
    now = None if is_over else progress(one.run)
    about = describe(one.run)
    steps = about["metrics"].get("data/n_steps") if now is None else now.steps
    return strict(
        {
            "id": one.run.id,
            "name": one.run.name,
            "study": folder.name,
            **about,
            "state": str(one.outcome.kind),
            "reason": one.outcome.reason,
            "step": now.step if now else steps,
            "steps": steps,
            "steps_per_second": now.steps_per_second if now else None,
            "seconds_left": now.seconds_left if now else None,
            "node": one.node,
            "job": one.task,
            "attempts": len(attempts.read(one.run.folder)),
            "log": tail(one.run, 3) if one.outcome.kind.is_failure else [],
            "folder": str(one.run.folder),
            "problems": [one.outcome.reason] if one.outcome.kind.is_failure and one.outcome.reason else [],
        }
    )
