"""The story of a run: from one configuration to one record.

python -m lossbench.run CONFIG.yaml        a frozen configuration, as a sweep starts its jobs
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lossbench import config as schema
from lossbench.config import RunConfig
from lossbench.errors import ConfigError, LossbenchError
from lossbench.identity import identify
from lossbench.progress import ProgressDisplay
from lossbench.tracking.record import Record, find_folder, open_record, read_result
from lossbench.training.interrupt import Interrupted, Interrupts
from lossbench.training.journal import Bystander, Journal
from lossbench.training.ranks import Ranks, others

if TYPE_CHECKING:
    from lossbench.data.example import Example
    from lossbench.data.tokens import TokenizedExample
    from lossbench.training.fit import Fitted

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads must not steal shared cores
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
EXPECTED = "LOSSBENCH_RUN_ID"  # the identity that a job was submitted with


def run(config: RunConfig) -> Path:
    """Train, evaluate and record one run; returns its folder. A run that is finished already is not run again."""
    check(config)
    identity = identify(config)
    folder = find_folder(config, identity)
    if (result := read_result(folder)) and result["status"] == "finished":
        print(f"{identity.name} is finished already: {folder}")
        return folder
    ranks = Ranks.of(config)
    shown = ProgressDisplay(identity.name, enabled=config.trainer.progress and ranks.is_first)
    try:
        with Interrupts() as interrupts:
            if not ranks.is_first:  # one of several processes that train this run, and not the one that records it
                with shown as progress, interrupts.raising():
                    _train(config, _prepare(config, progress), Bystander(folder), progress, interrupts, ranks)
                return folder
            with open_record(config, identity) as record, shown as progress, interrupts.raising():
                _train_and_evaluate(config, record, progress, interrupts, ranks)
    except Interrupted as stop:
        if ranks.is_first:
            print(f"{identity.name}: stopped by {stop.signal}; the same command goes on from {folder}", file=sys.stderr)
        raise
    _discard_checkpoints(record.folder)
    print(_summary(identity.name, record))
    return record.folder


def check(config: RunConfig) -> None:
    """Refuse what cannot work, before any work: unknown losses, tasks and options, and impossible combinations."""
    from lossbench.data import task
    from lossbench.tracking import tracker
    from lossbench.training.objective import create_objective
    from lossbench.training.selection import criterion
    from lossbench.training.strategy import check_strategy

    check_strategy(config, create_objective(config.loss))
    criterion(config, task.create(config.dataset).metrics)
    tracker.check(config.tracking)


@dataclass(frozen=True)
class _Material:
    """What is trained, on what, and what is evaluated afterwards."""

    task: Any
    model: Any  # with LoRA on it, if asked
    tokenizer: Any
    objective: Any
    context: Any
    train: Sequence[TokenizedExample]
    validation: Any
    tested: Sequence[Example]
    tested_tokens: Sequence[TokenizedExample]
    continued: Any  # texts for MAUVE
    memorised: Any  # passages of training texts that may be reproduced verbatim


def _prepare(config: RunConfig, progress: ProgressDisplay) -> _Material:
    """Load what the run works on; what is missing is said in seconds, before heavy imports."""
    from lossbench.data import task as tasks
    from lossbench.data.corruption import training_examples
    from lossbench.models import locate, quantisation

    task = tasks.create(config.dataset)
    quantisation.check_possible(config)
    locate.check_available(config.model)  # a missing model is said in seconds, not after heavy imports
    task.check_available()
    train = training_examples(task, config)
    validation = tasks.load(task, "validation", config.evaluation.validation_limit)
    tested = tasks.load(task, config.evaluation.split, config.evaluation.limit)

    from lossbench.evaluation.open_ended import material
    from lossbench.evaluation.whole_texts import whole_texts

    continued = material(task, config.evaluation, tested)  # too few texts for MAUVE are said before training
    whole_texts(task, config.evaluation)  # likewise a task that has none

    from lossbench.data import token_cache
    from lossbench.data.prepared import with_texts
    from lossbench.data.tokens import tokenize, with_tokens
    from lossbench.evaluation.memorisation import passages
    from lossbench.models.load import add_peft, context_window, load
    from lossbench.training.context import Context
    from lossbench.training.fit import choose_threads
    from lossbench.training.objective import create_objective
    from lossbench.training.selection import Validation

    _seed(config.seed)
    _choose_algorithms(config.trainer.deterministic)
    model, tokenizer = load(config.model, config.peft)
    choose_threads(model, config.trainer.threads)
    window = min(context_window(model) or sys.maxsize, config.dataset.max_length or sys.maxsize)
    tested = with_texts(tested, tokenizer)
    train_tokens, validation_tokens, tested_tokens = (
        tokenize(
            examples,
            tokenizer,
            window,
            ends_with_eos=task.ends_with_eos,
            skip_too_long=task.skip_bad,
            cache=token_cache.folder(config.paths.cache),
            on_progress=partial(progress.on_progress, f"tokens of {name}"),
        )
        for name, examples in (("train", train), ("validation", validation), ("evaluation", tested))
    )
    for split, examples, tokens in (("train", train, train_tokens), (config.evaluation.split, tested, tested_tokens)):
        task.notes.count_too_long(split, len(examples), len(tokens), window)
        task.notes.count_truncated(split, tokens, window)
    validation, tested = with_tokens(validation, validation_tokens), with_tokens(tested, tested_tokens)
    memorised = passages(config.evaluation, train_tokens, tested_tokens, ends_with_eos=task.ends_with_eos)
    for sentence in task.notes.sentences:
        print(f"data: {sentence}", file=sys.stderr)
    objective = create_objective(config.loss)
    for sentence in objective.warnings():
        print(f"warning: {sentence}", file=sys.stderr)
    tuned = add_peft(model, config.peft)
    context = Context(objective, tuned, tokenizer, train_tokens)
    measured = Validation(task, validation, validation_tokens, tokenizer, config)
    return _Material(
        task, tuned, tokenizer, objective, context, train_tokens, measured, tested, tested_tokens, continued, memorised
    )


def _train(
    config: RunConfig,
    material: _Material,
    journal: Journal,
    progress: ProgressDisplay,
    interrupts: Interrupts,
    ranks: Ranks,
) -> Fitted:
    """Train from where an earlier process stopped; afterwards `material.model` has the best weights, on rank 0."""
    from lossbench.models.compiled import compiled
    from lossbench.training.fit import fit

    with compiled(material.model, config.model.compile):
        return fit(
            material.model,
            material.objective,
            material.context,
            material.train,
            material.validation,
            config,
            journal,
            progress,
            interrupts,
            ranks,
        )


def _train_and_evaluate(
    config: RunConfig, record: Record, progress: ProgressDisplay, interrupts: Interrupts, ranks: Ranks
) -> None:
    from lossbench.evaluation.evaluate import chosen_metrics, evaluate
    from lossbench.evaluation.whole_texts import whole_texts
    from lossbench.training.fit import whole_model
    from lossbench.training.objective import batch_notes

    with others(ranks, record.folder / "config.yaml"):
        material = _prepare(config, progress)
        record.notes += batch_notes(material.objective, config.trainer.batch_size)
        for sentence in record.notes:
            print(f"note: {sentence}", file=sys.stderr)
        fitted = _train(config, material, record, progress, interrupts, ranks)
    tuned = whole_model(material.model, config, fitted)
    task, tokenizer, continued = material.task, material.tokenizer, material.continued
    tested, tested_tokens = material.tested, material.tested_tokens

    started = time.monotonic()
    evaluation = evaluate(
        tuned,
        tokenizer,
        task,
        tested,
        tested_tokens,
        split=config.evaluation.split,
        metrics=chosen_metrics(task, generate=config.evaluation.generate, mauve=continued is not None),
        max_new_tokens=config.evaluation.max_new_tokens,
        samples=config.evaluation.samples,
        sample_temperature=config.evaluation.sample_temperature,
        batch_size=config.evaluation.batch_size,
        material=continued,
        whole_texts=whole_texts(task, config.evaluation),
        memorised=material.memorised,
        on_progress=progress.on_progress,
    )
    record.write_examples(evaluation.rows)
    record.finish(
        {
            **evaluation.metrics,
            **fitted.metrics(),
            "time/eval_s": time.monotonic() - started,
            "data/n_train": float(len(material.train)),
            **{f"data/{name}": float(count) for name, count in task.notes.counts.items() if count},
        },
        {"step": fitted.best.step, "criterion": fitted.best.criterion, "value": fitted.best.value},
    )


def _discard_checkpoints(folder: Path) -> None:
    """The run has finished; its best weights stay."""
    from lossbench.training.checkpoint import Checkpoints

    Checkpoints(folder / "checkpoints").discard()


def _seed(seed: int) -> None:
    """Seed every global generator; data order has its own."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _choose_algorithms(deterministic: bool) -> None:
    """Refuse every operation of torch whose result may differ from run to run on one machine, or allow them again."""
    import torch

    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it; read at its first use
    torch.use_deterministic_algorithms(deterministic)


