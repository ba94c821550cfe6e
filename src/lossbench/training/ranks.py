"""The processes that train one run together: who is who, what they agree on, and how the others are started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.config import RunConfig
from lossbench.errors import ConfigError, LossbenchError
from lossbench.training.interrupt import SIGNALS

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # torchrun's
FAREWELL = 60.0  # seconds that the other ranks get to end by themselves
GRACE = 30.0  # seconds that this process gets to notice that another one is gone


class RankFailedError(LossbenchError):
    """A process of a run with several ended with an error."""


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run. Rank 0 writes the record and the checkpoints, validates and evaluates.

    All ranks call the agreements below in the same order; with a single process they cost nothing.
    """

    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @classmethod
    def of(cls, config: RunConfig) -> Ranks:
        """From the environment that torchrun sets, else rank 0 of `trainer.devices`.

        Raises:
            ConfigError: the environment has another number of processes on this machine than trainer.devices says.
        """
        asked = config.trainer.devices
        if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= set(os.environ):
            return cls(0, asked, asked)
        world = int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        if local != asked:
            raise ConfigError(
                f"trainer.devices={asked}, but the environment has {local} processes on this machine "
                f"(LOCAL_WORLD_SIZE or WORLD_SIZE): start as many, or set trainer.devices={local}."
            )
        return cls(int(os.environ["RANK"]), world, local)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def started_elsewhere(self) -> bool:
        """Whether torchrun, or rank 0, has started this process as one of several."""
        return "RANK" in os.environ

    def sums(self, values: Mapping[str, float], device: Any) -> dict[str, float]:
        """The sum over all ranks of every value; each rank has the same names."""
        if self.world_size == 1:
            return dict(values)
        import torch
        import torch.distributed as dist

        names = sorted(values)
        # not float64: there is none on some devices
        total = torch.tensor([values[name] for name in names], dtype=torch.float32, device=device)
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def largest(self, number: int, device: Any) -> int:
        """The largest of a whole number over all ranks."""
        if self.world_size == 1:
            return number
        import torch
        import torch.distributed as dist

        most = torch.tensor(number, device=device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return int(most)

    def from_first(self, value: Any) -> Any:
        """What rank 0 has."""
        if self.world_size == 1:
            return value
        import torch.distributed as dist

        held = [value]
        dist.broadcast_object_list(held)
        return held[0]

    def gathered(self, value: Any) -> list[Any]:
        """What every rank has, by rank; an empty list on all but rank 0."""
        if self.world_size == 1:
            return [value]
        import torch.distributed as dist

        found: list[Any] | None = [None] * self.world_size if self.is_first else None
        dist.gather_object(value, found)
        return found or []


@contextmanager
def others(ranks: Ranks, config_file: Path) -> Iterator[None]:
    """Within, the other ranks of this machine run beside this one, each `python -m lossbench.run config_file`.

    Rank 0 keeps the terminal and the command line that it was started with; the others get the frozen configuration
    and torchrun's variables, never the command line, which could be that of a whole sweep. Nothing is started where
    torchrun did that, or with a single process.

    Raises:
        RankFailedError: rank 0 went well, and another one did not.
    """
    if ranks.world_size == 1 or ranks.started_elsewhere:
        yield
        return
    world = {
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_WORLD_SIZE": str(ranks.world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "lossbench.run", str(config_file)],
            env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": path},
        )
        for rank in range(1, ranks.world_size)
    ]
    os.environ.update({**world, "RANK": "0", "LOCAL_RANK": "0"})
    done = threading.Event()
    threading.Thread(target=_end_with_them, args=(processes, done), daemon=True).start()
    try:
        yield
        done.set()
        codes = [process.wait(FAREWELL) for process in processes]
    except BaseException:
        done.set()
        _end(processes)
        raise
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
    if any(codes):
        raise RankFailedError(f"The other processes of this run ended with the exit codes {codes}; see their output.")


def _end_with_them(processes: list[subprocess.Popen[bytes]], done: threading.Event) -> None:
    """End this process when another one has failed and this one waits for it, deep in a library, for hours."""
    stopped = {128 + signum for signum in SIGNALS}  # by a signal: so is this one
    while not done.wait(1.0):
        codes = [code for process in processes if (code := process.poll()) and code not in stopped]
        if codes and not done.wait(GRACE):
            print(
                f"lossbench: another process of this run ended with exit code {codes[0]} (see its output); this one "
                "cannot go on without it. The same command goes on from the last checkpoint.",
                file=sys.stderr,
                flush=True,
            )
            os._exit(RankFailedError.exit_code)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for those that are ending already, as after a signal that all have seen, then end the rest."""
    for process in processes:
        try:
            process.wait(min(GRACE, 5.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
