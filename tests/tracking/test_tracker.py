import json
from pathlib import Path

import pytest

from lossbench import app, tracking
from lossbench.errors import ConfigError
from lossbench.identity import identify
from lossbench.run import check
from lossbench.tracking import tracker
from lossbench.tracking.tracker import NoTracker, open_tracker


@pytest.mark.parametrize("overrides", [["tracking=none"], ["tracking=wandb", "tracking.mode=disabled"]])
def test_a_run_without_a_tracker_leaves_its_record_alone(tmp_path: Path, overrides: list[str]):
    config = app.compose(f"paths.runs={tmp_path}", *overrides)
    assert isinstance(open_tracker(config.tracking, {}, tmp_path), NoTracker)
    with tracking.open_run(config) as run:
        run.log(1, {"train/loss": 1.0})
        run.finish({"test/em": 0.5}, {"step": 1})
    assert sorted(file.name for file in run.folder.iterdir() if not file.name.startswith(".")) == [
        "config.yaml", "metrics.jsonl", "result.json", "run.json",
    ]  # fmt: skip
    assert json.loads((run.folder / "run.json").read_text())["wandb"] is None


def test_the_tracker_changes_no_identity():
    ids = {identify(app.compose(f"tracking={name}")).id for name in ("wandb", "tensorboard", "none")}
    assert len(ids) == 1


def test_the_group_is_the_id_without_the_seed():
    identities = [identify(app.compose(f"seed={seed}")) for seed in (0, 1)]
    assert identities[0].group == identities[1].group
    assert identities[0].id != identities[1].id


def test_a_missing_package_is_said_before_any_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracker, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"tracking=tensorboard needs the package tensorboard.*choose tracking=none"):
        check(app.compose("tracking=tensorboard"))
    check(app.compose("tracking=tensorboard", "tracking.mode=disabled"))
