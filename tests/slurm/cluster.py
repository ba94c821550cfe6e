"""A real SLURM cluster on this machine, private to a test run.

Everything lies below one folder (slurm.conf, state, logs) and a second one with a short name, for sockets. Nothing in
/etc is read or written, nothing needs systemd, all traffic is on loopback (slurmdbd alone cannot be told to listen
nowhere else) and every daemon is ended by its pid. Needs root and Debian's packages (PACKAGES).

    with Cluster(tmp_path / "slurm", accounting=True) as cluster:
        cluster.run("squeue")                  # with SLURM_CONF set
        cluster.kill("slurmd.n1")              # SIGKILL of one daemon
        cluster.start_again("slurmd.n1")
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

PACKAGES = "slurm-wlm munge slurmdbd mariadb-server-core mariadb-client-core"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED = ("munged", "slurmctld", "slurmd", "slurmdbd", "sbatch", "mariadbd", "mariadb-install-db")


def missing() -> str:
    """Why no cluster can run here; empty when one can."""
    if os.geteuid() != 0:
        return "a private SLURM cluster needs root"
    absent = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    return f"{', '.join(absent)} not installed (apt-get install {PACKAGES})" if absent else ""


class ClusterError(RuntimeError):
    """A daemon did not come up; the message holds the ends of its logs."""


@dataclass
class Daemon:
    """A started process: its command, and what tells its pid from a later process with the same number."""

    command: list[str]
    process: subprocess.Popen[bytes]

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None


@dataclass
class Cluster:
    """`nodes` virtual nodes n0, n1, ... with `cpus` CPUs and `memory_mb` each, partitions `low` and `high`.

    `high` preempts `low`; `preempt_signal` says whether a preempted job gets the signal of `sbatch --signal` first.
    Times are seconds.
    """

    folder: Path
    nodes: int = 2
    cpus: int = 4
    memory_mb: int = 8000
    accounting: bool = False
    preempt_signal: bool = True
    kill_wait: int = 5
    grace: int = 20
    slurmd_timeout: int = 15
    max_array: int = 1001
    extra: tuple[str, ...] = ()
    daemons: dict[str, Daemon] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.host = socket.gethostname().split(".")[0]
        self.conf = self.folder / "slurm.conf"
        # The path of a unix socket has at most 107 bytes (else slurmd says `launch failed`, and holds the job), and
        # munged refuses folders that others may write.
        self.sockets = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.munge = self.sockets / "munge"

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, aimed at the cluster."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        return {**clean, "SLURM_CONF": str(self.conf)}

    def run(self, *command: str, timeout: float = 60) -> str:
        """The stdout of a client command; raises when it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)} exited with {done.returncode}: {done.stderr}")
        return done.stdout

    def start(self) -> None:
        if reason := missing():
            raise ClusterError(reason)
        for name in ("state", "log", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for node in self.node_names:
            (self.sockets / node).mkdir()
        self.folder.chmod(0o755)
        self._start_munge()
        names = ["slurmctld", "slurmdbd", "mariadbd", *(f"slurmd.{node}" for node in self.node_names)]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.conf.write_text(self._slurm_conf(ports))
        (self.folder / "cgroup.conf").write_text("")  # or else slurmd looks for one in /etc
        if self.accounting:
            self._start_accounting(ports)
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        for node in self.node_names:
            self._spawn(f"slurmd.{node}", ["slurmd", "-D", "-f", str(self.conf), "-N", node])
        self.wait_idle()

    @property
    def node_names(self) -> list[str]:
        return [f"n{number}" for number in range(self.nodes)]

    def wait_idle(self, timeout: float = 60) -> None:
        """Until every node is idle."""

        def is_idle() -> bool:
            states = subprocess.run(
                ["sinfo", "-h", "-N", "-o", "%N %T"], env=self.environment, capture_output=True, text=True, timeout=60
            )
            found = {line.split()[0]: line.split()[1] for line in states.stdout.splitlines()}
            return len(found) == self.nodes and set(found.values()) == {"idle"}

        self._wait("idle nodes", is_idle, timeout, "slurmctld")

    def kill(self, name: str) -> None:
        """SIGKILL one daemon: slurmctld, slurmd.n0, slurmdbd, ..."""
        self.daemons[name].process.kill()
        self.daemons[name].process.wait()

    def kill_node(self, node: str) -> None:
        """As if its plug were pulled: slurmd and all that jobs run there."""
        self.kill(f"slurmd.{node}")
        self._end_what_jobs_left(node)

    def start_again(self, name: str) -> None:
        """Start a killed daemon with the same command."""
        self._spawn(name, self.daemons[name].command)

    def stop(self) -> None:
        """End all jobs, then all daemons, by pid."""
        if "slurmctld" in self.daemons and self.daemons["slurmctld"].is_alive:
            with contextlib.suppress(subprocess.TimeoutExpired, ClusterError):
                self.run("scancel", "--full", "--signal=KILL", "-u", "root", timeout=15)
                self.run("scancel", "-u", "root", timeout=15)
                deadline = time.monotonic() + 15
                while self.run("squeue", "-h", "-t", "R,CG,S,PD", "-o", "%i", timeout=15).strip():
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.1)
        self._end_what_jobs_left()
        order = [*(name for name in self.daemons if name.startswith("slurmd.")), "slurmctld", "slurmdbd", "mariadbd"]
        for name in [*order, "munged"]:
            if (daemon := self.daemons.get(name)) and daemon.is_alive:
                daemon.process.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.process.wait(10)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait()
        self._end_what_jobs_left()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def logs(self, lines: int = 25) -> str:
        """The ends of all daemons' logs."""
        parts = []
        for file in sorted((self.folder / "log").glob("*")):
            parts.append(f"--- {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-lines:]))
        return "\n".join(parts)

    # ------------------------------------------------------------------------------------------------- daemons

    def _spawn(self, name: str, command: list[str]) -> None:
        program = shutil.which(command[0], path=PATH)
        assert program is not None, command[0]
        # A small environment of their own: what slurmd inherits would leak into jobs.
        environment = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root", "SLURM_CONF": str(self.conf)}
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        self.daemons[name] = Daemon(command, process)

    def _wait(self, what: str, is_so: Callable[[], bool], timeout: float, daemon: str) -> None:
        deadline = time.monotonic() + timeout
        while not is_so():
            if not self.daemons[daemon].is_alive:
                raise ClusterError(f"{daemon} ended while waiting for {what}\n{self.logs()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"no {what} after {timeout:.0f} s\n{self.logs()}")
            time.sleep(0.05)

    def _start_munge(self) -> None:
        self.sockets.chmod(0o755)
        key = self.sockets / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        run = self.folder / "run"
        self._spawn(
            "munged",
            ["munged", "--foreground", f"--key-file={key}", f"--socket={self.munge}", f"--pid-file={run}/munged.pid",
             f"--log-file={self.folder}/log/munged.log", f"--seed-file={self.sockets}/seed", "--num-threads=4"],
        )  # fmt: skip
        self._wait("munge socket", self.munge.exists, 20, "munged")

    def _start_accounting(self, ports: dict[str, int]) -> None:
        data, temporary = self.folder / "mariadb", self.folder / "mariadb-tmp"
        temporary.mkdir()
        # --tmpdir: two installations that share /tmp get in each other's way.
        base = ["--no-defaults", f"--tmpdir={temporary}", f"--datadir={data}", "--user=root", "--skip-name-resolve"]
        subprocess.run(
            ["mariadb-install-db", *base, "--auth-root-authentication-method=socket", "--skip-test-db"],
            check=True, capture_output=True, timeout=120, env={"PATH": PATH, "HOME": "/root"},
        )  # fmt: skip
        setup = self.folder / "mariadb.sql"
        setup.write_text(
            "CREATE DATABASE slurm_acct_db;\nCREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';\nFLUSH PRIVILEGES;\n"
        )
        self._spawn(
            "mariadbd",
            ["mariadbd", *base, f"--socket={self.sockets}/mysql", f"--pid-file={self.folder}/run/mariadbd.pid",
             "--bind-address=127.0.0.1", f"--port={ports['mariadbd']}", f"--init-file={setup}", "--skip-log-bin",
             # A test's database: fast rather than durable.
             "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=0",
             "--performance-schema=OFF", "--innodb-doublewrite=0"],
        )  # fmt: skip
        self._wait("MariaDB", lambda: is_open(ports["mariadbd"]), 60, "mariadbd")
        conf = self.folder / "slurmdbd.conf"  # slurmdbd looks beside $SLURM_CONF, and has no option for it
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.munge}\nDbdHost={self.host}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={ports['slurmdbd']}\nSlurmUser=root\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=127.0.0.1\nStoragePort={ports['mariadbd']}\nStorageUser=slurm\nStoragePass=slurm\n"
            f"StorageLoc=slurm_acct_db\nPidFile={self.folder}/run/slurmdbd.pid\n"
            f"LogFile={self.folder}/log/slurmdbd.log\n"
        )
        conf.chmod(0o600)  # slurmdbd refuses any other mode
        self._spawn("slurmdbd", ["slurmdbd", "-D"])
        self._wait("slurmdbd", lambda: is_open(ports["slurmdbd"]), 60, "slurmdbd")

    def _end_what_jobs_left(self, node: str = "") -> None:
        """SIGKILL job steps of this cluster, or of one node, whose slurmd is gone: known by SLURM_CONF and the node's
        name in their environment, or by slurmd's open log (slurmstepd overwrites its environment)."""
        conf, name = f"SLURM_CONF={self.conf}".encode(), f"SLURMD_NODENAME={node}".encode()
        logs = f"{self.folder}/log/slurmd.{node}"
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if (process / "cmdline").read_bytes().startswith(b"slurmstepd"):
                    is_ours = any(os.readlink(entry).startswith(logs) for entry in (process / "fd").iterdir())
                else:
                    variables = (process / "environ").read_bytes().split(b"\0")
                    is_ours = conf in variables and any(variable.startswith(name) for variable in variables)
                if is_ours:
                    os.kill(int(process.name), signal.SIGKILL)

    # ------------------------------------------------------------------------------------------- configuration

    def _slurm_conf(self, ports: dict[str, int]) -> str:
        folder, log = self.folder, self.folder / "log"
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={self.host}(127.0.0.1)",  # must name this machine; the address keeps it on loopback
            f"SlurmctldPort={ports['slurmctld']}",
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",  # or else daemons listen on every address
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            # A requeued job waits until its old launch credential has expired: 120 s by default.
            f"AuthInfo=socket={self.munge},cred_expire=5",
            # Job ids that do not repeat between clusters: names and ports are made from them.
            f"FirstJobId={1000 + random.SystemRandom().randrange(50) * 10_000}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={self.sockets}/%n",
            f"SlurmctldPidFile={folder}/run/slurmctld.pid",
            f"SlurmdPidFile={folder}/run/slurmd.%n.pid",
            f"SlurmctldLogFile={log}/slurmctld.log",
            f"SlurmdLogFile={log}/slurmd.%n.log",
            # Not linuxproc: what is re-parented to pid 1 would escape it.
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "JobContainerType=job_container/none",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "SlurmdParameters=config_overrides",  # virtual nodes: more CPUs than the machine has are no fault
            "ReturnToService=2",  # a node that was down is used again when its slurmd is back
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,bf_continue,default_queue_depth=1000",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU_Memory",
            "PriorityType=priority/basic",
            "JobRequeue=1",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            # In SchedulerParameters, where manuals have it, 22.05 accepts it and does nothing.
            *(["SlurmctldParameters=preempt_send_user_signal"] if self.preempt_signal else []),
            f"KillWait={self.kill_wait}",
            f"SlurmdTimeout={self.slurmd_timeout}",
            "SlurmctldTimeout=10",
            "InactiveLimit=0",
            "MessageTimeout=20",
            "BatchStartTimeout=20",
            "CompleteWait=0",
            "MinJobAge=300",
            f"MaxArraySize={self.max_array}",
            # Without cgroups a memory limit is enforced by polling; UsePss, or shared pages count twice.
            "JobAcctGatherType=jobacct_gather/linux",
            "JobAcctGatherFrequency=task=1",
            "JobAcctGatherParams=OverMemoryKill,UsePss",
            "MailProg=/bin/true",
            "PropagateResourceLimits=NONE",
        ]
        if self.accounting:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={ports['slurmdbd']}",
                f"AccountingStoragePass={self.munge}",  # AuthInfo's socket is not used towards slurmdbd
                "AccountingStoreFlags=job_comment",
            ]
        else:
            lines.append("AccountingStorageType=accounting_storage/none")
        lines += [
            f"NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={ports[f'slurmd.{node}']} "
            f"CPUs={self.cpus} RealMemory={self.memory_mb} State=UNKNOWN"
            for node in self.node_names
        ]
        lines += [
            "PartitionName=low Nodes=ALL Default=YES MaxTime=1-0 PriorityTier=1 PreemptMode=REQUEUE "
            f"GraceTime={self.grace} DefMemPerCPU=100 State=UP",
            "PartitionName=high Nodes=ALL MaxTime=1-0 PriorityTier=10 PreemptMode=OFF DefMemPerCPU=100 State=UP",
            *self.extra,
        ]
        return "\n".join(lines) + "\n"


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """Ports below the ephemeral range: in it an outgoing connection may take one before its daemon does."""
    found: list[int] = []
    generator = random.SystemRandom()
    while len(found) < count:
        port = generator.randrange(15000, 19900)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


if __name__ == "__main__":  # a cluster by hand: python -m tests.slurm.cluster; it ends with Enter
    with tempfile.TemporaryDirectory(prefix="slurm-") as scratch, Cluster(Path(scratch), accounting=True) as cluster:
        print(json.dumps({"SLURM_CONF": str(cluster.conf)}), flush=True)
        input()
