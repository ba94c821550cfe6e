import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lossbench.report.collect import collect
from lossbench.report.records import RunRecord, State
from lossbench.report.sources import _wandb_format, _wandb_log, wandb_log
from lossbench.report.sources._wandb_log import read_log, read_rows
from tests.report import wandb_logs as made
from tests.report.factory import write_run

NOW = 1_800_000_000.0
ID = "0123456789abcdef"
RESULTS = {"test/em": 0.5, "val/nll": 0.25}


def whole(rows: int = 3, code: int | None = 0, width: int = 0, **identity: object) -> list[bytes]:
    """Records of a run with `rows` rows of `width` more metrics each."""
    extra = {f"train/x{i}": 0.125 * i for i in range(width)}
    out = [made.run(ID, made.identity(**identity))]
    for step in range(1, rows + 1):
        values = {"train/loss": 2.0 / step, "trainer/global_step": step, **extra}
        out += [made.row(step - 1, values), made.summary({"train/loss": 2.0 / step})]
    out.append(made.summary({**RESULTS, "ckpt/step": 2, "_runtime": 3, "hist": {"_type": "histogram"}}))
    return out if code is None else [*out, made.leave(code)]


def one(root: Path, now: float = NOW) -> RunRecord:
    (record,) = wandb_log.read(str(root), now).records
    return record


def test_a_log_is_read_whole(tmp_path: Path):
    made.write_log(tmp_path, ID, whole())
    run = one(tmp_path)
    assert (run.id, run.loss, run.model, run.dataset, run.seed, run.study) == (
        ID, "focal", "tiny", "arithmetic", 0, "demo",
    )  # fmt: skip
    assert (run.state, run.metrics, run.problems) == (State.FINISHED, RESULTS, ())
    assert (run.checkpoint_step, run.config, run.group) == (2, {"optimizer.lr": 0.001}, "group-focal")
    assert run.read_history(("train/loss", "none")).series == {"train/loss": [(1, 2.0), (2, 1.0), (3, 2 / 3)]}
    assert run.location == f"{tmp_path.name}/wandb/offline-run-20261130_160000-{ID}"


@pytest.mark.parametrize(
    ("records", "age", "state"),
    [
        ([made.leave(0)], 3600, State.FINISHED),
        ([made.leave(1)], 3600, State.FAILED),
        ([made.leave(143)], 3600, State.INTERRUPTED),
        ([made.leave(255)], 3600, State.INTERRUPTED),
        ([made.preempting(), made.leave(1)], 3600, State.INTERRUPTED),
        ([made.leave(254)], 3600, State.CRASHED),
        ([made.leave(-9)], 3600, State.FAILED),
        ([], 3600, State.CRASHED),
        ([], 5, State.RUNNING),
    ],
)
def test_the_exit_record_decides_the_state(tmp_path: Path, records: list[bytes], age: float, state: State):
    made.write_log(tmp_path, ID, whole(code=None) + records, age=age)
    run = one(tmp_path)
    assert run.state is state
    assert run.metrics == (RESULTS if state is State.FINISHED else {})
    assert run.last_values.get("val/nll") == (None if state is State.FINISHED else 0.25)


def test_a_log_of_a_header_alone_is_empty_and_listed_by_its_name(tmp_path: Path):
    file = made.write_log(tmp_path, ID, [])
    assert file.stat().st_size == 7
    run = one(tmp_path)
    assert (run.id, run.state) == (ID, State.EMPTY)
    assert "holds no run (7 bytes)" in run.problems[0]


@pytest.mark.parametrize("data", [b"", b":W&B"])
def test_a_log_that_is_cut_within_its_header_is_empty(tmp_path: Path, data: bytes):
    made.write_log(tmp_path, ID, []).write_bytes(data)
    assert one(tmp_path).state is State.EMPTY


def test_a_file_that_is_no_log_is_named_and_skipped(tmp_path: Path):
    made.write_log(tmp_path, ID, whole())
    made.write_log(tmp_path, "other", []).write_bytes(b"PK\x03\x04 what is this")
    made.write_log(tmp_path, "third", []).write_bytes(_wandb_format.HEADER[:-1] + b"\x01" + b"a later format")
    found = wandb_log.read(str(tmp_path), NOW)
    assert [record.id for record in found.records] == [ID]
    for name, problem in zip(("other", "third"), found.problems, strict=True):
        assert f"run-{name}.wandb is no log of wandb: its header is another" in problem
        assert "logs of wandb 0.26 to 0.31 are known" in problem  # for another version: what it was tested with


