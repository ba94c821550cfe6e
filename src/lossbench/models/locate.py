"""Where a model's files are; no torch, so that planning and early checks stay quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lossbench.config import ModelConfig
from lossbench.errors import ModelError, nearest

EMBEDDED_PREFIX = "lossbench:"
EMBEDDED = Path(__file__).parent


def folder_of(path: str) -> Path | None:
    """The folder that `model.path` names, or None for a hub id.

    `lossbench:tiny` is the model inside the package. What looks like a path (begins with `/`, `.` or `~`, or has more
    than one slash) must exist; `owner/name` is a hub id unless such a folder is there.
    """
    if path.startswith(EMBEDDED_PREFIX):
        name = path.removeprefix(EMBEDDED_PREFIX)
        folder = EMBEDDED / name
        if not (folder / "config.json").is_file():
            known = [found.parent.name for found in EMBEDDED.glob("*/config.json")]
            raise ModelError(f"model.path={path!r}: the package holds no model {name!r}.{nearest(name, known)}")
        return folder
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise ModelError(f"model.path={path!r} is a folder without config.json, so it holds no transformers model.")
        return folder
    if path.startswith(("/", ".", "~")) or path.count("/") > 1:
        raise ModelError(f"model.path={path!r} is no folder on this machine, and no hub id of the form owner/name.")
    return None


def load_tokenizer(config: ModelConfig) -> Any:
    """The model's tokenizer alone, for which a folder with tokenizer.json is enough."""
    from transformers import AutoTokenizer

    folder = Path(config.path).expanduser()
    if not (folder / "tokenizer.json").is_file():
        check_available(config)
        folder = folder_of(config.path) or Path(config.path)
    try:
        return AutoTokenizer.from_pretrained(
            str(folder), revision=config.revision, trust_remote_code=config.trust_remote_code
        )
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"The tokenizer of model.path={config.path!r} cannot be loaded: {error}") from error


def check_available(config: ModelConfig) -> None:
    """Raise a sentence that says how to get the model, unless it can be loaded from here."""
    if folder_of(config.path) is not None:
        return
    from lossbench.hub import check_reachable

    check_reachable(
        config.path, "model", config.revision, f"or pass model.path=FOLDER if you have it (licence: {config.licence})"
    )
