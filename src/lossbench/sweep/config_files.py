"""The YAML files of the configuration, read once for many compositions.

Hydra reads and parses every file again for each composition, and copies all that it knows of configurations besides: a
third of the time. It has no public way to keep them. Where a version of Hydra keeps its files elsewhere, nothing is
changed and composing takes longer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath


class _ReadOnce(ConfigRepository):
    """Hydra's files; what was loaded is handed out as a copy, since composing merges into it."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        self._loaded: dict[str, Any] = {}
        super().__init__(search_path)

    def __deepcopy__(self, memo: dict[int, Any]) -> _ReadOnce:
        """Hydra takes one for every composition, in case that it has to change where files are looked for."""
        return copy.copy(self)

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        self._loaded = {}
        super().initialize_sources(config_search_path)

    def load_config(self, config_path: str) -> Any:
        if config_path not in self._loaded:
            self._loaded[config_path] = super().load_config(config_path)
        return copy.deepcopy(self._loaded[config_path])


@contextmanager
def read_once(loader: ConfigLoader) -> Iterator[None]:
    """While it lasts, compositions by `loader` read every file once."""
    kept = getattr(loader, "repository", None)
    if type(kept) is not ConfigRepository:
        yield
        return
    loader.repository = _ReadOnce(loader.get_search_path())  # type: ignore[attr-defined]
    try:
        yield
    finally:
        loader.repository = kept  # type: ignore[attr-defined]
