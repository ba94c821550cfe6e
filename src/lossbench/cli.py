"""The `lossbench` command. Every command calls a function of the library and prints what it returns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lossbench import __version__
from lossbench.errors import LossbenchError

app = typer.Typer(
    name="lossbench",
    help="Which training loss should I use to fine-tune my language model?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
losses_app = typer.Typer(help="The registry of losses.", no_args_is_help=True)
app.add_typer(losses_app, name="losses")
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def train(context: typer.Context) -> None:
    """Fine-tune under a loss; takes Hydra's arguments, like `python train.py`.

    lossbench train loss=focal seed=1
    lossbench train -m loss=cross_entropy,focal seed=0,1,2
    """
    from lossbench.app import main as hydra_main

    sys.argv = ["lossbench train", *context.args]
    hydra_main()


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs: runs/, a study, or single runs.")],
    out: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("results"),
    format: Annotated[list[str] | None, typer.Option(help="Formats to write; all of them by default.")] = None,
    baseline: Annotated[str | None, typer.Option(help="The loss that others are compared with.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Columns, separated by commas, such as test/em,test/ppl.")] = None,
) -> None:
    """Turn runs into a table, a page and their numbers.

    lossbench report runs/demo --out results/demo
    """
    from lossbench.report.build import build

    made = build(paths, out, formats=format, baseline=baseline, metrics=metrics.split(",") if metrics else None)
    made.print()


@app.command()
def runs(
    study: Annotated[str, typer.Argument(help="A study below --runs, or a folder.")],
    runs: Annotated[Path, typer.Option(help="The folder that holds the studies.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs of a study and how each of them ended.

    lossbench runs demo
    lossbench runs demo --json
    """
    from lossbench.report.collect import collect
    from lossbench.tracking.files import strict

    folder = runs / study if (runs / study).is_dir() else Path(study)
    found = sorted(collect([folder]).records, key=lambda record: record.name)
    if as_json:
        keys = ("id", "name", "study", "loss", "model", "dataset", "seed", "state", "metrics", "problems")
        print(json.dumps(strict([{key: getattr(record, key) for key in keys} for record in found]), indent=2))
        return
    for record in found:
        print(f"{record.state:<12} {record.name:<44} {record.location}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def prepare(context: typer.Context) -> None:
    """Write a dataset as rows of tokens, in the Parquet schema of the vision-loss paper's code.

    lossbench prepare dataset=gsm8k model.path=FOLDER-OR-HUB-ID out=data/gsm8k
    lossbench prepare dataset=gsm8k model.path=FOLDER-OR-HUB-ID out=data/exact positions=exact dataset.max_length=256

    Prompts and splits are that paper's unless you choose others; so is positions=seed, which repeats its code's
    positions. Read the files back with dataset=parquet dataset.path=data/gsm8k and the same model.
    """
    from lossbench.app import prepare as prepare_splits

    for written in prepare_splits(context.args):
        print(written)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def evaluate(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="RUN-or-MODEL", help="A run folder, a checkpoint in one, or a model.")],
    metrics: Annotated[
        str | None, typer.Option(help="exact_match,choices,perplexity,mauve,...: the task's own.")
    ] = None,
    sample_seed: Annotated[int | None, typer.Option(help="Sample answers instead of decoding greedily.")] = None,
    temperature: Annotated[float, typer.Option(help="Of sampling.")] = 1.0,
    featurizer: Annotated[str, typer.Option(help="Of MAUVE: a causal LM, such as gpt2-large.")] = "lossbench:tiny",
    harness: Annotated[str | None, typer.Option(help="Tasks of lm-evaluation-harness, such as gsm8k,arc_easy.")] = None,
    recompute: Annotated[bool, typer.Option("--recompute", help="Prove stored numbers from their rows.")] = False,
    as_json: Json = False,
) -> None:
    """Evaluate a finished run on any dataset, or a model that was not trained here; nothing is overwritten.

    lossbench evaluate runs/demo/NAME-ID evaluation.split=validation
    lossbench evaluate EleutherAI/pythia-160m dataset=gsm8k evaluation.limit=200
    lossbench evaluate runs/demo/NAME-ID --recompute
    """
    from lossbench.evaluation import stored

    if recompute:
        compared = stored.recompute(Path(what))
        print("\n".join(map(str, compared)))
        raise typer.Exit(0 if all(part.ok for part in compared) else 1)
    from lossbench import reevaluate
    from lossbench.evaluation.open_ended import MauveProtocol
    from lossbench.tracking.files import strict

    wishes = reevaluate.Wishes(
        metrics=tuple(metrics.split(",")) if metrics else (),
        mauve=MauveProtocol(featurizer=featurizer, temperature=temperature),
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


@losses_app.command("list")
def list_losses(as_json: Json = False) -> None:
    """Name, kind, scope, needs, defaults and paper of every registered loss."""
    from lossbench import losses

    found = [losses.info(name) for name in losses.available()]
    if as_json:
        keys = ("name", "kind", "scope", "summary", "paper", "needs", "defaults")
        print(json.dumps([{key: getattr(info, key) for key in keys} for info in found], indent=2, default=str))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "kind", "scope", "needs", "defaults", "paper"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for info in found:
        defaults = ", ".join(f"{name}={value}" for name, value in info.defaults.items())
        table.add_row(info.name, info.kind, info.scope, ", ".join(info.needs), defaults, info.paper)
    Console(highlight=False).print(table)


@losses_app.command("show")
def show_loss(name: Annotated[str, typer.Argument(help="A registered loss, or module:attribute.")]) -> None:
    """Formula, parameters, hazards, source and gradient twins of a loss.

    lossbench losses show emo
    """
    from lossbench import losses
    from lossbench.losses.describe import as_text

    print(as_text(losses.info(name)))


@losses_app.command("check")
def check_losses(
    names: Annotated[list[str], typer.Argument(help="Registered losses, module:attribute, or `all`.")],
) -> None:
    """Try losses against the rules that every loss obeys; exit code 1 if one of them fails.

    lossbench losses check focal
    lossbench losses check my_package.my_module:MyLoss
    lossbench losses check all
    """
    from lossbench import losses

    sys.path.insert(0, "")  # a class of a module in the present folder
    reports = [losses.check(name) for name in (losses.available() if names == ["all"] else names)]
    print("\n\n".join(str(report) for report in reports))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


@losses_app.command("plot")
def plot_losses(
    names: Annotated[list[str], typer.Argument(help="Registered losses, or module:attribute.")],
    out: Annotated[Path, typer.Option(help="A .png or .svg file.")] = Path("losses.svg"),
) -> None:
    """Draw value and gate against the probability of the target.

    lossbench losses plot cross_entropy focal dft --out losses.png
    """
    from lossbench.plot import plot

    print(plot(names, out))


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: what the user can mend is one sentence, not a traceback."""
    try:
        app()
    except LossbenchError as error:
        print(f"lossbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ValueError as error:
        # `losses` stands on torch alone and has errors of its own; asking whether this is one must not import torch.
        own = sys.modules.get("lossbench.losses.errors")
        if own is None or not isinstance(error, own.LossError):
            raise
        print(f"lossbench: {error}", file=sys.stderr)
        sys.exit(2)
