import re
from xml.etree import ElementTree

import pytest

from lossbench.report import assemble
from lossbench.report.figures import drawings
from lossbench.report.svg_style import STYLES
from lossbench.report.writers import pdf, svg
from tests.report.factory import write_run

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def names(report):
    return [f"figures/{name}" for name in drawings(report)]


def test_every_drawing_is_a_file(report, names):
    assert len(names) == len(set(names)) >= 6
    assert any("learning_curves" in name for name in names) and any("forest" in name for name in names)
    assert sorted(svg.write(report)) == sorted(f"{name}.svg" for name in names)


def test_an_svg_file_stands_alone(report):
    for text in svg.write(report).values():
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        classes = {element.get("class") for element in root.iter() if element.get("class")} - {"chart"}
        assert classes <= set(STYLES)  # whatever is drawn has a look outside of the page too
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_pdf_file_is_a_page_of_the_drawings_size(report):
    name, drawn = next(iter(drawings(report).items()))
    data = pdf.to_pdf(drawn)
    width, height = (float(part) * 0.75 for part in re.search(r'viewBox="0 0 (\S+) (\S+)"', drawn).groups())
    box = [float(part) for part in re.search(rb"/MediaBox \[ ([^\]]*)\]", data).group(1).split()]
    assert data.startswith(b"%PDF-") and box == pytest.approx([0, 0, width, height], abs=0.5), name
    assert b"CreationDate" not in data and b"FontFile2" in data


def test_a_pdf_file_is_the_same_bytes_again(report):
    drawn = next(iter(drawings(report).values()))
    assert pdf.to_pdf(drawn) == pdf.to_pdf(drawn)


def test_text_of_runs_is_inert_in_files(tmp_path):
    for loss in ("<b>&", "$x^2$ 😀"):
        for seed in range(2):
            write_run(tmp_path, loss, seed, metrics={"test/em": 0.5 + seed / 10, "time/train_s": 10.0 + seed})
    report = assemble([tmp_path], now=NOW)
    assert all(ElementTree.fromstring(text) is not None for text in svg.write(report).values())
    drawn = next(text for name, text in drawings(report).items() if "cost" in name)
    assert pdf.to_pdf(drawn).startswith(b"%PDF")
