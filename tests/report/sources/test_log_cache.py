from pathlib import Path

import pytest

from lossbench.report.sources import Options, _log_cache, wandb_log
from tests.report import wandb_logs as logs

NOW = 1_800_000_000.0


def write(root: Path, run_id: str, em: float) -> Path:
    folder = root / f"offline-run-{run_id}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"run-{run_id}.wandb"
    messages = [
        logs.run(run_id, logs.identity()),
        logs.row(1, {"val/nll": 0.5}),
        logs.summary({"test/em": em}),
        logs.leave(0),
    ]
    file.write_bytes(logs.encode(messages))
    return file


@pytest.fixture
def reads(monkeypatch):
    """Paths of the logs that were really read."""
    read, paths = wandb_log.read_log, []
    monkeypatch.setattr(wandb_log, "read_log", lambda path: paths.append(path.name) or read(path))
    return paths


def report(root: Path, cache: Path | None):
    return [record.metrics for record in wandb_log.read(str(root), NOW, Options(api_cache=cache)).records]


def test_only_logs_that_changed_are_read_again(tmp_path, reads):
    for run_id, em in (("a", 0.1), ("b", 0.2)):
        write(tmp_path / "logs", run_id, em)
    first = report(tmp_path / "logs", tmp_path / "cache")
    assert report(tmp_path / "logs", tmp_path / "cache") == first and len(reads) == 2
    write(tmp_path / "logs", "b", 0.25)
    assert [m["test/em"] for m in report(tmp_path / "logs", tmp_path / "cache")] == [0.1, 0.25]
    assert reads[2:] == ["run-b.wandb"]


def test_what_is_kept_is_for_this_user_alone_and_damage_of_it_is_no_matter(tmp_path, reads):
    write(tmp_path / "logs", "a", 0.1)
    report(tmp_path / "logs", tmp_path / "cache")
    file = tmp_path / "cache" / _log_cache.NAME
    assert file.stat().st_mode & 0o077 == 0
    for text in ("{", '{"format": 1, "logs": {}}', file.read_text().replace('"stat"', '"other"'), '{"format": 0}'):
        file.write_text(text)
        assert report(tmp_path / "logs", tmp_path / "cache") == [{"test/em": 0.1}]


def test_without_a_folder_nothing_is_kept(tmp_path, reads):
    write(tmp_path / "logs", "a", 0.1)
    assert report(tmp_path / "logs", None) == report(tmp_path / "logs", None) and len(reads) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path):
    write(tmp_path / "logs", "a", 0.1)
    (tmp_path / "file").write_text("mine")
    assert report(tmp_path / "logs", tmp_path / "file" / "cache") == [{"test/em": 0.1}]
