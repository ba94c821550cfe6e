"""Output formats. Each module here is one format, found by its name.

A writer has `write(report) -> {file name: text or bytes}` and touches no file itself; `build` writes what it returns.
A file name may hold slashes (`figures/curves.svg`). A writer whose work is long for some reports may have
`by_default(report) -> bool`: where it says False, it writes only when it is asked for by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from lossbench.errors import ConfigError, nearest

if TYPE_CHECKING:
    from lossbench.report.build import Report

SHORT_NAMES = {"md": "markdown", "tex": "latex"}


class Writer(Protocol):
    """The shape of a writer module."""

    def write(self, report: Report) -> Mapping[str, str | bytes]:
        """File name -> its whole content; text is written as UTF-8."""


def available() -> list[str]:
    """Names of all formats."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def choose(formats: Iterable[str] | None = None) -> list[Writer]:
    """The writers of the named formats, each once; all of them for None.

    Raises:
        ConfigError: an unknown name.
    """
    known = available()
    names = known if formats is None else [SHORT_NAMES.get(name, name) for name in formats]
    for name in names:
        if name not in known:
            raise ConfigError(f"There is no report format {name!r}.{nearest(name, known)}")
    return [cast(Writer, importlib.import_module(f"{__name__}.{name}")) for name in dict.fromkeys(names)]
