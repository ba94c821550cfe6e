"""Who a run is: a hash of everything that can change a number, and of nothing else.

The same identity means the same run: it is not run twice, and it is one run in wandb. Paths, launcher, tracking, names
and verbosity are left out; the content of local data and weights, and the code of the losses used, are in.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from lossbench.config import RunConfig
from lossbench.models.locate import folder_of

LOSSES = Path(__file__).parent / "losses"
SAMPLE = 1 << 20  # of a large file the first and the last MiB are read, and its size
NEUTRAL = {  # keys that cannot change a number
    "model": "name path revision learning_rate lora_target_modules licence trust_remote_code gradient_checkpointing",
    "dataset": "name path skip_bad",
    "trainer": "log_every accelerator threads progress checkpoint_every loader_workers devices strategy",
}
NO_NUMBERS = ("study", "paths", "tracking")  # whole sections of that kind

_read: dict[Any, Any] | None = None  # what files said, while `reading_once` lasts


@contextmanager
def reading_once() -> Iterator[None]:
    """While it lasts every file is read once: the runs of a sweep are named by the same look at data and code."""
    global _read
    outer, _read = _read, {} if _read is None else _read
    try:
        yield
    finally:
        _read = outer


def _once(key: Any, read: Callable[[], Any]) -> Any:
    if _read is None:
        return read()
    if key not in _read:
        _read[key] = read()
    return _read[key]


SWITCHED = {  # keys of evaluation that change a number only where another one is on
    "mauve": "mauve",
    "samples": "samples sample_temperature",
    "rolling": "rolling rolling_max_length rolling_stride rolling_bos",
    "memorisation": "memorisation",
}
# Keys that count only where they say something else: a study of the fused head is two runs, which differ by rounding.
UNLESS = {("dataset", "corrupt_targets"): 0.0, ("trainer", "fused_head"): "auto"}


@dataclass(frozen=True)
class Identity:
    """`id` names the run, `group` the same run under any seed; `name` is for people."""

    id: str
    group: str
    name: str

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.id}"


def identify(config: RunConfig) -> Identity:
    """The identity of a run; reads local data and weights, imports neither torch nor transformers."""
    but_seed, group = _once(config.model_dump_json(exclude={"seed", *NO_NUMBERS}), partial(_all_but_seed, config))
    label = f"{config.loss.name}-{config.model.name}-{config.dataset.name}"
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", label)[:40].rstrip("-_")
    return Identity(_hash({**but_seed, "seed": config.seed}), group, f"{name}-s{config.seed}")


def _all_but_seed(config: RunConfig) -> tuple[dict[str, Any], str]:
    """What runs of one group have in common, and its hash."""
    facts = {key: value for key, value in numbers(config).items() if key != "seed"}
    return facts, _hash(facts)


def numbers(config: RunConfig) -> dict[str, Any]:
    """Everything that can change a number, as plain data."""
    parts = config.model_dump(mode="json")
    facts: dict[str, Any] = {
        section: {key: value for key, value in parts[section].items() if key not in NEUTRAL.get(section, "").split()}
        for section in ("model", "dataset", "optimizer", "scheduler", "trainer", "evaluation")
    }
    for switch, keys in SWITCHED.items():  # off they change no number, nor the id of runs from before they were there
        if not parts["evaluation"][switch]:
            facts["evaluation"] = {key: value for key, value in facts["evaluation"].items() if key not in keys.split()}
    for (section, key), neutral in UNLESS.items():
        if facts[section][key] == neutral:
            del facts[section][key]
    if config.evaluation.mauve and (featurizer := folder_of(config.evaluation.mauve.featurizer)):
        facts["evaluation"]["mauve"]["featurizer"] = content(featurizer)
    facts["peft"] = parts["peft"] if config.peft.method != "none" else None
    facts["terms"] = parts["loss"]["terms"]
    facts["seed"] = config.seed
    model_folder = folder_of(config.model.path)
    at_hand = _once(model_folder, partial(content, model_folder)) if model_folder else None
    facts["weights"] = at_hand if model_folder else [config.model.path, config.model.revision]
    rows = Path(config.dataset.path).expanduser() if config.dataset.path else None
    facts["rows"] = _once(rows, partial(content, rows)) if rows else None
    terms = tuple(config.loss.terms)
    facts["code"] = _once(terms, partial(code_of_losses, terms))
    return facts


def content(folder: Path) -> dict[str, str]:
    """A digest of every data and model file of a folder, by name; the folder's own place does not matter."""
    kinds = {
        ".json", ".jsonl", ".parquet", ".txt", ".tokens", ".wp_source", ".wp_target", ".gz",
        ".safetensors", ".bin", ".model",
    }  # fmt: skip
    files = sorted(file for file in folder.glob("*") if file.suffix in kinds) if folder.is_dir() else []
    return {file.name: _file_digest(file) for file in files}


def code_of_losses(terms: Iterable[str]) -> str:
    """A digest of the losses' code without comments and docstrings: of what all losses share and of the classes that
    `terms` name, so that adding or documenting a loss renames no run."""
    wanted = set(terms)
    return _hash([code for file in sorted(LOSSES.rglob("*.py")) if (code := _code(file, wanted))])


def _code(file: Path, wanted: set[str]) -> list[str]:
    """What counts of a module: nothing if all of its losses are others, else all but the classes of other losses."""
    parts = _parts(file, file.stat().st_mtime_ns)
    names = {name for name, _ in parts if name}
    return [] if names and not names & wanted else [code for name, code in parts if name is None or name in wanted]


@cache
def _parts(file: Path, changed: int) -> list[tuple[str | None, str]]:
    """(registered name or None, code without comments and docstrings) of every statement of a module."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return [(_registered_name(node), ast.dump(node)) for node in tree.body]


def _registered_name(node: ast.AST) -> str | None:
    """`focal` for a class under `@register("focal", ...)`."""
    for decorator in getattr(node, "decorator_list", []):
        match decorator:
            case ast.Call(func=ast.Name(id="register"), args=[ast.Constant(value=str(name)), *_]):
                return name
    return None


def _file_digest(file: Path) -> str:
    digest, size = hashlib.sha256(), file.stat().st_size
    digest.update(str(size).encode())
    with file.open("rb") as data:
        if size <= 64 * SAMPLE:
            digest.update(data.read())
        else:
            digest.update(data.read(SAMPLE))
            data.seek(-SAMPLE, 2)
            digest.update(data.read())
    return digest.hexdigest()


def _hash(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
