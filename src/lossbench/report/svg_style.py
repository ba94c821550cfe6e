"""How the classes of our drawings look outside of the page: for SVG files, and for PDF files made by matplotlib."""

from __future__ import annotations

from dataclasses import dataclass

# The page's light colours (templates/page.css); Okabe and Ito's, the first is the ink.
SERIES = ("#4a4f58", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, SOFT, RULE = "#1c1e22", "#5b616b", "#e2dfd7"
OWN = "own"  # the colour of the element's series


@dataclass(frozen=True)
class Style:
    """Colours are hex, `own` or None; `dashes` in pixels; `size` is that of text."""

    stroke: str | None = None
    fill: str | None = None
    width: float = 1.0
    alpha: float = 1.0
    dashes: tuple[float, ...] = ()
    size: float = 12.0
    is_bold: bool = False


STYLES = {
    "grid": Style(stroke=RULE),
    "axis": Style(stroke=SOFT),
    "line": Style(stroke=OWN, width=2.0),
    "band": Style(fill=OWN, alpha=0.14),
    "leader": Style(stroke=OWN, alpha=0.7),
    "zero": Style(stroke=SOFT, dashes=(2, 3)),
    "front": Style(stroke=SOFT, width=1.5, dashes=(2, 3)),
    "whisker": Style(stroke=OWN, width=1.5),
    "clique": Style(stroke=INK, width=3.0),
    "dot": Style(fill=OWN),
    "tick": Style(fill=SOFT),
    "series": Style(fill=INK),
    "panel-title": Style(fill=INK, size=14.0, is_bold=True),
}


def css() -> str:
    """A style sheet for a drawing that stands alone."""
    colours = "".join(f"--s{i}:{colour};" for i, colour in enumerate(SERIES))
    rules = [f"svg{{{colours}font-family:sans-serif;background:#fff}}"]
    for name, style in STYLES.items():
        stroke, fill = (_css(colour) for colour in (style.stroke, style.fill))
        rule = f"stroke:{stroke};fill:{fill};stroke-width:{style.width:g};opacity:{style.alpha:g}"
        if style.dashes:
            rule += f";stroke-dasharray:{' '.join(f'{d:g}' for d in style.dashes)}"
        if style.fill and style.stroke is None:
            rule += f";font-size:{style.size:g}px" + (";font-weight:600" if style.is_bold else "")
        rules.append(f".{name}{{{rule}}}")
    return "".join(rules)


def _css(colour: str | None) -> str:
    return "none" if colour is None else "var(--c)" if colour == OWN else colour
