from lossbench.report.collect import collect
from lossbench.report.variants import different_settings, split_variants
from tests.report.factory import write_plan, write_run

NOW = 1_800_000_000.0
GOOD = {"test/em": 0.5}


def variants(*targets):
    return split_variants(collect(targets, NOW).records)


def test_seeds_of_one_setting_are_one_variant(study):
    found = {variant.label: [run.seed for run in variant.runs] for variant in variants(study)}
    assert found["cross_entropy"] == [0, 1, 2]
    assert found["lovasz"] == [0, 1, 2]


def test_other_settings_of_a_loss_are_another_variant_with_the_keys_that_differ(tmp_path):
    write_run(tmp_path, "focal", 0, metrics=GOOD, created="2026-11-01T00:00:00")
    write_run(tmp_path, "focal", 1, metrics=GOOD, created="2026-11-01T00:00:00")
    longer = {"trainer": {"max_steps": 300}}
    write_run(tmp_path, "focal", 0, metrics=GOOD, config=longer, created="2026-11-02T00:00:00")
    first, second = variants(tmp_path)
    assert (first.label, len(first.runs), first.differs) == ("focal", 2, ())
    assert (second.label, len(second.runs)) == ("focal#2", 1)
    assert second.differs == (("trainer.max_steps", "150", "300"),)


def test_the_oldest_variant_keeps_the_plain_name(tmp_path):
    write_run(tmp_path, "focal", 0, config={"lr": 2}, created="2026-11-02T00:00:00")
    write_run(tmp_path, "focal", 0, config={"lr": 1}, created="2026-11-01T00:00:00")
    assert [(v.label, v.settings["lr"]) for v in variants(tmp_path)] == [("focal", 1), ("focal#2", 2)]


def test_seed_and_paths_are_no_settings():
    a = {"seed": 0, "lr": 1.0, "paths.runs": "/a"}
    assert different_settings(a, {"lr": 1.0, "seed": 0, "paths.runs": "/a"}) == ()
    assert different_settings({"lr": 1.0}, {"wd": 0}) == (("lr", "1.0", "absent"), ("wd", "absent", "0"))


def test_a_missing_run_joins_the_first_variant_of_its_loss(tmp_path):
    write_plan(tmp_path, ["focal"], [0, 1])
    write_run(tmp_path, "focal", 0, metrics=GOOD)
    (variant,) = variants(tmp_path)
    assert [str(run.state) for run in variant.runs] == ["finished", "missing"]


def test_a_loss_with_missing_runs_alone_has_a_row(tmp_path):
    write_plan(tmp_path, ["focal", "emo"], [0])
    write_run(tmp_path, "focal", 0, metrics=GOOD)
    assert [variant.label for variant in variants(tmp_path)] == ["emo", "focal"]
