"""What is looked at before anything is submitted: a mistake is said in a second, not by jobs that die in the night."""

from __future__ import annotations

import getpass
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lossbench.config import RunConfig
from lossbench.errors import ConfigError
from lossbench.sweep.process import environment
from lossbench.sweep.slurm import client
from lossbench.sweep.slurm.settings import SlurmSettings
from lossbench.sweep.slurm.submit import script_text

NODE_LOCAL = {"tmpfs", "ramfs", "devtmpfs"}
DEFAULT_ARRAY = 1001  # SLURM's own MaxArraySize


def check_cluster(study: Path, runs: int, settings: SlurmSettings) -> int:
    """Refuse what cannot work; returns how many tasks one array may have.

    Raises:
        ConfigError: with what is wrong and what to do.
        UnreachableError, SlurmError: the cluster does not answer, or this machine belongs to none.
    """
    config = client.config()
    _check_partition(settings)
    _check_folder(study)
    _check_import(settings)
    _check_room(config, runs)
    _check_resources(study, settings)
    return min(int(config.get("MaxArraySize", DEFAULT_ARRAY)), _largest(config))


def check_processes(configs: Sequence[RunConfig], settings: SlurmSettings) -> None:
    """Refuse a number of processes that a run does not expect: copies of it would train on the same files.

    With one task a node the run starts its other processes itself; else SLURM starts all of them.
    """
    tasks = settings.tasks_per_node
    for devices in sorted({config.trainer.devices for config in configs}):
        if tasks not in (1, devices):
            raise ConfigError(
                f"hydra.launcher.tasks_per_node={tasks} starts {tasks} processes on a node, but "
                f"trainer.devices={devices}: set both to the number of GPUs that a run uses on a node."
            )
        if settings.nodes > 1 and tasks != devices:
            raise ConfigError(
                f"A run on {settings.nodes} nodes needs hydra.launcher.tasks_per_node=trainer.devices={devices}."
            )


def minutes(text: str) -> float:
    """A SLURM time (`UNLIMITED`, `90`, `1:30:00`, `2-12:00:00`) in minutes."""
    if text.upper() in ("UNLIMITED", "INFINITE", "NONE", "N/A", ""):
        return float("inf")
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if days:
        hours, minute, second = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minute, second = parts
    else:
        hours, (minute, second) = 0, [*parts, 0][:2]
    return int(days or 0) * 1440 + hours * 60 + minute + second / 60


def _check_partition(settings: SlurmSettings) -> None:
    found = {partition["PartitionName"]: partition for partition in client.partitions()}
    default = [name for name, partition in found.items() if partition.get("Default") == "YES"]
    wanted = settings.partition.split(",") if settings.partition else default
    if not wanted:
        raise ConfigError(f"The cluster has no default partition; hydra.launcher.partition: {', '.join(found)}.")
    for name in wanted:
        if name not in found:
            raise ConfigError(f"hydra.launcher.partition={name} is no partition. Known: {', '.join(sorted(found))}.")
        partition = found[name]
        if partition.get("State") != "UP":
            raise ConfigError(f"Partition {name} is {partition.get('State', 'unknown').lower()}; choose another one.")
        if settings.timeout_min > (limit := minutes(partition.get("MaxTime", ""))):
            raise ConfigError(
                f"hydra.launcher.timeout_min={settings.timeout_min} is above the limit of partition {name}, "
                f"{limit:.0f} minutes. Runs go on after a time limit: choose a shorter one."
            )


def _check_folder(study: Path) -> None:
    try:
        study.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=study):
            pass
    except OSError as error:
        raise ConfigError(f"{study} cannot be written: {error.strerror}. Choose another paths.runs.") from None
    if (kind := file_system(study)) in NODE_LOCAL:
        raise ConfigError(
            f"{study.absolute()} lies on {kind}, which only this machine sees. Put paths.runs on a file system that "
            "all nodes share."
        )


def file_system(path: Path) -> str:
    """The kind of file system that a path lies on; empty where that cannot be told."""
    target = str(path.resolve())
    best, kind = -1, ""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    for mount in mounts:
        _, place, name, *_ = mount.split()
        inside = target == place or target.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:
            best, kind = len(place), name
    return kind


def _check_import(settings: SlurmSettings) -> None:
    """The job starts elsewhere: what it imports must be found without the present folder."""
    if settings.python:
        return  # a container or module that only the node has
    done = subprocess.run(
        [sys.executable, "-c", "import lossbench.sweep.slurm.job"],
        cwd="/", env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [""]
        raise ConfigError(f"A job could not import lossbench ({last[0]}). Install it: pip install -e . in its folder.")


def _check_room(config: dict[str, str], runs: int) -> None:
    largest = int(config.get("MaxJobCount", 10000))
    present = len(client.ask("squeue", "-h", "-r", "-t", "PD,R,S,CG", "-o", "%i").splitlines())
    if present + runs > largest:
        raise ConfigError(
            f"The cluster takes {largest} jobs at a time (MaxJobCount) and has {present}; {runs} more do not fit. "
            "Submit a part of the sweep, and the same command again later."
        )
    if "slurmdbd" not in config.get("AccountingStorageType", "") or "limits" not in config.get(
        "AccountingStorageEnforce", ""
    ):
        return
    me = getpass.getuser()
    rows = client.ask("sacctmgr", "-n", "-P", "show", "assoc", f"user={me}", "format=MaxSubmit").split()
    limits = [int(row) for row in rows if row.isdigit()]
    mine = len(client.ask("squeue", "-h", "-r", "-t", "PD,R,S,CG", "-u", me, "-o", "%i").splitlines())
    if limits and mine + runs > max(limits):
        raise ConfigError(
            f"Your account takes {max(limits)} jobs at a time (MaxSubmitJobs) and has {mine}; {runs} more do not fit. "
            "Submit a part of the sweep, and the same command again later."
        )


def _check_resources(study: Path, settings: SlurmSettings) -> None:
    """Whether any node could run such a job: the cluster's own answer, for memory, CPUs, GPUs, account and QOS."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(script_text(study.absolute(), study.name, settings))
        script.flush()
        try:
            client.ask("sbatch", "--test-only", script.name)
        except client.UnreachableError:
            raise
        except client.SlurmError as error:
            said = re.sub(r"^(sbatch: |error: |allocation failure: )+", "", str(error))
            raise ConfigError(f"The cluster cannot run such a job: {said.rstrip('.')}. See hydra.launcher.") from None


def _largest(config: dict[str, str]) -> int:
    """`max_array_tasks` of SchedulerParameters, where a site sets it."""
    for parameter in config.get("SchedulerParameters", "").split(","):
        name, _, value = parameter.partition("=")
        if name == "max_array_tasks" and value.isdigit():
            return int(value)
    return DEFAULT_ARRAY if not config else int(config.get("MaxArraySize", DEFAULT_ARRAY))
