"""`lossbench evaluate`: a run or a model, after the fact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .application import HYDRA, USE, Json, app

if TYPE_CHECKING:
    from lossbench.evaluation.stored import Recomputed


@app.command(context_settings=HYDRA, rich_help_panel=USE)
def evaluate(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="RUN-or-MODEL", help="A run folder, a checkpoint in one, or a model.")],
    metrics: Annotated[
        str | None, typer.Option(help="exact_match,choices,perplexity,mauve,...: the task's own.")
    ] = None,
    sample_seed: Annotated[int | None, typer.Option(help="Sample answers instead of decoding greedily.")] = None,
    temperature: Annotated[float, typer.Option(help="Of sampled answers.")] = 1.0,
    featurizer: Annotated[str | None, typer.Option(help="Of MAUVE: a causal LM, such as gpt2-large.")] = None,
    harness: Annotated[str | None, typer.Option(help="Tasks of lm-evaluation-harness, such as gsm8k,arc_easy.")] = None,
    joint: Annotated[bool, typer.Option("--joint", help="MAUVE of all runs of a study, in the same buckets.")] = False,
    reliability: Annotated[
        Path | None, typer.Option(help="Draw confidence against correctness of a run's answers: FILE.svg or .png.")
    ] = None,
    recompute: Annotated[bool, typer.Option("--recompute", help="Prove stored numbers from their rows.")] = False,
    as_json: Json = False,
) -> None:
    """Evaluate a finished run, or any model, on any dataset.

    What is there already is not overwritten. KEY=VALUE after it changes the configuration, as in `lossbench train`.

    Examples:
    lossbench evaluate runs/demo/NAME-ID evaluation.split=validation
    lossbench evaluate EleutherAI/pythia-160m dataset=gsm8k evaluation.limit=200
    lossbench evaluate runs/demo/NAME-ID --recompute
    lossbench evaluate runs/wikitext --joint --featurizer gpt2-large
    """
    from lossbench.evaluation import stored

    if recompute:
        compared = stored.recompute(Path(what))
        print(json.dumps([_as_data(part) for part in compared], indent=2) if as_json else "\n".join(map(str, compared)))
        raise typer.Exit(0 if all(part.ok for part in compared) else 1)
    if reliability is not None:
        from lossbench.evaluation import reliability_diagram

        reliability_diagram.draw(stored.read_rows(Path(what) / "examples.parquet"), reliability)
        print(reliability)
        return
    if joint:
        _print_joint(Path(what), featurizer, as_json)
        return
    from lossbench import reevaluate
    from lossbench.tracking.files import strict

    wishes = reevaluate.Wishes(
        metrics=tuple(metrics.split(",")) if metrics else (),
        featurizer=featurizer,
        harness=tuple(harness.split(",")) if harness else (),
        sample_seed=sample_seed,
        temperature=temperature,
        overrides=tuple(context.args),
    )
    made = reevaluate.evaluate(what, wishes)
    if as_json:
        print(json.dumps(strict({"folder": str(made.folder), "new": made.is_new, "metrics": made.metrics}), indent=2))
        return
    width = max(map(len, made.metrics))
    for name, value in made.metrics.items():
        print(f"{name:<{width}}  {value:.6g}" if isinstance(value, float) else f"{name:<{width}}  {value}")
    print(made.folder if made.is_new else f"{made.folder} (was there already)")


def _as_data(part: Recomputed) -> dict[str, Any]:
    from lossbench.tracking.files import strict

    different = {name: {"stored": stored, "again": again} for name, (stored, again) in part.different.items()}
    return strict({"source": str(part.source), "ok": part.ok, "equal": list(part.equal), "different": different})


def _print_joint(study: Path, featurizer: str | None, as_json: bool) -> None:
    from dataclasses import asdict

    from lossbench.evaluation.joint import evaluate_jointly

    found = evaluate_jointly(study, featurizer=featurizer or "lossbench:tiny")
    if as_json:
        rows = [
            {"run": str(r.run), "folder": str(r.folder), "metrics": r.metrics,
             "difference": None if r.difference is None else asdict(r.difference)}
            for r in found
        ]  # fmt: skip
        print(json.dumps(rows, indent=2))
        return
    width = max(len(result.run.name) for result in found)
    for result in found:
        values = (f"{name} {value:.3f}" for name, value in result.metrics.items() if name.endswith("]"))
        shown = next(values, "too few texts are long enough")
        gap = result.difference
        beside = "" if gap is None else f"  {gap.value:+.3f} to cross-entropy, 95 % [{gap.low:+.3f}, {gap.high:+.3f}]"
        print(f"{result.run.name:<{width}}  {shown}{beside}")
