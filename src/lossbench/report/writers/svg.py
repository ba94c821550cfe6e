"""`figures/*.svg`: the report's drawings as files of their own, in light colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.figures import drawings
from lossbench.report.svg_style import css

if TYPE_CHECKING:
    from lossbench.report.build import Report

NAMESPACE = "http://www.w3.org/2000/svg"


def write(report: Report) -> dict[str, str]:
    """One file a drawing."""
    return {f"figures/{name}.svg": standalone(svg) for name, svg in drawings(report).items()}


def standalone(svg: str) -> str:
    """A drawing of the page as an SVG document."""
    head, _, rest = svg.partition(">")
    return f'{head} xmlns="{NAMESPACE}"><style>{css()}</style>{rest}\n'
