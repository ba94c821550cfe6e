"""Inside a SLURM job: run one frozen configuration, and say whether the job is to be queued again.

python -m lossbench.sweep.slurm.job MANIFEST        as the batch script of `submit` calls it, once a task

The run itself is a child process, `python -m lossbench.run job.yaml`, so that whatever ends it leaves this one to say
what happened. What it decides:

* A finished run is not touched, whoever asks.
* SIGUSR2 announces the end (time limit near, or preemption with a warning): the child saves its state at the next
  optimizer step and ends as interrupted; the job is queued again.
* SIGTERM: the child saves as well, but only SLURM knows what follows (a requeue after preemption, or the end after
  `scancel`): to queue a job again that was cancelled would bring it back to life. So this waits for SLURM to end it.
* Attempts that come no further than those before them are not repeated for ever.

The requeue itself is the batch script's, outside the step: slurmctld ends every process of a step that is requeued,
the one that asked for it included.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lossbench.sweep import attempts
from lossbench.sweep.child import EXPECTED, LOG, record_failure, why
from lossbench.tracking import lease

AGAIN = 75  # exit code (EX_TEMPFAIL): the run is saved, and goes on in the job's next start
STOPPED = 128 + signal.SIGTERM
FENCED = 76  # a newer copy of the job took the run over, or another job has it
TICK = 1.0  # seconds between looks at the lease
RENEW = 10.0  # seconds between signs of life
LAG = 60.0  # seconds that a shared file system may need to show a file
UNANSWERED = 600.0  # seconds to wait after SIGTERM while slurmctld does not answer


@dataclass(frozen=True)
class Task:
    """One rank of one run's job."""

    job: str  # as SLURM writes it: 123_4
    index: int  # of the run in the manifest
    rank: int
    ranks: int
    local_rank: int

    @classmethod
    def of(cls, environment: dict[str, str]) -> Task:
        array, number = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
        return cls(
            job=f"{array}_{number}" if array else environment["SLURM_JOB_ID"],
            index=int(number or 0),
            rank=int(environment.get("SLURM_PROCID", 0)),
            ranks=int(environment.get("SLURM_STEP_NUM_TASKS", 1)),
            local_rank=int(environment.get("SLURM_LOCALID", 0)),
        )


