"""The README.md of an exported model: what it is, how it was made, and how well it does. Markdown for the Hugging Face
hub, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from lossbench.config import RunConfig, Schedule

SPDX = {"apache-2.0": "apache-2.0", "mit": "mit", "cc-by-sa-4.0": "cc-by-sa-4.0"}  # names that the hub knows
KINDS = {
    "full": "All weights were trained.",
    "merged": "LoRA was trained and is merged into the weights.",
    "adapter": "LoRA was trained; this folder holds the adapter alone, and is loaded on top of its base model.",
}


@dataclass(frozen=True)
class Facts:
    """What a card is made of."""

    config: RunConfig
    run: Mapping[str, Any]  # run.json
    result: Mapping[str, Any]  # result.json
    kind: Literal["full", "merged", "adapter"]
    base_is_on_hub: bool
    notes: Sequence[str]  # sentences about this export


def model_card(facts: Facts) -> str:
    """The whole card. Nothing of it names a place on the machine that made it."""
    config = facts.config
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(facts), sort_keys=False, allow_unicode=True)}---",
        f"# {facts.run['name']}",
        f"{_base(facts)}, fine-tuned on {config.dataset.name} under the loss {config.loss.name} with "
        f"[lossbench](https://github.com/lossbench/lossbench). {KINDS[facts.kind]}",
        *facts.notes,
        "## Use",
        _use(facts),
        "## Loss",
        _loss(config),
        "## Training",
        _table(("", ""), _training(facts)),
        "## Metrics",
        _table(("metric", "value"), [(name, _number(value)) for name, value in _metrics(facts.result)]),
        _about_metrics(facts),
        "## Licence",
        f"That of the base model: {config.model.licence}. The data may have terms of its own.",
        "## Origin",
        _table(("", ""), _origin(facts.run)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(facts: Facts) -> dict[str, Any]:
    model = facts.config.model
    licence = SPDX.get(model.licence.split(" ")[0].lower())
    found: dict[str, Any] = {"library_name": "peft" if facts.kind == "adapter" else "transformers"}
    if facts.base_is_on_hub:
        found["base_model"] = model.path
        found["base_model_relation"] = "adapter" if facts.kind == "adapter" else "finetune"
    found |= {"license": licence} if licence else {"license": "other", "license_name": model.licence}
    return found | {"pipeline_tag": "text-generation", "tags": ["lossbench", facts.config.loss.name]}


def _base(facts: Facts) -> str:
    model = facts.config.model
    if not facts.base_is_on_hub:
        return f"The model {model.name}"
    return f"[{model.path}](https://huggingface.co/{model.path})" + (f" at {model.revision}" if model.revision else "")


def _use(facts: Facts) -> str:
    needs = "\nThe package peft must be installed; the base model is loaded first." if facts.kind == "adapter" else ""
    return f"""```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype="{facts.config.model.dtype}")
```
{needs}"""


def _loss(config: RunConfig) -> str:
    rows = []
    for name, term in config.loss.terms.items():
        options = ", ".join(f"{key} = {value}" for key, value in sorted(term.options.items())) or "none"
        weight = term.weight
        if isinstance(weight, Schedule):
            shown = f"{weight.start:g} to {weight.end:g} over {weight.steps} steps ({weight.schedule})"
        else:
            shown = f"{weight:g}"
        rows.append((name, shown, term.scope, options))
    return _table(("term", "weight", "scope", "parameters"), rows)


def _training(facts: Facts) -> list[tuple[str, str]]:
    config, checkpoint = facts.config, facts.result.get("checkpoint") or {}
    dataset = f"{config.dataset.name} (task {config.dataset.task}" + (
        f", revision {config.dataset.revision})" if config.dataset.revision else ")"
    )
    optimizer = f"{config.optimizer.name}, learning rate {config.optimizer.lr:g}, {config.scheduler.name} schedule"
    if config.optimizer.ema_decay is not None:
        optimizer += f", weights averaged with decay {config.optimizer.ema_decay:g}"
    rows = [
        ("data", dataset),
        ("training examples", _number(facts.result["metrics"].get("data/n_train", "?"))),
        ("optimizer", optimizer),
        ("examples in a forward pass", str(config.trainer.batch_size)),
        ("forward passes in an optimizer step", str(config.trainer.accumulate)),
        ("optimizer steps", _number(facts.result["metrics"].get("data/n_steps", "?"))),
        ("precision", f"{config.trainer.precision} on {config.model.dtype} weights"),
        ("seed", str(config.seed)),
    ]
    if checkpoint:
        chosen = f"step {checkpoint['step']}, for its {checkpoint['criterion']} of {_number(checkpoint['value'])}"
        rows.append(("checkpoint", chosen))
    if config.peft.method != "none":
        bits = f", on weights of {config.peft.bits} bits" if config.peft.bits else ""
        lora = f"r {config.peft.r}, alpha {config.peft.alpha}, dropout {config.peft.dropout:g}"
        rows.append(("LoRA", f"{lora}, on {', '.join(config.peft.target_modules)}{bits}"))
    return rows


def _metrics(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Those of record: `test/em`, not `test/steps/iou` and other diagnoses."""
    kept = [name for name in result["metrics"] if name.startswith(("test/", "val/")) and name.count("/") == 1]
    return [(name, result["metrics"][name]) for name in sorted(kept)]


def _about_metrics(facts: Facts) -> str:
    evaluation = facts.config.evaluation
    limit = f", at most {evaluation.limit} examples" if evaluation.limit else ""
    averaged = " They are of the model as it was trained, on quantised weights." if facts.config.peft.bits else ""
    return f"Evaluated on the {evaluation.split} split{limit}.{averaged}"


def _origin(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    git = run.get("git") or {}
    rows = [("run id", run["id"]), ("study", run["study"]), ("created", run["created"])]
    if git:
        rows.append(("lossbench commit", git["commit"] + (" (changed)" if git["dirty"] else "")))
    return rows + [(name, str(version)) for name, version in sorted(run["versions"].items())]


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