def _summary(name: str, record: Record) -> str:
    """What came out, in a few lines."""
    metrics, checkpoint = record.summary, record.checkpoint or {}
    what = "validation cross-entropy" if checkpoint["criterion"] == "val/nll" else checkpoint["criterion"]
    lines = [f"{name}: best {what} {checkpoint['value']:.4f} at step {checkpoint['step']}"]
    split = "test" if "test/ppl" in metrics else "val"  # evaluation.split
    if f"{split}/em" in metrics:
        lines.append(f"  exact match {metrics[f'{split}/em']:.1%}")
    lines.append(f"  perplexity of the targets {metrics[f'{split}/ppl']:.3f}")
    lines.append(f"  {metrics['time/train_s']:.0f} s training, {metrics['time/eval_s']:.0f} s evaluation")
    lines.append(f"  {record.folder}")
    return "\n".join(lines)


def _check_unchanged(config: RunConfig, expected: str | None) -> None:
    """A job that waited must not run something else than was submitted."""
    if expected and (found := identify(config).id) != expected:
        raise ConfigError(
            f"This run was submitted as {expected} and is {found} now: the code of its loss, its data or its model has "
            "changed since. Start the sweep again, so that what runs is what is there."
        )


def main() -> None:
    """Run the frozen configuration whose path is the only argument."""
    try:
        config = schema.parse(yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8")))
        _check_unchanged(config, os.environ.get(EXPECTED))
        run(config)
    except LossbenchError as error:
        print(f"lossbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
