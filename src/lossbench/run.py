"""The story of a run: from one configuration to one record.

python -m lossbench.run CONFIG.yaml        a frozen configuration, as a sweep starts its jobs
"""

from __future__ import annotations

import os
import random
import sys
import time
from functools import partial
from pathlib import Path

import yaml

from lossbench import config as schema
from lossbench.config import RunConfig
from lossbench.errors import LossbenchError
from lossbench.identity import identify
from lossbench.progress import ProgressDisplay
from lossbench.tracking.record import Record, find_folder, open_record, read_result

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads must not steal shared cores
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def run(config: RunConfig) -> Path:
    """Train, evaluate and record one run; returns its folder. A run that is finished already is not run again."""
    check(config)
    identity = identify(config)
    folder = find_folder(config, identity)
    if (result := read_result(folder)) and result["status"] == "finished":
        print(f"{identity.name} is finished already: {folder}")
        return folder
    shown = ProgressDisplay(identity.name, enabled=config.trainer.progress)
    with open_record(config, identity) as record, shown as progress:
        _train_and_evaluate(config, record, progress)
    print(_summary(identity.name, record))
    return record.folder


def check(config: RunConfig) -> None:
    """Refuse what cannot work, before any work: unknown losses, tasks and options, and impossible combinations."""
    from lossbench.data import task
    from lossbench.training.objective import create_objective

    create_objective(config.loss)
    task.create(config.dataset)


def _train_and_evaluate(config: RunConfig, record: Record, progress: ProgressDisplay) -> None:
    from lossbench.data import task as tasks
    from lossbench.models import locate

    task = tasks.create(config.dataset)
    locate.check_available(config.model)  # a missing model is said in seconds, not after heavy imports
    task.check_available()
    train = tasks.load(task, "train", config.dataset.limit)
    validation = tasks.load(task, "validation", config.evaluation.validation_limit)
    tested = tasks.load(task, config.evaluation.split, config.evaluation.limit)

    from lossbench.data import token_cache
    from lossbench.data.prepared import with_texts
    from lossbench.data.tokens import tokenize
    from lossbench.evaluation.evaluate import evaluate
    from lossbench.models.load import add_peft, context_window, load
    from lossbench.training.context import Context
    from lossbench.training.fit import choose_threads, fit
    from lossbench.training.objective import create_objective

    _seed(config.seed)
    model, tokenizer = load(config.model)
    choose_threads(model, config.trainer.threads)
    window = min(context_window(model) or sys.maxsize, config.dataset.max_length or sys.maxsize)
    tested = with_texts(tested, tokenizer)
    train_tokens, validation_tokens, tested_tokens = (
        tokenize(
            examples,
            tokenizer,
            window,
            ends_with_eos=task.ends_with_eos,
            cache=token_cache.folder(config.paths.cache),
            on_progress=partial(progress.on_progress, f"tokens of {name}"),
        )
        for name, examples in (("train", train), ("validation", validation), ("evaluation", tested))
    )
    for split, tokens in (("train", train_tokens), (config.evaluation.split, tested_tokens)):
        task.notes.count_truncated(split, tokens, window)
    for sentence in task.notes.sentences:
        print(f"data: {sentence}", file=sys.stderr)
    objective = create_objective(config.loss)
    for sentence in objective.warnings():
        print(f"warning: {sentence}", file=sys.stderr)
    tuned = add_peft(model, config.peft)
    context = Context(objective, tuned, tokenizer, train_tokens)

    fitted = fit(
        tuned, objective, context, train_tokens, validation_tokens, config, record.folder, record.log, progress
    )

    started = time.monotonic()
    evaluation = evaluate(
        tuned,
        tokenizer,
        task,
        tested,
        tested_tokens,
        split=config.evaluation.split,
        metrics=[name for name in task.metrics if config.evaluation.generate or name != "exact_match"],
        max_new_tokens=config.evaluation.max_new_tokens,
        batch_size=config.evaluation.batch_size,
        on_progress=progress.on_progress,
    )
    record.write_examples(evaluation.rows)
    record.finish(
        {
            **evaluation.metrics,
            **fitted.metrics(),
            "time/eval_s": time.monotonic() - started,
            "data/n_train": float(len(train)),
            **{f"data/{name}": float(count) for name, count in task.notes.counts.items() if count},
        },
        {"step": fitted.best.step, "criterion": fitted.best.criterion, "value": fitted.best.value},
    )


def _seed(seed: int) -> None:
    """Seed every global generator; data order has its own."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _summary(name: str, record: Record) -> str:
    """What came out, in a few lines."""
    metrics, checkpoint = record.summary, record.checkpoint or {}
    lines = [f"{name}: best validation cross-entropy {checkpoint['value']:.4f} at step {checkpoint['step']}"]
    if "test/em" in metrics:
        lines.append(f"  exact match {metrics['test/em']:.1%}")
    lines.append(f"  perplexity of the targets {metrics['test/ppl']:.3f}")
    lines.append(f"  {metrics['time/train_s']:.0f} s training, {metrics['time/eval_s']:.0f} s evaluation")
    lines.append(f"  {record.folder}")
    return "\n".join(lines)


def main() -> None:
    """Run the frozen configuration whose path is the only argument."""
    try:
        run(schema.parse(yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    except LossbenchError as error:
        print(f"lossbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
