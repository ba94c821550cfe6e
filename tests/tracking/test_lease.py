"""Who may write a run's folder."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from lossbench.tracking import lease
from lossbench.tracking.lease import LeaseHeldError, LeaseLostError, claim


def as_another_machine(folder: Path) -> None:
    """Make the present claim one of a process that cannot be looked at from here."""
    file = folder / ".claim"
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "elsewhere"}))


def test_a_copy_of_the_same_job_takes_over_when_the_first_has_stopped(tmp_path: Path):
    first = claim(tmp_path, "1_0")
    as_another_machine(tmp_path)

    def give_way() -> None:
        while first.is_mine():
            time.sleep(0.01)
        time.sleep(0.2)
        order.append("first stopped")
        first.release()

    order: list[str] = []
    thread = threading.Thread(target=give_way)
    thread.start()
    second = claim(tmp_path, "1_0", pause=0.05)
    order.append("second started")
    thread.join()
    assert order == ["first stopped", "second started"]
    assert second.renew()
    assert not first.renew()


def test_a_silent_holder_is_waited_for_no_longer_than_a_while(tmp_path: Path):
    claim(tmp_path, "1_0")
    as_another_machine(tmp_path)
    started = time.monotonic()
    claim(tmp_path, "1_0", stale=0.5, pause=0.05)
    assert 0.3 < time.monotonic() - started < 20


def test_a_holder_that_died_on_this_machine_is_not_waited_for(tmp_path: Path):
    if (child := os.fork()) == 0:
        claim(tmp_path, "1_0")
        os._exit(0)
    os.waitpid(child, 0)
    assert claim(tmp_path, "2_0").is_mine()


def test_another_job_does_not_take_over(tmp_path: Path):
    first = claim(tmp_path, "1_0")
    with pytest.raises(LeaseHeldError, match="is being written by job 1_0"):
        claim(tmp_path, "2_0")
    assert first.renew()
    first.release()
    assert claim(tmp_path, "2_0").is_mine()


def test_of_three_copies_the_newest_writes(tmp_path: Path):
    claim(tmp_path, "1_0")
    as_another_machine(tmp_path)
    outcomes: list[str] = []

    def second() -> None:
        try:
            claim(tmp_path, "1_0", pause=0.02)
        except LeaseLostError:
            outcomes.append("gave way")

    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.2)
    third = claim(tmp_path, "1_0", stale=0.5, pause=0.05)
    thread.join()
    assert outcomes == ["gave way"]
    assert third.is_mine()


def test_who_acts_for_a_former_holder_must_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = claim(tmp_path, "1_0")
    monkeypatch.setenv(lease.VARIABLE, first.token)
    lease.check(tmp_path)
    first.release()
    claim(tmp_path, "1_0")
    assert lease.is_lost(tmp_path)
    with pytest.raises(LeaseLostError, match="taken over"):
        lease.check(tmp_path)


def test_who_holds_nothing_must_not_write_beside_a_live_holder(tmp_path: Path):
    lease.check(tmp_path)
    held = claim(tmp_path, "1_0")
    with pytest.raises(LeaseHeldError):
        lease.check(tmp_path)
    held.release()
    lease.check(tmp_path)


def test_a_run_that_lost_its_folder_leaves_it_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from lossbench import app
    from lossbench.identity import identify
    from lossbench.tracking.record import find_folder, open_record

    config = app.compose(f"paths.runs={tmp_path}", "tracking.mode=disabled")
    folder = find_folder(config, identify(config))
    folder.mkdir(parents=True)
    first = claim(folder, "1_0")
    monkeypatch.setenv(lease.VARIABLE, first.token)
    with pytest.raises(LeaseLostError), open_record(config, identify(config)) as record:
        record.log(1, {"x": 1.0})
        first.release()
        claim(folder, "1_0")
        record.log(2, {"x": 1.0})
    assert not (folder / "result.json").exists()
    assert not (folder / "error.txt").exists()
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
