from lossbench.report import memo
from lossbench.report.collect import collect
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def test_only_changed_files_are_read_again_while_keeping(tmp_path):
    folder = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    (run,) = collect([folder], NOW).records
    reads = []

    def read():
        reads.append(1)
        return len(reads)

    assert [memo.remembered("x", run, read) for _ in range(2)] == [1, 2]  # nothing is kept outside
    with memo.keeping():
        assert [memo.remembered("x", run, read) for _ in range(3)] == [3, 3, 3]
        assert memo.remembered("y", run, read) == 4
        (folder / "metrics.jsonl").write_text("{}\n")
        assert memo.remembered("x", run, read) == 5
    assert memo.remembered("x", run, read) == 6
