"""Hand runs to SLURM: one array of jobs for as many runs as an array may have.

submitit writes the batch script and calls sbatch. What it would pickle is not needed: a task finds its run by its
number in a manifest that is written before.
"""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.sweep.process import environment
from lossbench.sweep.slurm import client, registry
from lossbench.sweep.slurm.settings import SlurmSettings
from lossbench.sweep.slurm.watch import HIDDEN
from lossbench.tracking.files import write_json

if TYPE_CHECKING:
    import submitit

# Runs in the batch script after the step. A run that saved its state on SIGUSR2 leaves a mark; 140 is the death of a
# process that the signal met before Python could catch it, with nothing to save. A job that was cancelled meanwhile is
# not RUNNING any more, and must not be brought back to life. One that may not be requeued ends as it is.
AFTERWARDS = r"""
code=$?
task=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
mark=%(folder)s/requeue.$task
if [ -e "$mark" ] || { [ $code -eq 140 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt %(restarts)d ]; }; then
  trap '' TERM
  rm -f "$mark"
  for try in $(seq 60); do
    shown=$(timeout 60 scontrol show job -o "$task" 2>/dev/null)
    state=$(grep -oE ' (JobState=[A-Z_]+|Requeue=[01])' <<< "$shown" | tr -d '\n')
    case "$state" in
      ' JobState=RUNNING Requeue=1') timeout 60 scontrol requeue "$task" && sleep 120 && break ;;
      '') ;;  # slurmctld does not answer
      *) break ;;
    esac
    sleep 5
  done
fi
exit $code
"""
RESTARTS = 20  # after deaths by SIGUSR2 during start-up


@dataclass(frozen=True)
class RunRef:
    """A run as the cluster needs to know it."""

    id: str
    name: str
    folder: Path


def submit(study: Path, runs: Sequence[RunRef], settings: SlurmSettings, largest_array: int) -> list[str]:
    """Submit runs whose configurations are frozen in their folders; returns the ids of the arrays.

    Nothing can be lost: manifest and intent are on disk before sbatch is called, its answer right after. Arrays of
    which one is refused leave those before it submitted.

    Raises:
        SlurmError: sbatch refused; the message is its own.
        UnreachableError: it had no answer; whether the jobs are there is asked when the study is looked at again.
    """
    folder = study.absolute() / HIDDEN
    folder.mkdir(parents=True, exist_ok=True)  # before the job: SLURM cannot log into a folder that is not there
    arrays = []
    for start in range(0, len(runs), largest_array):
        some = runs[start : start + largest_array]
        token = uuid.uuid4().hex
        manifest = folder / f"{token}.json"
        write_json(
            manifest,
            {
                "schema": 1,
                "attempts_without_progress": settings.attempts_without_progress,
                "runs": [{"id": run.id, "name": run.name, "folder": str(run.folder.absolute())} for run in some],
            },
        )
        registry.intend(study, token, [run.id for run in some], settings.model_dump(mode="json"))
        try:
            job = _sbatch(folder, manifest, token, len(some), study.name, settings)
        except client.UnreachableError:
            raise  # it may have arrived all the same: `registry.recover` asks when the cluster answers again
        except Exception:
            registry.refused(study, token)
            manifest.unlink()
            for script in folder.glob(".submission_file_*.sh"):  # submitit leaves it; those of jobs are links
                if not script.is_symlink():
                    script.unlink()
            raise
        registry.submitted(study, token, job)
        arrays.append(job)
    return arrays


def executor(folder: Path, study: str, settings: SlurmSettings, token: str, count: int) -> submitit.SlurmExecutor:
    """submitit's executor with our parameters; `count` tasks in one array."""
    import submitit

    made = submitit.SlurmExecutor(folder=folder, python=settings.python or shlex.quote(sys.executable))
    script = AFTERWARDS % {"folder": shlex.quote(str(folder)), "restarts": RESTARTS}
    extra: dict[str, Any] = {**settings.additional_parameters}
    if "no-requeue" not in extra:
        extra |= {"requeue": True}
    made.update_parameters(
        **settings.sbatch(),
        job_name=settings.name or study,
        comment=settings.comment or registry.COMMENT + token,
        srun_args=["--kill-on-bad-exit=0", *settings.srun_args],
        teardown=script.strip().splitlines(),
        additional_parameters=extra,
    )
    made.parameters["map_count"] = count
    return made


def _sbatch(folder: Path, manifest: Path, token: str, count: int, study: str, settings: SlurmSettings) -> str:
    from submitit.core.utils import FailedJobError

    made = executor(folder, study, settings, token, count)
    command = f"{made.python} -u -m lossbench.sweep.slurm.job {shlex.quote(str(manifest))}"
    with _environment():
        try:
            return str(made._submit_command(command).job_id)
        except FailedJobError as error:
            text = " ".join(str(error).split())
            raise client.error(f"sbatch refused the jobs: {text}") from None


def script_text(folder: Path, study: str, settings: SlurmSettings) -> str:
    """The batch script of one job, for `sbatch --test-only`."""
    made = executor(folder, study, settings, "test", 1)
    return str(made._make_submission_file_text("true", "test"))


@contextmanager
def _environment() -> Iterator[None]:
    """sbatch hands its environment on to the job: let it be the job's."""
    before, own = dict(os.environ), environment()
    os.environ.clear()
    os.environ.update(own)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
