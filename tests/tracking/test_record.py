import fcntl
import json
import multiprocessing
import threading
from pathlib import Path

import pytest

from lossbench import app
from lossbench.config import RunConfig
from lossbench.identity import identify
from lossbench.tracking.record import RunIsActiveError, find_folder, open_record, read_result


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return app.compose(f"paths.runs={tmp_path}", "tracking.mode=disabled")


def folder(config: RunConfig) -> Path:
    return find_folder(config, identify(config))


def test_a_finished_run_says_so_last_and_keeps_what_it_logged(config: RunConfig):
    with open_record(config, identify(config)) as record:
        assert read_result(record.folder) is None
        record.log(1, {"train/loss": 2.5})
        record.log(2, {"train/loss": float("nan")})
        record.write_examples([{"id": "a", "em": True}])
        record.finish({"test/em": 0.5}, {"step": 2, "criterion": "val/nll", "value": 1.0})
    result = read_result(folder(config))
    assert result is not None
    assert (result["status"], result["error"], result["metrics"]) == ("finished", None, {"test/em": 0.5})
    lines = [json.loads(line) for line in (folder(config) / "metrics.jsonl").read_text().splitlines()]
    assert [line["train/loss"] for line in lines] == [2.5, "NaN"]
    assert (folder(config) / "examples.parquet").exists()
    run = json.loads((folder(config) / "run.json").read_text())
    assert (run["loss"], run["model"], run["seed"], run["attempt"]) == ("cross_entropy", "tiny", 0, 1)
    assert run["config"]["optimizer"]["lr"] == config.optimizer.lr


def test_a_failed_run_keeps_its_error_and_traceback(config: RunConfig):
    with pytest.raises(ZeroDivisionError), open_record(config, identify(config)):
        1 / 0  # noqa: B018
    result = read_result(folder(config))
    assert result is not None
    assert (result["status"], result["error"]["type"]) == ("failed", "ZeroDivisionError")
    assert "1 / 0" in (folder(config) / "error.txt").read_text()


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_run_that_is_stopped_is_interrupted_not_finished(config: RunConfig, end: type[BaseException]):
    with pytest.raises(end), open_record(config, identify(config)):
        raise end
    result = read_result(folder(config))
    assert result is not None
    assert result["status"] == "interrupted"


def test_a_second_attempt_keeps_the_numbers_of_the_first(config: RunConfig):
    for value in (1.0, 2.0):
        with open_record(config, identify(config)) as record:
            record.log(1, {"train/loss": value})
    assert '"train/loss": 1.0' in (folder(config) / "metrics.attempt1.jsonl").read_text()
    assert '"train/loss": 2.0' in (folder(config) / "metrics.jsonl").read_text()
    assert json.loads((folder(config) / "run.json").read_text())["attempt"] == 2


def test_two_processes_never_write_one_run(config: RunConfig):
    with open_record(config, identify(config)):
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            assert pool.apply(_is_refused, (config,))


def _is_refused(config: RunConfig) -> bool:
    try:
        with open_record(config, identify(config)):
            return False
    except RunIsActiveError:
        return True


def test_a_look_at_the_lock_disturbs_no_start(config: RunConfig):
    """Who asks whether a run is active holds its lock for an instant."""
    folder(config).mkdir(parents=True)
    with (folder(config) / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with open_record(config, identify(config)) as record:
            pass
    assert (record.folder / "result.json").exists()


def test_a_renamed_run_is_found_by_its_id(config: RunConfig):
    with open_record(config, identify(config)) as record:
        pass
    renamed = config.model_copy(update={"loss": config.loss.model_copy(update={"name": "renamed"})})
    assert folder(renamed) == record.folder


def test_a_resumed_run_goes_on_behind_the_lines_of_its_checkpoint(config: RunConfig):
    with pytest.raises(SystemExit), open_record(config, identify(config)) as record:
        for step in (1, 2, 3):
            record.log(step, {"train/loss": float(step)})
        (record.folder / "checkpoints").mkdir()
        (record.folder / "checkpoints" / "last.safetensors").touch()
        raise SystemExit
    with open_record(config, identify(config)) as record:
        assert record.lines == 3
        record.continue_from(2)
        record.log(3, {"train/loss": 3.0})
        assert record.lines == 3
    lines = [json.loads(line) for line in (folder(config) / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert not (folder(config) / "metrics.attempt1.jsonl").exists()


def test_lines_that_no_checkpoint_stands_behind_are_set_aside(config: RunConfig):
    for _ in range(2):
        with open_record(config, identify(config)) as record:
            record.continue_from(None)
            record.log(1, {"train/loss": 1.0})
            (record.folder / "checkpoints").mkdir(exist_ok=True)
            (record.folder / "checkpoints" / "last.safetensors").touch()
    assert len((folder(config) / "metrics.jsonl").read_text().splitlines()) == 1
    assert len((folder(config) / "metrics.attempt1.jsonl").read_text().splitlines()) == 1