def test_every_cut_keeps_the_records_before_it(tmp_path: Path):
    file = made.write_log(tmp_path, ID, whole(rows=2))
    data = file.read_bytes()
    expected = read_rows(read_log(file), ("train/loss",))
    lengths = set()
    for size in range(len(data)):
        file.write_bytes(data[:size])
        os.utime(file, (NOW - 1, NOW - 1))
        log = read_log(file)
        rows = read_rows(log, ("train/loss",))
        assert rows == expected[: len(rows)]
        lengths.add(len(rows))
        if log.id:
            run = one(tmp_path)
            assert (run.state, run.problems) == (State.RUNNING, ())
    assert lengths == {0, 1, 2}


def test_rows_around_damage_are_kept_and_its_byte_is_named(tmp_path: Path):
    file = made.write_log(tmp_path, ID, whole(rows=300, width=12))
    data = bytearray(file.read_bytes())
    assert len(data) > 3 * made.BLOCK
    data[made.BLOCK + 5000] ^= 0x10
    file.write_bytes(data)
    steps = [step for step, _ in one(tmp_path).read_history(("train/loss",)).series["train/loss"]]
    assert steps[0] == 1 and steps[-1] == 300
    lost = sorted(set(range(1, 301)) - set(steps))
    assert 5 < len(lost) < 100
    assert lost == list(range(lost[0], lost[-1] + 1))
    byte = int(one(tmp_path).problems[0].split(" at byte ")[1].split()[0])
    assert made.BLOCK < byte <= made.BLOCK + 5000


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same bytes with one kind of damage: cut, flipped, zeroed, overwritten, repeated or left out."""
    start = chance.randrange(len(data))
    end = min(len(data), start + chance.choice([1, 8, 200, 5000, 40000]))
    match chance.randrange(6):
        case 0:
            return data[:start]
        case 1:
            return data[:start] + bytes([data[start] ^ 1 << chance.randrange(8)]) + data[start + 1 :]
        case 2:
            return data[:start] + b"\0" * (end - start) + data[end:]
        case 3:
            return data[:start] + chance.randbytes(end - start) + data[end:]
        case 4:
            return data[:end] + data[start:]
        case _:
            return data[:start] + data[end:]


def test_no_damage_raises_or_invents_a_row(tmp_path: Path):
    file = made.write_log(tmp_path, ID, whole(rows=120, width=30))
    data = file.read_bytes()
    genuine = {(step, tuple(values.items())) for step, values in read_rows(read_log(file), ("train/loss",))}
    kept = []
    for seed in range(300):
        file.write_bytes(mutated(data, random.Random(seed)))
        log = read_log(file)
        rows = {(step, tuple(values.items())) for step, values in read_rows(log, ("train/loss",))}
        assert rows <= genuine
        assert wandb_log.record(ID, [log], "x", NOW).state in State
        assert all(math.isfinite(value) for value in log.summary.values() if isinstance(value, float))
        kept.append(len(rows))
    assert 60 < sum(kept) / len(kept) < 120  # most of a damaged log is read


def test_attempts_of_one_run_are_put_together(tmp_path: Path):
    def rows(first: int, last: int, loss: float) -> list[bytes]:
        return [made.row(i, {"train/loss": loss, "trainer/global_step": i}) for i in range(first, last + 1)]

    begun, config = 1_700_000_000, made.identity()
    first = [made.run(ID, config, begun), *rows(1, 9, 3.0), made.summary({"val/nll": 9.0, "data/n": 4.0})]
    second = [
        made.run(ID, {**config, "attempt": 2}, begun + 50),
        *rows(7, 12, 2.0),
        made.summary(RESULTS),
        made.leave(0),
    ]
    made.write_log(tmp_path, ID, second, part=2)
    made.write_log(tmp_path, ID, first, part=1)
    run = one(tmp_path)
    assert (run.state, run.attempt, run.metrics) == (State.FINISHED, 2, {**RESULTS, "data/n": 4.0})
    history = run.read_history(("train/loss",))
    assert history.series["train/loss"] == [(s, 3.0 if s < 7 else 2.0) for s in range(1, 13)]
    assert history.overlap == 3


def test_an_attempt_of_another_configuration_lends_no_numbers(tmp_path: Path):
    other = made.identity(config={"optimizer": {"lr": 0.5}})
    made.write_log(tmp_path, ID, [made.run(ID, other, 1_700_000_000), made.summary({"data/n": 4.0})], part=1)
    last = [made.run(ID, made.identity(), 1_700_000_050), made.summary(RESULTS), made.leave(0)]
    made.write_log(tmp_path, ID, last, part=2)
    assert one(tmp_path).metrics == RESULTS


def test_an_empty_attempt_hides_nothing(tmp_path: Path):
    made.write_log(tmp_path, ID, whole(), part=1)
    made.write_log(tmp_path, ID, [], part=2)
    assert (one(tmp_path).state, one(tmp_path).metrics) == (State.FINISHED, RESULTS)


def test_metrics_that_are_no_numbers_are_absent_and_named(tmp_path: Path):
    odd = {"test/best": {"max": 1.0, "last": 0.5}, "test/note": "fast", "test/nan": math.nan, "test/word": "Infinity"}
    made.write_log(tmp_path, ID, [made.run(ID, made.identity()), made.summary(odd), made.leave(0)])
    run = one(tmp_path)
    assert math.isnan(run.metrics["test/nan"])
    assert run.metrics["test/word"] == math.inf
    assert len(run.metrics) == len(run.problems) == 2
    assert "test/best/max" in " ".join(run.problems)


def test_a_run_of_somebody_else_is_read_as_far_as_it_goes(tmp_path: Path):
    config = {"loss": {"name": "ce"}, "model": "gpt2", "lr": 0.1, "seed": 4}
    made.write_log(tmp_path, "k3j2", [made.run("k3j2", config, name="eager-fox"), made.summary(RESULTS), made.leave(0)])
    run = one(tmp_path)
    assert (run.loss, run.model, run.dataset, run.seed, run.name) == ("ce", "gpt2", "unknown", 4, "eager-fox")
    assert run.config["loss.name"] == "ce"


def test_links_and_pipes_are_no_logs(tmp_path: Path):
    file = made.write_log(tmp_path, ID, whole())
    (tmp_path / "wandb" / "latest-run").symlink_to(file.parent)
    (tmp_path / "wandb" / "run-link.wandb").symlink_to(file)
    os.mkfifo(tmp_path / "wandb" / "run-pipe.wandb")
    (tmp_path / "wandb" / "run-folder.wandb").mkdir()
    assert len(wandb_log.read(str(tmp_path), NOW).records) == 1


def test_one_log_is_a_target_of_its_own(tmp_path: Path):
    file = made.write_log(tmp_path, ID, whole())
    assert wandb_log.accepts(str(file))
    assert one(file).metrics == RESULTS


def test_the_record_of_the_run_is_believed_before_its_log(tmp_path: Path):
    for seed, em in ((0, 0.5), (1, 0.5 + 1e-9), (2, 0.6)):
        folder = write_run(tmp_path / "demo", "focal", seed, metrics={**RESULTS, "test/em": em})
        run_id = json.loads((folder / "run.json").read_text())["id"]
        made.write_log(folder, run_id, [made.run(run_id, made.identity()), made.summary(RESULTS), made.leave(0)])
    records = collect([tmp_path], NOW).records
    assert [record.source for record in records] == ["run folder"] * 3
    assert [record.also_in for record in records] == [("wandb log",)] * 3
    assert [record.state for record in records] == [State.FINISHED, State.FINISHED, State.CONFLICT]
    assert "test/em is 0.6 in the run folder, but 0.5 in the wandb log" in records[2].problems[0]


def test_a_log_alone_is_a_run_of_the_report(tmp_path: Path):
    made.write_log(tmp_path / "run", ID, whole())
    (record,) = collect([tmp_path], NOW).records
    assert (record.source, record.metrics) == ("wandb log", RESULTS)


def test_field_numbers_are_those_of_wandb():
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")

    def numbers(name: str) -> dict[int, str]:
        return {field.number: field.name for field in getattr(messages, name).DESCRIPTOR.fields}

    assert _wandb_log.RECORD.items() <= numbers("Record").items()
    ours = {"id": "run_id", "group": "run_group", "name": "display_name", "sweep": "sweep_id"}
    renamed = {number: ours.get(name, name) for number, name in _wandb_log.RUN_TEXT.items()}
    assert renamed.items() <= numbers("RunRecord").items()
    assert {4: "config", 17: "start_time"}.items() <= numbers("RunRecord").items()
    for name in ("ConfigItem", "SummaryItem", "HistoryItem"):
        assert {1: "key", 2: "nested_key", 16: "value_json"}.items() <= numbers(name).items()
    for name in ("ConfigRecord", "SummaryRecord"):
        assert {1: "update", 2: "remove"}.items() <= numbers(name).items()
    assert {1: "item", 2: "step"}.items() <= numbers("HistoryRecord").items()
    assert numbers("RunExitRecord")[1] == "exit_code"


def test_a_report_reads_logs_without_wandb_and_torch(tmp_path: Path):
    made.write_log(tmp_path, ID, whole())
    code = (
        "import sys; from lossbench.report.collect import collect; "
        f"(run,) = collect([{str(tmp_path)!r}]).records; run.read_history(('train/loss',)); "
        "assert not {'wandb', 'torch', 'google.protobuf'} & set(sys.modules), 'heavy imports'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
