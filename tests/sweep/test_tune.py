"""Tuning on equal terms, with runs that a stub records in place of training, and once for real."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf

from lossbench import app, config, resources
from lossbench.config import RunConfig
from lossbench.errors import ConfigError, LossbenchError
from lossbench.report.build import assemble
from lossbench.sweep import tune
from lossbench.sweep.compose import Composer
from lossbench.sweep.plan import expect, plan
from lossbench.sweep.search_space import dimensions, parse_search_space
from lossbench.sweep.start import SweepFailedError
from lossbench.sweep.study import parse_sweep
from lossbench.sweep.tune_setup import read_options, set_up, split_arguments
from lossbench.tracking.record import open_record
from tests.sweep.test_local import train
from tests.test_run import SMALL

pytest.importorskip("optuna")
Value = Callable[[RunConfig], float]
BEST_LR = 1e-3


def bowl(run: RunConfig) -> float:
    """A validation cross-entropy with its optimum at the learning rate 1e-3, and for focal loss at gamma 4."""
    value = 1.0 + math.log10(run.optimizer.lr / BEST_LR) ** 2
    term = run.loss.terms.get("focal")
    return value + (0.1 * (term.options["gamma"] - 4.0) ** 2 if term else 0.0)


class Machine:
    """Records runs as lossbench does, with the validation value that a function gives them; what was launched is kept.

    `fails` decides which runs fail, `test` what the test split says; after `patience` runs it is interrupted."""

    def __init__(self, compose: tune.Compose, value: Value = bowl) -> None:
        self.compose, self.value = compose, value
        self.launched: list[RunConfig] = []
        self.fails: Callable[[RunConfig], bool] = lambda run: False
        self.test: Value = lambda run: 1.0
        self.patience = math.inf

    def __call__(self, runs: Sequence[list[str]]) -> None:
        jobs = [job for job in plan(self.compose(runs)) if job.state not in tune.DECIDED]
        for job in jobs:
            if len(self.launched) >= self.patience:
                raise KeyboardInterrupt
            self.launched.append(job.config)
            try:
                with open_record(job.config, job.identity) as record:
                    if self.fails(job.config):
                        raise ValueError("It diverged.")
                    metrics = {"test/nll": self.test(job.config), "test/ppl": math.exp(self.test(job.config))}
                    record.finish(metrics, {"step": 1, "criterion": "val/nll", "value": self.value(job.config)})
            except ValueError:
                pass
        if any(job.state != "finished" for job in plan(self.compose(runs))):
            raise SweepFailedError("Some did not finish.")


class Bench:
    """What the sweeper does around `tune`, on a stub."""

    def __init__(self, loader, folder: Path) -> None:
        self.loader, self.folder = loader, folder
        master = loader.load_configuration("config", [], run_mode=RunMode.MULTIRUN)
        self.composer = Composer(loader, master, app.plain)

    def compose(self, runs: Sequence[list[str]]) -> list[RunConfig]:
        return [config.parse(run) for run in self.composer.compose(runs)]

    def set_up(self, *arguments: str, sweep: dict | None = None, **options) -> tuple[list[tune.Tuning], list]:
        own = [f"paths.runs={self.folder}", "study=s", "tracking.mode=disabled"]
        asked = split_arguments(OverridesParser.create(config_loader=self.loader).parse_overrides([*arguments, *own]))
        read = read_options(OmegaConf.create(options))
        self.budget = read.budget
        return set_up(parse_sweep(sweep), asked, read, self.compose)

    def tune(self, *arguments: str, machine: Machine, retry_failed: bool = False, **options) -> list[tune.Tuning]:
        tunings, self.seeds = self.set_up(*arguments, **options)
        assert tune.tune(tunings, self.budget, self.compose, machine, retry_failed)
        return tunings


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    app._register_sweeps()
    with hydra.initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        yield Bench(GlobalHydra.instance().hydra.config_loader, tmp_path)


def settings(tunings: Sequence[tune.Tuning]) -> list[list[list[str]]]:
    return [[trial.settings for trial in tuning.trials] for tuning in tunings]


def test_every_loss_gets_the_same_number_of_trials_and_the_first_is_its_default(bench: Bench):
    machine = Machine(bench.compose)
    tunings = bench.tune("loss=cross_entropy,focal,z_loss,ce_lovasz", machine=machine, n_trials=5)
    assert [len(tuning.trials) for tuning in tunings] == [5] * 4
    assert len(machine.launched) == 20
    for tuning in tunings:
        assert tuning.trials[0].settings == []
        assert tuning.trials[0].job.config.loss == tuning.config.loss
        assert tuning.trials[0].job.config.optimizer == tuning.config.optimizer
        assert len({trial.job.config.optimizer.lr for trial in tuning.trials}) == 5
    assert [[dimension.key for dimension in tuning.space] for tuning in tunings] == [
        ["optimizer.lr"],
        ["optimizer.lr", "loss.terms.focal.gamma"],
        ["optimizer.lr", "loss.terms.z_loss.coefficient"],
        ["optimizer.lr", "loss.terms.lovasz_softmax.weight"],
    ]


def test_a_failed_trial_is_one_of_the_budget_and_never_the_best(bench: Bench):
    machine = Machine(bench.compose)
    machine.fails = lambda run: run.optimizer.lr < 2e-3
    [tuning] = bench.tune("loss=cross_entropy", machine=machine, n_trials=8, max_failure_rate=1.0)
    assert len(tuning.trials) == len(machine.launched) == 8
    assert 0 < tuning.failed < 8
    assert tuning.best.job.config.optimizer.lr >= 2e-3


def test_tuning_ends_when_too_much_fails(bench: Bench):
    machine = Machine(bench.compose)
    machine.fails = lambda run: True
    with pytest.raises(LossbenchError, match=r"2 of 2 trials failed.*It diverged\."):
        bench.tune("loss=cross_entropy,focal", machine=machine, n_trials=8)
    assert len(machine.launched) == 2


def test_the_search_finds_the_better_setting(bench: Bench):
    _, focal = bench.tune("loss=cross_entropy,focal", machine=Machine(bench.compose), n_trials=30)
    assert focal.best.value < focal.trials[0].value - 0.3
    assert focal.best.job.config.loss.terms["focal"].options["gamma"] == pytest.approx(4.0, abs=1.2)
    last = [math.log10(trial.job.config.optimizer.lr / BEST_LR) ** 2 for trial in focal.trials[-10:]]
    drawn = [math.log10(trial.job.config.optimizer.lr / BEST_LR) ** 2 for trial in focal.trials[1:5]]
    assert sum(last) / len(last) < sum(drawn) / len(drawn)


def test_what_the_test_split_says_changes_no_trial(bench: Bench, tmp_path: Path):
    found = []
    for number, test in enumerate([lambda run: 1.0, lambda run: -bowl(run)]):
        bench.folder = tmp_path / str(number)
        machine = Machine(bench.compose)
        machine.test = test
        found.append(settings(bench.tune("loss=focal", machine=machine, n_trials=8)))
    assert found[0] == found[1]


def test_a_trial_never_evaluates_the_test_split_and_has_a_seed_of_its_own(bench: Bench):
    machine = Machine(bench.compose)
    bench.tune("loss=focal", "seed=0,1", "evaluation=mauve", machine=machine, n_trials=3)
    assert {run.evaluation.split for run in machine.launched} == {"validation"}
    assert {run.evaluation.mauve for run in machine.launched} == {None}
    assert {run.evaluation.generate for run in machine.launched} == {False}
    assert {run.seed for run in machine.launched} == {1000}
    assert {run.study for run in machine.launched} == {"s_trials"}


@pytest.mark.parametrize("value", ["val/loss", "train/loss", "val/focal", "test/nll"])
def test_the_training_objective_and_the_test_split_are_no_targets(bench: Bench, value: str):
    with pytest.raises(ConfigError, match=f"trainer.select_by={value}"):
        bench.set_up("loss=focal", f"trainer.select_by={value}")


def test_a_checkpoint_chosen_by_another_metric_is_refused(bench: Bench):
    machine = Machine(bench.compose)
    with pytest.raises(LossbenchError, match="was chosen by val/nll, not val/em"):
        bench.tune("loss=focal", "trainer.select_by=val/em", machine=machine, n_trials=3)


def test_more_of_accuracy_is_better(bench: Bench):
    [tuning], _ = bench.set_up("loss=focal", "trainer.select_by=val/em")
    assert (tuning.target.direction, tuning.target.worst) == ("maximize", -math.inf)
    with pytest.raises(ConfigError, match="val/em is to maximize"):
        bench.set_up("loss=focal", "trainer.select_by=val/em", direction="minimize")


def test_the_same_command_again_runs_nothing_and_more_trials_go_on(bench: Bench):
    machine = Machine(bench.compose)
    first = settings(bench.tune("loss=cross_entropy,focal", machine=machine, n_trials=6))
    again = Machine(bench.compose)
    assert settings(bench.tune("loss=cross_entropy,focal", machine=again, n_trials=6)) == first
    assert again.launched == []
    more = settings(bench.tune("loss=cross_entropy,focal,emo", machine=again, n_trials=8))
    assert [trials[:6] for trials in more[:2]] == first
    assert len(again.launched) == 2 + 2 + 8


def test_an_interrupted_search_goes_on_to_the_same_end(bench: Bench, tmp_path: Path):
    whole = settings(bench.tune("loss=cross_entropy,focal", machine=Machine(bench.compose), n_trials=6, n_jobs=2))
    bench.folder = tmp_path / "again"
    machine = Machine(bench.compose)
    machine.patience = 7
    with pytest.raises(KeyboardInterrupt):
        bench.tune("loss=cross_entropy,focal", machine=machine, n_trials=6, n_jobs=2)
    machine.patience = math.inf
    assert settings(bench.tune("loss=cross_entropy,focal", machine=machine, n_trials=6, n_jobs=2)) == whole
    assert len(machine.launched) == 12


def test_nothing_is_chosen_while_a_trial_has_not_ended(bench: Bench):
    with pytest.raises(SweepFailedError, match="1 trials did not come to an end"):
        bench.tune("loss=focal", machine=lambda runs: None, n_trials=3)


def test_a_trial_that_failed_is_tried_again_when_asked(bench: Bench):
    machine = Machine(bench.compose)
    machine.fails = lambda run: run.optimizer.lr < 2e-3
    bench.tune("loss=cross_entropy", machine=machine, n_trials=6, max_failure_rate=1.0)
    launched = []
    with pytest.raises(ZeroDivisionError):
        bench.tune("loss=cross_entropy", machine=lambda runs: launched.append(runs) or 1 / 0, n_trials=6,
                   retry_failed=True, max_failure_rate=1.0)  # fmt: skip
    assert len(launched) == 1


def test_another_seed_of_the_sampler_draws_other_settings(bench: Bench):
    drawn = [
        settings(bench.tune("loss=focal", machine=Machine(bench.compose), n_trials=3,
                            sampler={"seed": seed, "_target_": "optuna.samplers.TPESampler"}))
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_dry_run_goes_as_far_as_runs_have_ended(bench: Bench):
    bench.tune("loss=focal", machine=Machine(bench.compose), n_trials=4)
    tunings, _ = bench.set_up("loss=focal", n_trials=6)
    assert tune.tune(tunings, bench.budget, bench.compose, None) is False
    assert len(tunings[0].trials) == 4


def test_the_grid_of_a_study_is_tuned_cell_by_cell(bench: Bench):
    sweep = {
        "grid": {"loss": ["emo", "focal"], "model": ["tiny", "gpt2"]},
        "seeds": [3, 4],
        "exclude": [{"loss": "emo", "model": "gpt2"}],
        "cells": [{"when": {"model": "gpt2"}, "set": {"optimizer.lr": 0.5}}],
    }
    tunings, seeds = bench.set_up(sweep=sweep)
    assert seeds == [3, 4]
    assert [(t.config.loss.name, t.config.model.name) for t in tunings] == [
        ("emo", "tiny"), ("focal", "tiny"), ("focal", "gpt2"),
    ]  # fmt: skip
    assert tunings[2].space[0].default == 0.5


def test_the_command_line_sets_and_searches_keys(bench: Bench):
    tunings, _ = bench.set_up(
        "loss=cross_entropy,focal", "optimizer.lr=1e-3", "loss.terms.focal.gamma=interval(1, 2.5)",
        "optimizer.weight_decay=tag(log, interval(1e-3, 1e-1))",
    )  # fmt: skip
    assert [[d.key for d in tuning.space] for tuning in tunings] == [
        ["optimizer.weight_decay"],
        ["loss.terms.focal.gamma", "optimizer.weight_decay"],
    ]
    assert (tunings[1].space[0].low, tunings[1].space[0].high) == (1, 2.5)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (["loss=focal"], {"n_trials": 1}, "hydra.sweeper.n_trials=1 must be a whole number of at least 2"),
        (["loss=focal"], {"n_jobs": 0}, "hydra.sweeper.n_jobs=0"),
        (["loss=focal"], {"max_failure_rate": 2}, "max_failure_rate=2"),
        (["loss=focal"], {"storage": "sqlite:///x.db"}, "Unknown key hydra.sweeper.storage"),
        (["loss=focal"], {"sampler": {"seed": None}}, "without a seed"),
        (["loss=focal"], {"sampler": {"sead": 1}}, "hydra.sweeper.sampler="),
        (["loss=focal", "seed=0,1000"], {}, "trial_seed=1000 is one of the seeds"),
        (["loss=focal", "optimizer.lr=1", "loss.terms.focal.gamma=1"], {}, "nothing to tune of loss=focal"),
        (["loss=focal", "loss.terms.emo.scale=interval(0, 1)"], {}, "none of the losses has this term"),
        (["loss=focal", "optimizer.lrr=interval(0, 1)"], {}, "Unknown key optimizer.lrr"),
        (["loss=focal"], {"search_space": {"terms": {"focal": {"gamma": "5"}}}}, "is no range to search"),
        (["loss=focal"], {"search_space": {"terms": {"focal": {"gamma": "interval(3, 3)"}}}}, "is empty"),
        (["loss=focal"], {"search_space": {"learning_rate": "interval(0, 1)"}}, "positive multiples"),
        (["loss=focal"], {"search_space": {"learning": "interval(0, 1)"}}, "search_space.learning"),
    ],
)
def test_a_mistake_is_a_sentence(bench: Bench, arguments: list[str], options: dict, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        bench.set_up(*arguments, **options)


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'lossbench\[optuna\]'"):
        read_options({})


def test_jobs_that_nobody_waits_for_cannot_be_tuned():
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.wait=false"):
        read_options({}, launcher_waits=False)


def test_every_shipped_range_holds_the_default_and_only_values_that_the_loss_takes(bench: Bench):
    """Of every loss of conf/loss: the default and both ends of every range make a loss."""
    from lossbench.training.objective import create_objective

    search = parse_search_space(OmegaConf.load(resources.folder("conf") / "hydra/sweeper/optuna.yaml").search_space)
    names = sorted(file.stem for file in (resources.folder("conf") / "loss").glob("*.yaml") if file.stem != "custom")
    composed = dict(zip(names, bench.compose([[f"loss={name}"] for name in names]), strict=True))
    searched = set()
    for name, run in composed.items():
        for dimension in dimensions(run, search):
            assert dimension.contains(dimension.start), (name, dimension)
            for point in dimension.choices or (dimension.low, dimension.high):
                [changed] = bench.compose([[f"loss={name}", dimension.override(point)]])
                create_objective(changed.loss)
            searched.add(dimension.key.split(".")[2:][0] if dimension.key.startswith("loss.") else None)
    assert set(search.terms) <= searched  # no range for a term or parameter that no loss has


def test_the_report_names_what_was_tuned_and_compares_it_with_the_tuned_baseline(bench: Bench):
    machine = Machine(bench.compose)
    tunings = bench.tune("loss=cross_entropy,focal", "seed=0,1,2", machine=machine, n_trials=6)
    jobs, tagged = tune.tags(tunings, bench.seeds, bench.compose)
    expect(jobs, "cross_entropy")
    study = bench.folder / "s"
    tune.write_tags(study, jobs, tagged)
    tune.write_summary(study, tunings, bench.budget)
    expect(jobs)  # as the launcher does: tags stay
    machine.test = lambda run: bowl(run) + 0.01 * run.seed
    machine([run for tuning in tunings for part in tune.final_overrides(tuning, bench.seeds) for run in part])
    rows = assemble([study]).tables[0].rows
    assert [row.label for row in rows] == [
        "cross_entropy", "cross_entropy (tuned, 6 trials)", "focal", "focal (tuned, 6 trials)",
    ]  # fmt: skip
    assert [len(row.variant.runs) for row in rows] == [3] * 4
    compared = {row.label: row.cells[0].comparison.baseline for row in rows if row.cells[0].comparison}
    assert compared == {"focal": "cross_entropy", "focal (tuned, 6 trials)": "cross_entropy (tuned, 6 trials)"}
    assert "optimizer.lr" in {key for key, _, _ in rows[3].variant.differs}
    written = json.loads((study / tune.FILE).read_text())
    assert [(s["loss"], s["n_trials"], s["metric"]) for s in written["searches"]] == [
        ("cross_entropy", 6, "val/nll"), ("focal", 6, "val/nll"),
    ]  # fmt: skip


def test_a_default_that_no_trial_beats_is_one_row_that_says_so(bench: Bench):
    machine = Machine(bench.compose, value=lambda run: abs(run.optimizer.lr - 3e-3))
    tunings = bench.tune("loss=cross_entropy", "seed=0,1", machine=machine, n_trials=4)
    jobs, tagged = tune.tags(tunings, bench.seeds, bench.compose)
    assert len(jobs) == 2
    expect(jobs)
    tune.write_tags(bench.folder / "s", jobs, tagged)
    machine([run for part in tune.final_overrides(tunings[0], bench.seeds) for run in part])
    rows = assemble([bench.folder / "s"]).tables[0].rows
    assert [row.label for row in rows] == ["cross_entropy (default, best of 4 trials)"]


@pytest.mark.slow
def test_a_tuned_sweep_runs_from_one_command_and_again_at_once(tmp_path: Path):
    command = ("-m", "hydra/sweeper=optuna", "loss=label_smoothing", "hydra.sweeper.n_trials=2", "seed=0", "study=s",
               "hydra.sweeper.n_jobs=2", "trainer.progress=false", *SMALL)  # fmt: skip
    done = train(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    trials = [json.loads(file.read_text()) for file in (tmp_path / "s_trials").glob("*/result.json")]
    assert len(trials) == 2
    assert not any(name.startswith("test/") for trial in trials for name in trial["metrics"])
    runs = sorted((tmp_path / "s").glob("*/result.json"))
    assert 1 <= len(runs) <= 2
    when = [file.stat().st_mtime_ns for file in runs]
    again = train(tmp_path, *command)
    assert again.returncode == 0, again.stderr
    assert "finished before" in " ".join(again.stderr.split())
    assert [file.stat().st_mtime_ns for file in runs] == when
