"""What there is to say about a loss: read from its class and docstring, for tables, pages and command lines."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from .base import Loss, StatisticsLoss
from .equivalences import twins_of
from .registry import get, parameters

SECTIONS = ("Args", "Hazards", "Official code")


@dataclass(frozen=True)
class LossInfo:
    """Description of a registered loss."""

    name: str
    summary: str
    formula: str
    kind: str
    scope: str
    needs: tuple[str, ...]
    optional: tuple[str, ...]
    defaults: dict[str, Any]
    parameters: dict[str, str]  # name -> meaning and range
    statistics: tuple[str, ...]
    shift_invariant: bool
    cost: str
    hazards: tuple[str, ...]
    deviations: tuple[str, ...]  # of the official code from what is computed here
    twins: tuple[str, ...]  # same gradient
    notes: str
    paper: str


def info(name: str) -> LossInfo:
    """Description of a loss by its registered name (or `module:attribute`)."""
    cls = get(name)
    summary, notes, formula, sections = _parse(cls)
    return LossInfo(
        name=name,
        summary=summary,
        formula=formula,
        kind=cls.kind,
        scope=cls.scope,
        needs=tuple(cls.needs),
        optional=tuple(cls.optional),
        defaults={k: v for k, v in parameters(cls).items() if v is not inspect.Parameter.empty},
        parameters=_arguments(sections["Args"]),
        statistics=tuple(cls.statistics) if issubclass(cls, StatisticsLoss) else (),
        shift_invariant=cls.shift_invariant,
        cost=cls.cost,
        hazards=_bullets(sections["Hazards"]),
        deviations=_bullets(sections["Official code"]),
        twins=tuple(twins_of(name)),
        notes=notes,
        paper=cls.paper,
    )


def _parse(cls: type[Loss]) -> tuple[str, str, str, dict[str, list[str]]]:
    """Docstring -> summary, notes (plain paragraphs), formula (indented lines), sections by header."""
    lines = inspect.cleandoc(cls.__doc__ or "").split("\n")
    sections: dict[str, list[str]] = {name: [] for name in SECTIONS}
    body: list[str] = []
    current = body
    for line in lines[1:]:
        header = re.fullmatch(r"(\w[\w ]*):", line)
        if header and header[1] in sections:
            current = sections[header[1]]
        else:
            current.append(line)
    formula = inspect.cleandoc("\n" + "\n".join(line for line in body if line.startswith(" ")))
    notes = "\n".join(line for line in body if not line.startswith(" ")).strip()
    return lines[0], re.sub(r"\n{2,}", "\n\n", notes), formula, sections


def _arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        start = re.fullmatch(r" {4}(\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2]
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found


def _bullets(lines: list[str]) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines:
        if line.startswith("    - "):
            found.append(line[6:])
        elif line.strip() and found:
            found[-1] += " " + line.strip()
    return tuple(found)


def as_text(about: LossInfo) -> str:
    """The description as plain text for a terminal."""
    lines = [f"{about.name}: {about.summary}", "", *(f"    {line}" for line in about.formula.split("\n")), ""]
    lines += [about.notes, ""] if about.notes else []
    lines += [f"kind: {about.kind}    scope: {about.scope}    needs: {', '.join(about.needs) or 'nothing else'}"]
    lines += [f"cost: {about.cost}", f"paper: {about.paper}"]
    parameters = [f"{name} = {about.defaults[name]!r}: {text}" for name, text in about.parameters.items()]
    for title, items in (
        ("Parameters", parameters),
        ("Hazards", about.hazards),
        ("Where the official code differs", about.deviations),
        ("Same gradient", about.twins),
    ):
        lines += ["", f"{title}:", *(f"  - {item}" for item in items)] if items else []
    return "\n".join(lines)
