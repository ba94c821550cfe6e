"""`hydra/launcher=local`: every job of a multirun in a process of its own, on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

SCHEMA = {
    "_target_": "hydra_plugins.lossbench_launchers.local.LocalLauncher",
    "workers": 1,  # runs at a time
}
ConfigStore.instance().store(group="hydra/launcher", name="local", node=SCHEMA, provider="lossbench")


class LocalLauncher(Launcher):
    def __init__(self, workers: int) -> None:
        self.workers = workers

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Check every composed job before the first one starts, then run them all."""
        from lossbench.app import plain
        from lossbench.config import parse
        from lossbench.errors import ConfigError
        from lossbench.run import check
        from lossbench.sweep.local import launch
        from lossbench.sweep.plan import plan
        from lossbench.training.objective import twins

        if self.workers < 1:
            raise ConfigError(f"hydra.launcher.workers={self.workers} must be at least 1.")
        loader = self.hydra_context.config_loader
        configs = [parse(plain(loader.load_sweep_config(self.config, list(given)))) for given in job_overrides]
        for config in configs:
            check(config)
        for sentence in twins(configs):
            print(f"warning: {sentence}", file=sys.stderr)
        launch(plan(configs), self.workers)
        return []
