import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest

from lossbench.report import assemble
from lossbench.report.writers import html
from tests.report.factory import write_run

NOW = 1_800_000_000.0
VOID = {"meta", "input", "br", "col", "wbr"}


class Page(HTMLParser):
    """Checks nesting and collects what matters."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.tags, self.attributes, self.ids, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.words.append(data)


@pytest.fixture(scope="module")
def text(report):
    return html.write(report)["report.html"]


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_names_from_runs_are_inert(text, page):
    assert page.tags.count("script") == 1
    assert "img" not in page.tags and "b" in page.tags
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<b>after</b>" not in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_the_page_names_no_address(text, page):
    assert not re.search(r"https?:|//[a-z]", text.replace(re.search(r"<script>.*</script>", text, re.S).group(), ""))
    assert not [a for a in page.attributes if a[1] in ("src", "srcset", "action", "data")]
    assert all(value.startswith("#") for tag, name, value in page.attributes if name == "href")
    assert "url(" not in text and "@import" not in text


def test_the_policy_allows_this_script_and_nothing_else(text):
    script = re.search(r"<script>(.*)</script>", text, re.S).group(1)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_links_lead_somewhere_and_ids_are_unique(page):
    targets = [value[1:] for tag, name, value in page.attributes if name == "href"]
    assert set(targets) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_numbers_marks_and_gaps_are_shown(text):
    assert re.search(r"<b>51\.3</b> <small>± 1\.5", text)
    assert "<u>42.0</u>" in text
    assert '<span class="absent">1/3: 1 failed, 1 missing</span>' in text
    assert "1/3: 1 crashed, 1 invalid" in text


def test_what_went_wrong_is_told(page):
    words = " ".join(page.words)
    sentences = [
        "the gradient became NaN at step 40 <b>after</b> train-17",
        "cut off",
        "val/nll is nan",
        "Planned, but no run folder was found",
        "The sweep plan expects 9 runs; 8 of them were found",
    ]
    for sentence in sentences:
        assert sentence in words


def test_the_machine_that_ran_is_not_told(text, study):
    assert "secret-host" not in text
    assert str(study.parent) not in text


def test_the_head_names_the_code_and_a_mixture_of_it(tmp_path, text):
    import json

    assert "Made with lossbench 0.1.0 (0123456789ab)." in text
    for seed, version in enumerate(("0.1.0", "0.2.0")):
        folder = write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5})
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "git": None, "versions": {"lossbench": version}}))
    found = html.write(assemble([tmp_path], now=NOW))["report.html"]
    assert "Made with 2 versions of the code: lossbench 0.1.0, lossbench 0.2.0." in found


def test_a_huge_configuration_stays_out_of_the_page_and_its_size_is_said(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, config={"notes": "x" * 2_000_000})
    write_run(tmp_path, "emo", 0, metrics={"test/em": 0.5})
    found = html.write(assemble([tmp_path], now=NOW))["report.html"]
    assert len(found.encode()) < 100_000 and "Its configuration has 2.0 MB" in found


def test_every_run_is_in_the_runs_table(text, report):
    table = text[text.index('id="runs-table"') :]
    assert table[: table.index("</table>")].count("<tr>") == 1 + len(report.records)


def test_curves_and_answers_are_drawn(page):
    assert page.tags.count("figure") == 2  # learning curves, cost against quality
    assert sum(name == "class" and value == "chart" for _, name, value in page.attributes) == 3
    assert page.tags.count("details") == 6  # five prompts, and the pairs of checkpoints


def test_the_page_is_small(text):
    assert len(text.encode()) < 120_000


def test_a_report_of_unreadable_runs_alone_is_a_page(tmp_path):
    path = write_run(tmp_path, "focal", 0)
    (path / "run.json").write_text("{")
    found = html.write(assemble([tmp_path], now=NOW))["report.html"]
    assert "No run says which loss it trained with" in " ".join(Page(found).words)


def test_many_losses_get_a_legend_in_place_of_labels(tmp_path):
    for number in range(12):
        write_run(tmp_path, f"loss{number}", 0, metrics={"test/em": 0.5})
    found = html.write(assemble([tmp_path], now=NOW))["report.html"]
    assert '<ul class="legend">' in found
    assert 'class="series"' not in found
    assert "stroke-dasharray" in found


def test_two_settings_have_headings_of_their_own(tmp_path):
    for dataset in ("arithmetic", "pydocs"):
        write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, dataset=dataset)
    found = html.write(assemble([tmp_path], now=NOW))["report.html"]
    page = Page(found)
    assert len(page.ids) == len(set(page.ids))
    assert found.count('class="setting"') == 2


def test_the_run_in_wandb_is_a_link_and_nothing_else_is(tmp_path):
    import json

    for seed, url in enumerate(("https://wandb.ai/team/p/runs/1?a=1&b=<2>", "javascript:alert(1)", None)):
        folder = write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5})
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "wandb": {"url": url}}))
    page = Page(html.write(assemble([tmp_path], now=NOW))["report.html"])
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href") and value[0] != "#"]
    assert links == ["https://wandb.ai/team/p/runs/1?a=1&b=<2>"]
    assert page.attributes.count(("a", "rel", "noopener noreferrer")) == 1


def test_twins_settings_costs_and_pairs_have_their_place(tmp_path):
    from tests.report.factory import answers

    for loss, given, steps in (("cross_entropy", {}, 150), ("focal", {"gamma": 0.0}, 150), ("emo", {}, 300)):
        config = {"loss": {"terms": {loss: {"weight": 1.0, **given}}}, "trainer": {"max_steps": steps}}
        metrics = {"test/em": 0.5, "time/train_s": 60.0}
        write_run(tmp_path, loss, 0, metrics=metrics, config=config, examples=answers(3))
    page = Page(html.write(assemble([tmp_path], now=NOW))["report.html"])
    words = " ".join(page.words)
    assert "cross_entropy and focal have the same gradient up to a factor" in words
    assert "Rows differ in more than their loss:" in words and "focal(gamma=0.0)" in words
    assert "For these checkpoints only." in words and "Spent in all:" in words
    assert {"costs", "settings", "checkpoints"} <= set(page.ids)


def test_a_page_that_would_be_too_large_leaves_out_and_says_so(report, monkeypatch):
    whole = len(html.render(report).encode())
    said = []
    for share in (0.95, 0.85, 0.5):
        monkeypatch.setattr(html, "MAX_BYTES", int(whole * share))
        monkeypatch.setattr(html, "BYTES_A_CELL", 1)
        text = html.render(report)
        Page(text)
        assert len(text.encode()) < whole
        said.append(re.search(r"So that this page stays small, ([^<]*)", text).group(1))
    levels = [next(i for i, d in enumerate(html.DETAILS) if f"{d.left_out}." == sentence) for sentence in said]
    assert levels == sorted(levels) and levels[0] >= 1 and levels[-1] == len(html.DETAILS) - 1


@pytest.mark.slow
def test_the_page_of_a_thousand_runs_is_under_a_megabyte(tmp_path):
    from tests.report.factory import answers

    for number in range(1000):
        seed, cell = divmod(number, 100)
        metrics = {
            "test/em": 0.4 + cell / 1000 + seed / 500,
            "test/ppl": 1.5 + seed / 9,
            "val/nll": 0.5,
            "time/train_s": 9.0,
        }
        where = {"dataset": f"set{cell % 5}", "examples": answers(seed % 6)}
        write_run(tmp_path, f"loss{cell // 5}" if cell > 4 else "cross_entropy", seed, metrics=metrics, **where)
    text = html.write(assemble([tmp_path], now=NOW))["report.html"]
    Page(text)
    assert 300_000 < len(text.encode()) < 1_000_000 and text.count("<tr>") > 1000
    # Whatever has to go for it, the drawings and the generations stay.
    assert text.count('class="forest"') == 19 * 5 and text.count('class="sample"') >= 5
    assert all(text.count(title) == 5 for title in ("<h2>Learning curves", "<h2>Cost against quality"))


def test_a_live_page_asks_its_own_server_alone(report):
    text = html.render(report, is_live=True)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(scripts) == 2 and "connect-src 'self'" in text
    for script in scripts:
        assert f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text
    assert "connect-src" not in html.render(report)
