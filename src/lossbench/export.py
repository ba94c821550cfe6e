"""The story of an export: from a finished run to a folder that Hugging Face's `from_pretrained` loads."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lossbench.config import PeftConfig, RunConfig
from lossbench.errors import ConfigError, DataError, ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from lossbench.reevaluate import Target

TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}  # of the largest logit; merging LoRA rounds once more
PROBE = "Question: Each box holds 3 pens. How many pens are there in 4 boxes?\nAnswer: 12"


@dataclass(frozen=True)
class Exported:
    """Where the model is, and sentences about it that a user should read."""

    folder: Path
    kind: Literal["full", "merged", "adapter"]
    notes: tuple[str, ...]


def export(what: str, folder: Path | None = None, *, merge: bool = False) -> Exported:
    """Write a finished run's model, tokenizer, generation config and model card to `folder` (default: RUN/export).

    With `merge` LoRA becomes part of the weights; without it, a run that trained LoRA gives an adapter folder. The
    folder is loaded again without any remote code, and its logits are compared with the trained model's, before it gets
    its name: what has the name is whole and works.

    Raises:
        ConfigError: `what` is no run that was trained, or its model needs code that is not transformers' own.
        DataError: the run has not finished, or there is something at `folder` already.
        ModelError: the exported model does not give the logits of the trained one.
    """
    from lossbench.reevaluate import find

    target = find(what)
    if target.checkpoint is None:
        raise ConfigError(f"{what} is no folder of a run that was trained, which is what `lossbench export` takes.")
    if target.config.model.trust_remote_code:
        raise ConfigError(
            f"{what} has model.trust_remote_code=true: its model is made by code of its repository, which an export "
            "would have to carry along, and which is never run from an export. Train it with "
            "model.trust_remote_code=false, if transformers has the architecture."
        )
    folder = (folder or target.folder / "export").expanduser()
    if folder.exists():
        raise DataError(f"{folder} exists already, and nothing is overwritten: remove it or choose another with --out.")
    from lossbench.models.locate import check_available

    check_available(target.config.model)
    model, tokenizer, notes = _trained(target)
    ids, expected = _logits_of(model, tokenizer)
    kind = _kind(target.config.peft, merge)
    if kind == "merged":
        model = _merged(model)
    with _whole_or_absent(folder) as temporary:
        _write(model, tokenizer, temporary, target, kind)
        _write_card(temporary, target, kind, notes)
        del model
        gc.collect()  # one model of memory, not two
        _check(temporary, target.config, ids, expected)
    return Exported(folder, kind, tuple(notes))


def _kind(peft: PeftConfig, merge: bool) -> Literal["full", "merged", "adapter"]:
    if peft.method == "none":
        return "full"
    return "merged" if merge else "adapter"


def _trained(target: Target) -> tuple[Any, Any, list[str]]:
    """The model on the CPU with the run's weights in it, its tokenizer, and sentences about what stays behind."""
    from torch import nn

    from lossbench.models.load import add_peft, load
    from lossbench.training.checkpoint import load_weights
    from lossbench.training.state import read_state

    config, notes = target.config, []
    assert target.checkpoint is not None
    state = read_state(target.checkpoint)
    peft = config.peft
    if peft.method == "qlora":
        peft = peft.model_copy(update={"method": "lora", "bits": None})
        notes.append(
            f"LoRA was trained on weights of {config.peft.bits} bits. The export stands on the weights of "
            f"{config.model.dtype}, so its numbers may differ a little from those below."
        )
    if heads := sorted(name for name in state if name.startswith("context.")):
        notes.append(
            f"The loss trained a second LM head beside the model ({', '.join(heads)}), which serves training alone and "
            "is not part of this model."
        )
    model, tokenizer = load(config.model, peft)
    holder = nn.Module()  # in a checkpoint the weights are those of a module that holds the model
    tuned = holder.model = add_peft(model, peft)
    load_weights(holder, state)
    model.config.use_cache = True  # loading turned it off for training
    return tuned.eval(), tokenizer, notes


def _logits_of(model: Any, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """(1, T) token ids of a fixed text, and the model's (1, T, V) logits in float32."""
    import torch

    ids = tokenizer(PROBE, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return ids, model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()


def _merged(model: Any) -> Any:
    """The causal LM with LoRA added to its weights.

    A head with LoRA of its own is no longer the embedding, even if it was tied to it: LoRA on it never changed what the
    model reads, so the two part.
    """
    from torch import nn

    causal = model.get_base_model()
    head, embedding = causal.get_output_embeddings(), causal.get_input_embeddings()
    if hasattr(head, "base_layer") and head.base_layer.weight is embedding.weight:
        head.base_layer.weight = nn.Parameter(embedding.weight.detach().clone())
        causal.config.tie_word_embeddings = False
        causal.all_tied_weights_keys = {}
    return model.merge_and_unload()


def _write(model: Any, tokenizer: Any, folder: Path, target: Target, kind: str) -> None:
    from lossbench.models.locate import folder_of

    causal = model.get_base_model() if kind == "adapter" else model
    generation = causal.generation_config
    try:
        generation.validate(strict=True)
    except ValueError:
        generation.do_sample = True  # sampling parameters without sampling, as Llama 2 has: refused on writing
    model.save_pretrained(folder, **({"save_embedding_layers": False} if kind == "adapter" else {}))
    generation.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if kind != "adapter":
        return
    file = folder / "adapter_config.json"
    adapter = json.loads(file.read_text(encoding="utf-8"))
    own = folder_of(target.config.model.path)
    adapter["base_model_name_or_path"] = str(own.resolve()) if own else target.config.model.path
    adapter["revision"] = None if own else target.config.model.revision
    file.write_text(json.dumps(adapter, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write_card(folder: Path, target: Target, kind: Literal["full", "merged", "adapter"], notes: list[str]) -> None:
    from lossbench.model_card import Facts, model_card
    from lossbench.models.locate import folder_of
    from lossbench.tracking.record import read_result

    own = folder_of(target.config.model.path)
    if own is not None and kind == "adapter":
        notes.append(
            "The base model of this adapter is a folder of the machine that made it: set base_model_name_or_path in "
            "adapter_config.json before you share it."
        )
    run = json.loads((target.folder / "run.json").read_text(encoding="utf-8"))
    result = read_result(target.folder) or {"metrics": {}, "checkpoint": None}
    facts = Facts(target.config, run, result, kind, own is None, notes)
    (folder / "README.md").write_text(model_card(facts), encoding="utf-8")


def _check(folder: Path, config: RunConfig, ids: Tensor, expected: Tensor) -> None:
    """Load the folder as anybody would, and compare its logits with those of the trained model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, config.model.dtype),
        attn_implementation=config.model.attention,
        trust_remote_code=False,
    ).eval()
    if not torch.equal(AutoTokenizer.from_pretrained(folder)(PROBE, return_tensors="pt")["input_ids"], ids):
        raise ModelError("The exported tokenizer gives other tokens than the model's own, so the export was discarded.")
    with torch.no_grad():
        found = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    error, largest = float((found - expected).abs().max()), float(expected.abs().max())
    if not error <= TOLERANCE[config.model.dtype] * largest:
        raise ModelError(
            f"The exported model's logits differ by {error:.3g} from the trained model's, whose largest is "
            f"{largest:.3g}: the export was discarded."
        )


@contextmanager
def _whole_or_absent(folder: Path) -> Iterator[Path]:
    """A folder of a temporary name, which gets its own when the block has ended without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
