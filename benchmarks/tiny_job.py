"""A job for benchmarks/sweep.py: the supervisor of a SLURM job, whose run is a process that says at once that it has
finished. `hydra.launcher.python` points here; the arguments after it are those of Python."""

import os
import subprocess
import sys
from pathlib import Path

from lossbench.sweep.slurm.job import Supervisor, Task

FINISH = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "run.json").write_text(json.dumps({"id": sys.argv[2], "host": "", "config": {}}))
text = json.dumps({"schema": 1, "id": sys.argv[2], "status": "finished", "metrics": {}, "error": None})
(folder / ".result.tmp").write_text(text)
(folder / ".result.tmp").replace(folder / "result.json")
"""


class TinySupervisor(Supervisor):
    def _start(self, own: dict[str, str]) -> subprocess.Popen[bytes]:
        self._child = subprocess.Popen([sys.executable, "-S", "-c", FINISH, str(self.folder), self.run_id])
        return self._child


if __name__ == "__main__":
    supervisor = TinySupervisor(Path(sys.argv[-1]), Task.of(dict(os.environ)))
    supervisor.catch_signals()
    sys.exit(supervisor.run())
