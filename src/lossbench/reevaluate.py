"""The story of an evaluation after the fact: of a finished run, of its checkpoint, or of any model (the untrained
baseline). `lossbench evaluate` calls it; run.py evaluates its own model itself."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from lossbench import config as schema
from lossbench.config import LossConfig, RunConfig
from lossbench.errors import ConfigError, DataError
from lossbench.evaluation import stored

if TYPE_CHECKING:
    from lossbench.evaluation.mauve_protocol import MauveProtocol
    from lossbench.evaluation.open_ended import Material

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Target:
    """What is evaluated: a configuration, and the weights that a run put into its model (None: the model itself)."""

    config: RunConfig
    folder: Path  # of the run, old or new
    checkpoint: Path | None
    name: str


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for; None and empty: the task's own."""

    metrics: tuple[str, ...] = ()
    featurizer: str | None = None  # of MAUVE
    harness: tuple[str, ...] = ()
    sample_seed: int | None = None
    temperature: float = 1.0
    overrides: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Outcome:
    folder: Path
    metrics: dict[str, Any]
    is_new: bool


def evaluate(what: str, wishes: Wishes) -> Outcome:
    """Evaluate a run folder, a checkpoint file in one, or a model (folder, hub id, `lossbench:tiny`), and store it.

    An evaluation that was made before under the same fingerprint is returned as it is.
    """
    target = find(what, wishes.overrides)
    if wishes.harness:
        return _by_harness(target, wishes)

    from lossbench.data import task as tasks
    from lossbench.data import token_cache
    from lossbench.data.corruption import training_examples
    from lossbench.data.prepared import with_texts
    from lossbench.data.tokens import tokenize, with_tokens
    from lossbench.evaluation.evaluate import chosen_metrics
    from lossbench.evaluation.evaluate import evaluate as evaluate_model
    from lossbench.evaluation.memorisation import passages
    from lossbench.evaluation.open_ended import material
    from lossbench.evaluation.whole_texts import whole_texts
    from lossbench.models import locate
    from lossbench.models.load import context_window
    from lossbench.progress import ProgressDisplay

    config = target.config
    task = tasks.create(config.dataset)
    locate.check_available(config.model)
    task.check_available()
    examples = tasks.load(task, config.evaluation.split, config.evaluation.limit)
    protocol = _mauve_protocol(config, wishes)
    metrics = wishes.metrics or chosen_metrics(task, generate=config.evaluation.generate, mauve=protocol is not None)
    continued = material(task, config.evaluation, examples, protocol) if "mauve" in metrics else None
    whole = whole_texts(task, config.evaluation)
    model, tokenizer = _restored(target)
    examples = with_texts(examples, tokenizer)
    window = min(context_window(model) or sys.maxsize, config.dataset.max_length or sys.maxsize)
    tokens_of = partial(
        tokenize,
        tokenizer=tokenizer,
        max_length=window,
        ends_with_eos=task.ends_with_eos,
        skip_too_long=task.skip_bad,
        cache=token_cache.folder(config.paths.cache),
    )
    tokens = tokens_of(examples)
    trained = tokens_of(training_examples(task, config)) if config.evaluation.memorisation else []
    memorised = passages(config.evaluation, trained, tokens, ends_with_eos=task.ends_with_eos)
    task.notes.count_too_long(config.evaluation.split, len(examples), len(tokens), window)
    examples = with_tokens(examples, tokens)
    task.notes.count_truncated(config.evaluation.split, tokens, window)

    facts = _facts(target, wishes, metrics, continued) | {
        "n_examples": len(examples),
        "examples": _digest([e.prompt, e.target, e.answer, *e.choices] for e in examples),
        "tokens": _digest([*row.input_ids, row.target_start] for row in tokens),
        "max_new_tokens": config.evaluation.max_new_tokens or task.max_new_tokens,
        "stop_strings": list(task.stop_strings),
        "answer_rule": task.answer_rule,
        "memorised": _digest([passage.given, passage.following] for passage in memorised) if memorised else None,
        "padding": "left to generate, right to score",
    }
    folder = stored.folder_of(target.folder, stored.fingerprint(facts))
    if (known := stored.read(folder)) is not None:
        return Outcome(folder, known["metrics"], is_new=False)

    for sentence in task.notes.sentences:
        print(f"data: {sentence}", file=sys.stderr)
    started = time.monotonic()
    with ProgressDisplay(target.name, enabled=config.trainer.progress) as progress:
        found = evaluate_model(
            model,
            tokenizer,
            task,
            examples,
            tokens,
            split=config.evaluation.split,
            metrics=metrics,
            max_new_tokens=config.evaluation.max_new_tokens,
            sample_seed=wishes.sample_seed,
            temperature=wishes.temperature,
            samples=config.evaluation.samples,
            sample_temperature=config.evaluation.sample_temperature,
            batch_size=config.evaluation.batch_size,
            material=continued,
            whole_texts=whole,
            memorised=memorised,
            on_progress=progress.on_progress,
        )
    seconds = time.monotonic() - started
    _record(target, folder, facts, found.metrics, found.rows, seconds)
    return Outcome(folder, found.metrics, is_new=True)


