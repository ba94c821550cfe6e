"""The cluster of these tests itself."""

import os
import time
from pathlib import Path

from tests.slurm.cluster import Cluster


def test_a_cluster_starts_in_seconds_listens_on_loopback_and_leaves_nothing_behind(tmp_path: Path):
    began = time.monotonic()
    with Cluster(tmp_path / "slurm", nodes=3) as cluster:
        assert time.monotonic() - began < 60  # about one second where nothing else runs
        assert cluster.run("srun", "-N3", "hostname").split() == [cluster.host] * 3
        cluster.run("sbatch", "-o", "/dev/null", "--wrap", "sleep 1000")
        daemons = {name: daemon.process.pid for name, daemon in cluster.daemons.items()}
        assert set(daemons) == {"munged", "slurmctld", "slurmd.n0", "slurmd.n1", "slurmd.n2"}
        for name, pid in daemons.items():
            assert listens_on(pid) == ([] if name == "munged" else ["127.0.0.1"]), name
    assert not [pid for pid in daemons.values() if Path(f"/proc/{pid}").exists()]
    assert not cluster.sockets.exists()
    assert not [process for process in Path("/proc").glob("[0-9]*") if belongs_to(cluster, process)]


def listens_on(pid: int) -> list[str]:
    """The IPv4 addresses on which a process accepts connections."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and f"socket:[{rest[5]}]" in sockets:
            found.add(".".join(str(byte) for byte in reversed(bytes.fromhex(local.split(":")[0]))))
    return sorted(found)


def belongs_to(cluster: Cluster, process: Path) -> bool:
    try:
        return str(cluster.folder).encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:
        return False
