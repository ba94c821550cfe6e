"""A run in a process of its own: its frozen configuration, its environment, its log.

A job is one frozen YAML file given to `python -m lossbench.run`: nothing of one run can leak into the next, and one
that fails, or is killed, stops no other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from lossbench.sweep.child import EXPECTED, LOG, is_running, is_stop, record_failure, why
from lossbench.sweep.plan import Job
from lossbench.tracking.files import write_atomically
from lossbench.tracking.record import read_result

FROZEN = "job.yaml"
# libyaml is ten times as fast; PyYAML has it in every wheel, and a build without it works as well.
Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def freeze(job: Job) -> Path:
    """Write the run's configuration into its folder, as the job will read it."""
    job.folder.mkdir(parents=True, exist_ok=True)
    frozen = job.folder / FROZEN
    plain = job.config.model_dump(mode="json")
    write_atomically(frozen, yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True))
    return frozen


def start(folder: Path, run_id: str, *, quiet: bool) -> subprocess.Popen[bytes]:
    """Start the frozen run of a folder; `quiet` sends what it prints to `log.txt` there. The process refuses to run
    when code or data have changed since, so that it would be another run."""
    command = [sys.executable, "-m", "lossbench.run", str(folder / FROZEN)]
    variables = {**environment(), EXPECTED: run_id}
    if not quiet:
        return subprocess.Popen(command, env=variables)
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)


def note_end(folder: Path, run_id: str, code: int) -> None:
    """Record why a run failed whose process ended by itself and did not say so; one that was stopped is no failure."""
    status = (read_result(folder) or {}).get("status")
    if status not in ("finished", "failed") and not is_stop(code) and not is_running(folder):
        record_failure(folder, run_id, *why(folder, code))


def environment() -> dict[str, str]:
    """What a job inherits: this process's environment without the SLURM job that it may be part of, and with its search
    path, so that what can be imported here (a loss of one's own in the present folder) can be imported there."""
    inherited = {key: value for key, value in os.environ.items() if not belongs_to_a_job(key)}
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    return {"OMP_WAIT_POLICY": "PASSIVE", **inherited, "PYTHONPATH": path}


def belongs_to_a_job(variable: str) -> bool:
    """Whether an environment variable describes a SLURM or submitit job; SLURM_CONF says where the cluster is."""
    return variable.startswith(("SLURM_", "SBATCH_", "SRUN_", "SUBMITIT_")) and variable != "SLURM_CONF"