class Supervisor:
    """Watches over the process of one run."""

    def __init__(self, manifest: Path, task: Task) -> None:
        content = json.loads(_awaited(manifest).read_text(encoding="utf-8"))
        self.task = task
        self.folder = Path(content["runs"][task.index]["folder"])
        self.run_id = str(content["runs"][task.index]["id"])
        self.limit = int(content["attempts_without_progress"])
        self.requeue_mark = manifest.parent / f"requeue.{task.job}"
        self.warned = self.terminated = False
        self._child: subprocess.Popen[bytes] | None = None
        _awaited(self.folder / "job.yaml")

    def catch_signals(self) -> None:
        signal.signal(signal.SIGUSR2, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def run(self) -> int:
        """Run to the end; returns the exit code of this task."""
        if self._status() == "finished":
            print(f"{self.folder} is finished already.", flush=True)
            return 0
        if self.task.rank:
            return self._follow()
        try:
            held = lease.claim(self.folder, self.task.job)
        except (lease.LeaseLostError, lease.LeaseHeldError) as error:
            print(error, file=sys.stderr, flush=True)
            return FENCED
        try:
            if self._status() == "finished":  # the earlier copy's last act
                return 0
            return self._attempt(held)
        finally:
            held.release()

    def _attempt(self, held: lease.Lease) -> int:
        attempt = attempts.begin(self.folder, self.task.job, platform.node())
        print(f"Attempt {attempt.number} of {self.folder}, job {self.task.job} on {platform.node()}.", flush=True)
        if self.warned or self.terminated:  # it is over before it began
            code: int | None = -signal.SIGTERM
        else:
            code = self._watch(self._start({lease.VARIABLE: held.token, EXPECTED: self.run_id}), held)
        if code is None:
            print("A newer copy of this job has taken the run over; this one stops.", file=sys.stderr, flush=True)
            return FENCED
        return self._decide(attempt, code)

    def _follow(self) -> int:
        """A rank that owns nothing: its failure is the job's, its interruption is rank 0's to judge."""
        child = self._start({})
        code = child.wait()
        stopped = self.warned or self.terminated
        return 0 if code == 0 or stopped else _exit_code(code)

    def _start(self, own: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        if self.task.ranks > 1:
            environment |= ranks_environment(self.task, dict(os.environ))
        log_name = LOG if self.task.rank == 0 else f"log.rank{self.task.rank}.txt"
        with (self.folder / log_name).open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "lossbench.run", str(self.folder / "job.yaml")],
                env=environment | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )
        if self.warned or self.terminated:  # a signal between the question above and the start
            self._child.terminate()
        return self._child

    def _watch(self, child: subprocess.Popen[bytes], held: lease.Lease) -> int | None:
        """Wait for the run's end and give signs of life; None if the run was taken over (its process is ended)."""
        renewed = time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(TICK)
            mine = held.is_mine()
            if mine and time.monotonic() - renewed > RENEW:
                mine, renewed = held.renew(), time.monotonic()
            if not mine:
                child.kill()
                child.wait()
                return None

    def _decide(self, attempt: attempts.Attempt, code: int) -> int:
        status = self._status()
        if status in ("finished", "failed"):
            attempts.end(self.folder, attempt, status, code)
            return 0 if status == "finished" else _exit_code(code) or 1
        if not self.warned and not self.terminated:
            self._record_failure(*why(self.folder, code))
            attempts.end(self.folder, attempt, "killed" if code < 0 else "failed", code)
            return _exit_code(code) or 1
        attempts.end(self.folder, attempt, "interrupted", code)
        if not self.warned:
            return self._wait_for_slurm()
        stalled = attempts.without_progress(attempts.read(self.folder))
        if stalled >= self.limit:
            self._record_failure(
                "NoProgress",
                f"{stalled} attempts in a row came no further than step {attempts.last_step(self.folder)}: the time "
                "limit is too short for start-up and one checkpoint. Raise hydra.launcher.timeout_min.",
            )
            return 1
        print(f"Interrupted at step {attempts.last_step(self.folder)}; the job asks to be queued again.", flush=True)
        self.requeue_mark.touch()
        return AGAIN

    def _wait_for_slurm(self) -> int:
        """After SIGTERM: until SLURM ends the job, or it is clear that it does not mean to (a signal sent by hand)."""
        since = time.monotonic()
        running = 0
        while time.monotonic() - since < UNANSWERED:
            fields = job_fields(self.task.job)
            preempted = fields.get("PreemptTime", "None") not in ("None", "Unknown", "(null)")
            running = running + 1 if fields.get("JobState") == "RUNNING" and not preempted else 0
            if running >= 3:
                break
            time.sleep(2)
        return STOPPED

    def _status(self) -> str | None:
        try:
            return str(json.loads((self.folder / "result.json").read_text(encoding="utf-8"))["status"])
        except (FileNotFoundError, json.JSONDecodeError, KeyError):
            return None

    def _record_failure(self, kind: str, message: str) -> None:
        print(message, file=sys.stderr, flush=True)
        record_failure(self.folder, self.run_id, kind, message)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Note it and pass it on: some clusters signal the task alone, some every process of the step."""
        if signum == signal.SIGUSR2:
            self.warned = True
        else:
            self.terminated = True
        if self._child is not None and self._child.returncode is None:
            self._child.send_signal(signum)


def ranks_environment(task: Task, slurm: dict[str, str]) -> dict[str, str]:
    """What a rank needs to find the others, in the words of torchrun."""
    hosts = subprocess.run(
        ["scontrol", "show", "hostnames", slurm.get("SLURM_STEP_NODELIST", "")],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout.split()  # fmt: skip
    main = hosts[0] if len(hosts) > 1 else "127.0.0.1"
    job = int(slurm["SLURM_JOB_ID"])
    return {
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", main),
        "MASTER_PORT": os.environ.get("MASTER_PORT", str(20000 + job % 10000)),
        "WORLD_SIZE": str(task.ranks),
        "RANK": str(task.rank),
        "LOCAL_RANK": str(task.local_rank),
        "LOCAL_WORLD_SIZE": str(max(1, task.ranks // max(1, len(hosts)))),
        "NODE_RANK": slurm.get("SLURM_NODEID", "0"),
        "GROUP_RANK": slurm.get("SLURM_NODEID", "0"),
    }


def job_fields(job: str) -> dict[str, str]:
    """What slurmctld says of a job; empty when it does not answer."""
    try:
        done = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(field.split("=", 1) for field in done.stdout.split() if "=" in field)


def _awaited(file: Path) -> Path:
    """A file that the launcher wrote; a node may see it some seconds later."""
    deadline = time.monotonic() + LAG
    while not file.exists():
        if time.monotonic() > deadline:
            sys.exit(
                f"{file} is not to be seen on {platform.node()}: it must lie on a file system that all nodes share."
            )
        time.sleep(0.5)
    return file


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


def _die_with_parent() -> None:
    """In the child: be killed when the supervisor is, so that no run outlives the process that answers for it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    supervisor = Supervisor(Path(sys.argv[1]), Task.of(dict(os.environ)))
    supervisor.catch_signals()
    sys.exit(supervisor.run())


if __name__ == "__main__":
    main()