def find(what: str, overrides: Sequence[str] = ()) -> Target:
    """The run, checkpoint or model that `what` names, with `overrides` of its dataset and evaluation."""
    path = Path(what).expanduser()
    checkpoint = path if path.suffix == ".safetensors" and path.parent.name == CHECKPOINTS else None
    if checkpoint and not checkpoint.name.startswith("best"):
        raise ConfigError(
            f"{what} is a safe point to train on from, not a model to evaluate: name {CHECKPOINTS}/best.safetensors, "
            "or best-STEP.safetensors of a run that is still going."
        )
    run = path.parents[1] if checkpoint else path
    if (run / "run.json").is_file() or checkpoint:
        return _run_target(run, checkpoint, overrides)
    return _model_target(what, overrides)


def _run_target(run: Path, checkpoint: Path | None, overrides: Sequence[str]) -> Target:
    from lossbench.tracking.record import read_result
    from lossbench.training.checkpoint import BestCheckpoint

    file = run / "config.yaml"
    if not file.is_file():
        raise DataError(f"{run} holds no config.yaml, so it is not known which model its checkpoint belongs to.")
    result = read_result(run)
    if checkpoint is None and (result is None or result["status"] != "finished"):
        raise DataError(
            f"{run} has not finished, so it has no best checkpoint yet: wait for it or run it again, or name the "
            f"checkpoint to evaluate ({run / CHECKPOINTS}/...)."
        )
    plain = yaml.safe_load(file.read_text(encoding="utf-8"))
    plain = _complete(plain)
    if plain["loss"]["name"] == "untrained":
        return Target(schema.parse(_overridden(plain, overrides)), run, None, run.name)
    checkpoint = checkpoint or BestCheckpoint(run / CHECKPOINTS).file
    if not checkpoint.is_file():
        raise DataError(f"{checkpoint} is not there: the run's weights were removed, so it cannot be evaluated again.")
    return Target(schema.parse(_overridden(plain, overrides)), run, checkpoint, run.name)


def _model_target(what: str, overrides: Sequence[str]) -> Target:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[:/]", what.rstrip("/"))[-1]).strip("-._") or "model"
    chosen = _compose("model=hf", f"model.path={what}", f"model.name={name}", "tracking.mode=disabled", *overrides)
    label = f"untrained-{chosen.model.name}-{chosen.dataset.name}"
    facts = {"model": _model_facts(chosen), "dataset": chosen.dataset.model_dump(mode="json", exclude={"path"})}
    folder = Path(chosen.paths.runs).expanduser() / chosen.study / f"{label}-{stored.fingerprint(facts)}"
    return Target(chosen, folder, None, label)


