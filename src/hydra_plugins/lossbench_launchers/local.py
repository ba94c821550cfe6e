"""`hydra/launcher=local`: every job of a multirun in a process of its own, on this machine.

Hydra's own `basic` launcher, which runs all jobs in one process, is this one as well: what one job leaves behind (CUDA
memory, random state, an open wandb run) must not reach the next.
"""

from __future__ import annotations

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
for name in ("local", "basic"):
    ConfigStore.instance().store(group="hydra/launcher", name=name, node=SCHEMA, provider="lossbench")


class LocalLauncher(Launcher):
    def __init__(self, workers: int) -> None:
        self.workers = workers

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Check every composed job before the first one starts, then run them all."""
        from lossbench.errors import ConfigError
        from lossbench.sweep.local import launch
        from lossbench.sweep.start import prepare

        if not isinstance(self.workers, int) or self.workers < 1:
            raise ConfigError(f"hydra.launcher.workers={self.workers} must be a whole number of at least 1.")
        if sweep := prepare(self.hydra_context, self.config, job_overrides):
            launch(sweep, self.workers)
        return []
