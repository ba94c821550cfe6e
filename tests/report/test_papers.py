import json

import pytest

from lossbench import losses
from lossbench.app import compose
from lossbench.errors import ConfigError
from lossbench.report import Choices, assemble, papers
from tests.report.factory import write_run

NOW = 1_800_000_000.0


@pytest.mark.parametrize("name", papers.available())
def test_every_figure_names_its_source(name):
    paper = json.loads((papers.FOLDER / f"{name}.json").read_text())
    assert paper["address"].startswith("https://") and (paper["figures"] or paper["improvements"])
    assert all(figure["source"] for figure in (*paper["figures"], *paper["improvements"]))


@pytest.mark.parametrize("name", papers.available())
def test_every_loss_of_a_paper_can_be_run(name):
    paper = json.loads((papers.FOLDER / f"{name}.json").read_text())
    for loss in (*paper["losses"], *paper["baselines"]):
        assert set(compose(f"loss={loss}").loss.terms) <= set(losses.available())


def test_ours_stand_beside_the_published_figures(tmp_path):
    for loss, em in (("cross_entropy", 0.30), ("emo", 0.35)):
        for seed in range(3):
            write_run(tmp_path, loss, seed, metrics={"test/em": em + 0.01 * seed * (loss == "emo")}, dataset="gsm8k")
    paper = assemble([tmp_path], Choices(paper="emo"), now=NOW).paper
    gsm = next(row for row in paper.rows if row.task == "GSM")
    assert (gsm.published_baseline, gsm.published_loss, gsm.published_change) == ("29.0", "33.0", "+4.0")
    assert (gsm.ours_baseline, gsm.ours_loss) == ("30.0", "36.0") and gsm.ours_change.startswith("+6.0 [")
    assert "emo, tiny on gsm8k, 3 seeds" in gsm.ours_setting
    mmlu = next(row for row in paper.rows if row.task == "MMLU")
    assert (mmlu.ours_setting, mmlu.ours_loss) == ("not run", "")


def test_a_mean_relative_improvement_is_that_of_the_papers_losses(tmp_path):
    for loss, em in (("cross_entropy", 0.2), ("ce_focal", 0.3), ("ce_lovasz", 0.2), ("emo", 0.9)):
        write_run(tmp_path, loss, 0, metrics={"test/em": em})
    arxiv, anthology = assemble([tmp_path], Choices(paper="vision_losses"), now=NOW).paper.rows
    assert (arxiv.published_change, anthology.published_change) == ("+42%", "+36%")
    assert arxiv.ours_change == "+25%" and arxiv.ours_setting == "2 means of 1 table"


def test_an_unknown_paper_is_refused(tmp_path):
    write_run(tmp_path, "emo", 0, metrics={"test/em": 0.9})
    with pytest.raises(ConfigError, match=r"no figures of 'emoo'.*'emo'"):
        assemble([tmp_path], Choices(paper="emoo"), now=NOW)