def _overridden(plain: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A run's own configuration with another dataset or other settings of evaluation."""
    for override in overrides:
        if not re.match(r"dataset=|(dataset|evaluation|trainer)\.[\w.]+=", override):
            raise ConfigError(
                f"{override!r} cannot change a run that is trained: pass dataset=NAME, dataset.KEY=VALUE, "
                "evaluation.KEY=VALUE, or trainer.accelerator=cpu."
            )
    rest = list(overrides)
    if any(override.startswith("dataset=") for override in rest):
        mine = [override for override in rest if override.startswith("dataset")]
        plain["dataset"] = _compose(*mine).dataset.model_dump(mode="json")
        rest = [override for override in rest if override not in mine]
    for name in ("mauve", "memorisation"):
        if plain["evaluation"][name] is None and any(o.startswith(f"evaluation.{name}.") for o in rest):
            plain["evaluation"][name] = getattr(_compose(f"evaluation={name}").evaluation, name).model_dump(mode="json")
    for override in rest:
        key, _, text = override.partition("=")
        *sections, name = key.split(".")
        place = plain
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = yaml.safe_load(text)
    return plain


def _complete(plain: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an older run, with the present defaults where a section has no such key."""
    present: dict[str, Any] | None = None
    for name, declared in RunConfig.model_fields.items():
        section = declared.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)) or section is LossConfig:
            continue
        if missing := set(section.model_fields) - set(plain[name]):
            present = present or _compose().model_dump(mode="json")
            plain = {**plain, name: {**plain[name], **{key: present[name][key] for key in missing}}}
    return plain


def _compose(*overrides: str) -> RunConfig:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from lossbench.app import compose, explain

    try:
        return compose(*overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from None


def _restored(target: Target) -> tuple[Any, Any]:
    """The model with the run's weights in it, where it can compute, and its tokenizer."""
    import torch

    from lossbench.models.load import add_peft, load
    from lossbench.training.checkpoint import load_weights
    from lossbench.training.fit import choose_threads
    from lossbench.training.state import read_state

    model, tokenizer = load(target.config.model, target.config.peft if target.checkpoint else None)
    choose_threads(model, target.config.trainer.threads)
    if target.checkpoint is not None:
        holder = torch.nn.Module()  # in a checkpoint the weights are those of a module that holds the model
        holder.model = add_peft(model, target.config.peft)
        load_weights(holder, read_state(target.checkpoint))
        model = holder.model  # type: ignore[assignment]
    on_gpu = target.config.trainer.accelerator != "cpu" and torch.cuda.is_available()
    return torch.nn.Module.to(model, "cuda" if on_gpu else "cpu").eval(), tokenizer


def _mauve_protocol(config: RunConfig, wishes: Wishes) -> MauveProtocol | None:
    """That of the configuration, or the default one where --metrics asks for MAUVE; --featurizer goes before both."""
    from dataclasses import replace

    from lossbench.evaluation.mauve_protocol import MauveProtocol
    from lossbench.evaluation.open_ended import protocol_of

    if config.evaluation.mauve is None and "mauve" not in wishes.metrics:
        return None
    protocol = protocol_of(config.evaluation.mauve) if config.evaluation.mauve else MauveProtocol()
    return protocol if wishes.featurizer is None else replace(protocol, featurizer=wishes.featurizer)


def _facts(target: Target, wishes: Wishes, metrics: Sequence[str], continued: Material | None = None) -> dict[str, Any]:
    from lossbench.tracking.provenance import versions

    config = target.config
    return {
        "model": _model_facts(config),
        "checkpoint": _file_digest(target.checkpoint) if target.checkpoint else None,
        "dataset": config.dataset.model_dump(mode="json", exclude={"path"}),
        "evaluation": config.evaluation.model_dump(mode="json"),
        "metrics": list(metrics),
        "sample_seed": wishes.sample_seed,
        "temperature": wishes.temperature,
        "mauve": None if continued is None else _mauve_facts(continued),
        "versions": versions(),
    }


def _model_facts(config: RunConfig) -> dict[str, Any]:
    from lossbench.identity import content
    from lossbench.models.locate import folder_of

    folder = folder_of(config.model.path)
    weights: Any = content(folder) if folder else [config.model.path, config.model.revision]
    return {"weights": weights, "dtype": config.model.dtype, "attention": config.model.attention}


def _mauve_facts(material: Material) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from lossbench.identity import content
    from lossbench.models.locate import folder_of

    folder = folder_of(material.protocol.featurizer)
    facts = asdict(material.protocol) | {
        "featurizer_weights": content(folder) if folder else material.protocol.featurizer,
        "texts": None if material.evaluated is None else _digest([e.prompt, e.target] for e in material.evaluated),
    }
    for package in ("mauve-text", "faiss-cpu", "scikit-learn"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = None
    return facts


def _record(
    target: Target,
    folder: Path,
    facts: Mapping[str, Any],
    metrics: Mapping[str, float],
    rows: Sequence[Mapping[str, Any]],
    seconds: float,
) -> None:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    stored.write(folder, facts, metrics, rows, created=created, seconds=seconds)
    if target.checkpoint is None and not (target.folder / "run.json").exists():
        _as_untrained_run(target, created, metrics, rows, seconds)


def _as_untrained_run(
    target: Target, created: str, metrics: Mapping[str, float], rows: Sequence[Mapping[str, Any]], seconds: float
) -> None:
    """A run folder for a model that was not trained, so that a report has a row for it; its loss is `untrained`."""
    from lossbench.tracking.files import write_atomically, write_json
    from lossbench.tracking.provenance import git, versions

    config, mark = target.config, target.folder.name.rpartition("-")[2]
    plain = config.model_dump(mode="json")
    plain["loss"] = {"name": "untrained", "terms": plain["loss"]["terms"]}
    stored.write_rows(target.folder / "examples.parquet", rows)
    write_atomically(target.folder / "config.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    identity = {"schema": 1, "id": mark, "group": mark, "name": target.name, "study": config.study, "loss": "untrained"}
    about = {"model": config.model.name, "dataset": config.dataset.name, "seed": config.seed, "attempt": 1}
    origin = {"created": created, "config": plain, "versions": versions(), "git": git(), "wandb": None}
    write_json(target.folder / "run.json", identity | about | origin)
    numbers = {**metrics, "time/eval_s": seconds}
    outcome = {"status": "finished", "error": None, "metrics": numbers, "checkpoint": None, "finished": created}
    write_json(target.folder / "result.json", {"schema": 1, "id": mark, **outcome})


def _by_harness(target: Target, wishes: Wishes) -> Outcome:
    from lossbench.evaluation import harness

    harness.check_available()
    facts = _facts(target, wishes, ()) | {"harness": list(wishes.harness)}
    folder = stored.folder_of(target.folder, stored.fingerprint(facts))
    if (known := stored.read(folder)) is not None:
        return Outcome(folder, known["metrics"], is_new=False)
    model, tokenizer = _restored(target)
    evaluation = target.config.evaluation
    found = harness.evaluate(model, tokenizer, wishes.harness, limit=evaluation.limit, batch_size=evaluation.batch_size)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    stored.write(folder, facts, found, [], created=created)
    return Outcome(folder, found, is_new=True)


def _digest(rows: Any) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(row).encode())
    return digest.hexdigest()


def _file_digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
