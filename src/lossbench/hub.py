"""Is a repository of the Hugging Face hub within reach? Asked before heavy imports, answered in seconds."""

from __future__ import annotations

import os
from typing import Literal

from lossbench.errors import DataError, LossbenchError, ModelError

SECONDS = 5.0


class RemoteModelError(ModelError):
    """The hub refuses a model, or cannot be reached."""

    exit_code = 4


class RemoteDataError(DataError):
    """The hub refuses a dataset, or cannot be reached."""

    exit_code = 4


def check_reachable(id: str, kind: Literal["model", "dataset"], revision: str | None, otherwise: str) -> None:
    """Raise a sentence that says how to get the repository, unless it is cached or the hub answers for it.

    Args:
        id: hub id, `owner/name`.
        otherwise: the end of the advice, what to do without the hub.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    error_class: type[LossbenchError] = ModelError if kind == "model" else DataError
    remote_class: type[LossbenchError] = RemoteModelError if kind == "model" else RemoteDataError
    what = f"The {kind} {id!r}" + (f" at revision {revision!r}" if revision else "")
    download = f"`hf download {id}{' --repo-type dataset' if kind == 'dataset' else ''}` on a machine with network"
    if is_cached(id, kind, revision):
        return
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "TRUE", "YES", "ON"}:
        raise error_class(f"{what} is not in the local cache and HF_HUB_OFFLINE is set. Run {download}, {otherwise}.")
    try:
        HfApi().repo_info(id, repo_type=kind, revision=revision, timeout=SECONDS)
    except GatedRepoError:
        raise remote_class(
            f"{what} is gated: accept its licence at https://huggingface.co/{id}, log in with `hf auth login`, "
            f"then run {download}, {otherwise}."
        ) from None
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise (error_class if isinstance(error, HFValidationError) else remote_class)(
            f"{what} is neither a folder on this machine nor a repository that the hub shows you. Check the spelling; "
            f"if it is private or gated, log in with `hf auth login`, {otherwise}."
        ) from None
    except RevisionNotFoundError:
        raise remote_class(f"The {kind} {id!r} has no revision {revision!r}.") from None
    except Exception as error:  # every HTTP library has its own class for "no network"
        raise remote_class(
            f"{what} is not in the local cache and the hub cannot be reached ({type(error).__name__}). "
            f"Run {download} (a gated one needs its licence accepted and `hf auth login`), {otherwise}."
        ) from None


def is_cached(id: str, kind: Literal["model", "dataset"], revision: str | None) -> bool:
    """Whether a snapshot of the repository lies in the local cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        snapshot_download(id, repo_type=kind, revision=revision, local_files_only=True)
    except (LocalEntryNotFoundError, HFValidationError):
        return False
    return True
