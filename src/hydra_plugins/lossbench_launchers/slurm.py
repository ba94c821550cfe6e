"""`hydra/launcher=slurm`: every run of a multirun as a job of a SLURM cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher as SubmititLauncher


class SlurmLauncher(SubmititLauncher):
    """submitit's launcher for Hydra, with jobs that survive what clusters do to them.

    Its parameters are those of submitit's launcher and some of our own: conf/hydra/launcher/slurm.yaml lists them. A
    job is a frozen configuration file executed in a process of its own; nothing is pickled.
    """

    def __init__(self, workers: int | None = None, **params: Any) -> None:
        """`workers` belongs to the local launcher, for which a study's file may set it; it is not looked at here."""
        super().__init__(**params)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Check every composed job and the cluster before anything is submitted, then submit and follow."""
        from lossbench.sweep.slurm.launch import launch
        from lossbench.sweep.slurm.settings import parse_settings
        from lossbench.sweep.start import prepare

        assert self.hydra_context is not None and self.config is not None
        settings = parse_settings(self.params)
        if sweep := prepare(self.hydra_context, self.config, job_overrides):
            launch(sweep, settings)
        return []
