"""`hydra/sweeper=optuna`: tune every loss with the same number of trials, then run its best and its default setting.

The options are named as those of hydra-optuna-sweeper; docs/sweeps.md says why it is not that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from hydra_plugins.lossbench_launchers._sweeper import PreparedSweeper


class OptunaSweeper(PreparedSweeper):
    """Tunes the losses of a study's file or of the command line. conf/hydra/sweeper/optuna.yaml lists its options and
    holds the defaults of those that a study's file leaves out."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def sweep(self, arguments: list[str]) -> Any:
        """All trials, then all seeds of the best and the default settings."""
        from rich.console import Console

        from lossbench.app import plain
        from lossbench.config import parse
        from lossbench.sweep import tune
        from lossbench.sweep.compose import Composer
        from lossbench.sweep.plan import expect
        from lossbench.sweep.study import parse_sweep
        from lossbench.sweep.tune_setup import read_options, set_up, split_arguments
        from lossbench.sweep.tune_table import show

        assert self.launcher is not None and self.config is not None and self.hydra_context is not None
        loader = self.hydra_context.config_loader
        options = read_options(self.options, OmegaConf.select(self.config, "hydra.launcher.wait"))
        study = parse_sweep(OmegaConf.to_container(self.config.sweep, resolve=True))  # type: ignore[arg-type]
        parser = OverridesParser.create(config_loader=loader)
        params = [f"{key}={value}" for key, value in options.params.items()]
        asked = split_arguments(parser.parse_overrides([*params, *arguments]))
        composer = Composer(loader, self.config, plain)

        def compose(runs: Sequence[list[str]]) -> list[Any]:
            return [parse(run) for run in composer.compose(runs)]

        def launch(runs: Sequence[list[str]]) -> None:
            assert self.launcher is not None
            self.launcher.launch(runs, initial_job_idx=0)

        tunings, seeds = set_up(study, asked, options, compose)
        console = Console(stderr=not study.dry_run)
        is_complete = tune.tune(tunings, options.budget, compose, None if study.dry_run else launch, study.retry_failed)
        show(tunings, options.budget, seeds, console)
        if study.dry_run or not is_complete:
            return None
        jobs, tagged = tune.tags(tunings, seeds, compose)
        expect(jobs, study.baseline)
        for folder in dict.fromkeys(job.folder.parent for job in jobs):
            here = [tuning for tuning in tunings if _study(tuning) == folder]
            tune.write_tags(folder, jobs, tagged)
            tune.write_summary(folder, here, options.budget)
        runs = [run for tuning in tunings for part in tune.final_overrides(tuning, seeds) for run in part]
        return self.launcher.launch(runs, initial_job_idx=0)


def _study(tuning: Any) -> Path:
    return Path(tuning.config.paths.runs).expanduser() / tuning.config.study
