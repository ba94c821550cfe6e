"""`figures/*.pdf`: the report's drawings as PDF, for papers: those of the page, laid out by matplotlib."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from lossbench.report.figures import drawings
from lossbench.report.svg_style import OWN, SERIES, STYLES, Style

if TYPE_CHECKING:
    from lossbench.report.build import Report

MANY = 30
POINTS = 72 / 96  # a CSS pixel in points
_COMMAND = re.compile(r"([MLZhl])|(-?\d+(?:\.\d+)?)")


def by_default(report: Report) -> bool:
    """False for a report of very many figures, each of which takes about 0.2 s: they are made when asked for."""
    return len(drawings(report)) <= MANY


def write(report: Report) -> dict[str, bytes]:
    """One file a drawing."""
    return {f"figures/{name}.pdf": to_pdf(svg) for name, svg in drawings(report).items()}


def to_pdf(svg: str) -> bytes:
    """One drawing as a PDF page of its size, without a date: the same drawing gives the same bytes.

    Understands what `lossbench.report.svg` makes: paths of M, L, l, Z and h, circles and texts.
    """
    import matplotlib
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    # TrueType, so that the text can be searched and edited, and is accepted by publishers.
    with matplotlib.rc_context({"pdf.fonttype": 42, "font.family": "DejaVu Sans", "pdf.compression": 6}):
        figure = Figure(figsize=(width / 96, height / 96))
        FigureCanvasPdf(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.axis("off")
        for order, element in enumerate(root):
            _add(axes, element, order)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": "lossbench"})
    return buffer.getvalue()


def _add(axes: Any, element: ElementTree.Element, order: int) -> None:
    style = STYLES.get(element.attrib.get("class", ""), Style())
    own = _own_colour(element.attrib.get("style", ""))
    stroke, fill = (own if colour == OWN else colour for colour in (style.stroke, style.fill))
    if element.tag == "path":
        from matplotlib.patches import PathPatch

        dashes = element.attrib.get("stroke-dasharray")
        pattern = [float(part) for part in dashes.split()] if dashes else list(style.dashes)
        patch = PathPatch(
            _path(element.attrib["d"]),
            facecolor=fill or "none",
            edgecolor=stroke or "none",
            linewidth=style.width * POINTS,
            alpha=style.alpha,
            linestyle=(0, [d / style.width for d in pattern]) if pattern else "solid",
            capstyle="butt",
            joinstyle="round",
            zorder=order,
        )
        axes.add_patch(patch)
    elif element.tag == "circle":
        from matplotlib.patches import Circle

        centre = (float(element.attrib["cx"]), float(element.attrib["cy"]))
        axes.add_patch(
            Circle(centre, float(element.attrib["r"]), facecolor=fill or own, edgecolor="none", zorder=order)
        )
    elif element.tag == "text":
        anchor = {"end": "right", "middle": "center"}.get(element.attrib.get("text-anchor", ""), "left")
        axes.text(
            float(element.attrib["x"]),
            float(element.attrib["y"]),
            _plain(element.text or ""),
            color=fill or "black",
            fontsize=style.size * POINTS * 0.86,
            # One font a file: embedding a second one takes as long as everything else together.
            ha=anchor,
            va="baseline",
            zorder=order,
            parse_math=False,
        )


def _plain(text: str) -> str:
    """The text with characters that the font lacks replaced, so that nothing is warned about or left blank."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    known = font.get_charmap()
    return "".join(c if ord(c) in known else "\ufffd" for c in text)


def _own_colour(style: str) -> str:
    match = re.search(r"--s(\d)", style)
    return SERIES[int(match.group(1))] if match else SERIES[0]


def _path(d: str) -> Any:
    from matplotlib.path import Path

    vertices: list[tuple[float, float]] = []
    codes: list[int] = []
    command, numbers = "M", []
    for letter, number in _COMMAND.findall(d):
        if letter:
            command = letter
            if letter == "Z":
                vertices.append(vertices[-1])
                codes.append(int(Path.CLOSEPOLY))
            continue
        numbers.append(float(number))
        if command == "h":  # a dot with round caps: a line of no length
            numbers.clear()
        elif len(numbers) == 2:
            x, y = vertices[-1] if command == "l" else (0.0, 0.0)
            vertices.append((x + numbers[0], y + numbers[1]))
            codes.append(int(Path.MOVETO if command == "M" else Path.LINETO))
            numbers.clear()
    return Path(vertices, codes)
