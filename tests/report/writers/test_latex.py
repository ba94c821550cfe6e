import re
import shutil
import subprocess

import pytest

from lossbench.report.output import write_files
from lossbench.report.writers import latex
from tests.report.conftest import HOSTILE


@pytest.fixture(scope="module")
def files(report):
    return latex.write(report)


def test_there_is_a_file_a_table_and_a_document(files):
    assert sorted(files) == [
        "report.tex", "tables/tiny-on-arithmetic-differences.tex", "tables/tiny-on-arithmetic.tex"]  # fmt: skip
    for name in files:
        assert name == "report.tex" or rf"\input{{{name}}}" in files["report.tex"]


def test_best_is_bold_second_underlined_and_gaps_are_named(files):
    table = files["tables/tiny-on-arithmetic.tex"]
    assert r"$\mathbf{51.3}$ $\pm$ $1.5$" in table and r"\underline{$42.0$}" in table
    assert r"\textit{(1/3: 1 crashed, 1 invalid)}" in table
    assert r"Exact match (\%) $\uparrow$" in table and r"Perplexity $\downarrow$" in table


def test_tables_have_booktabs_rules_and_equal_rows(files):
    for name, text in files.items():
        if name == "report.tex":
            continue
        columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text).group(1))
        lines = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {columns - 1}
        assert [text.count(rf"\{rule}") for rule in ("toprule", "midrule", "bottomrule")] == [1, 1, 1]


def test_everything_is_ascii_and_names_are_inert(files):
    assert all(text.isascii() for text in files.values())
    assert HOSTILE not in files["tables/tiny-on-arithmetic.tex"]
    escaped = r"\textless{}script\textgreater{}alert(1)\textless{}/script\textgreater{}\textbar{}\_*\textasciigrave{}"
    assert escaped in files["tables/tiny-on-arithmetic.tex"]


@pytest.mark.parametrize(
    "text, expected",
    [
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("50 % & more_#1", r"50 \% \& more\_\#1"),
        ("two\nlines", "two lines"),
        ("a ± b → c", r"a $\pm$ b $\rightarrow$ c"),
        ("😀", r"\texttt{U+1F600}"),
    ],
)
def test_escapes(text, expected):
    assert latex.escape(text) == expected


@pytest.mark.slow
def test_the_document_compiles(files, tmp_path):
    engine = next((found for name in ("pdflatex", "tectonic", "xelatex") if (found := shutil.which(name))), None)
    if engine is None:
        pytest.skip("no TeX engine is here (Debian: apt-get install texlive-latex-recommended)")
    write_files(files, tmp_path)
    quiet = [] if "tectonic" in engine else ["-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run([engine, *quiet, "report.tex"], cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-3000:]
    assert (tmp_path / "report.pdf").stat().st_size > 10_000
