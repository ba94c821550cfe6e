"""The launcher ends, whichever way; its jobs go on, and are come back to."""

import json
import os
import pty
import signal

from lossbench.sweep.slurm import registry
from tests.slurm.sweeps import ends, logged_step, numbers, result


def test_a_killed_launcher_is_attached_to_again(cluster, sweeps, reference):
    here = sweeps(cluster, pause=0.4)
    process = here.start("seed=0,1")
    here.wait_for("a running job", lambda: [folder for folder in here.folders() if logged_step(folder)])
    process.kill()
    process.wait()
    running = here.listed()
    assert {run["state"] for run in running.values()} <= {"running", "pending", "finished"}
    assert any(run["steps"] == 24 and run["node"] in ("n0", "n1") for run in running.values())
    attached = here.lossbench("runs", "attach", str(here.folder / "default"), timeout=240)
    assert attached.returncode == 0, attached.stderr
    assert {result(folder)["status"] for folder in here.folders()} == {"finished"}
    assert numbers(here.seed(0)) == reference
    assert len(here.arrays()) == 1


def test_ctrl_c_asks_once_leaves_the_jobs_running_and_the_same_command_follows_them(cluster, sweeps):
    here = sweeps(cluster, pause=1.5)
    terminal, its_end = pty.openpty()
    first = here.start(stdin=its_end)
    here.wait_for_step(2)
    first.send_signal(signal.SIGINT)
    here.wait_for("a question", lambda: here.said.count("Stop watching?") == 1)
    os.write(terminal, b"n\n")
    here.wait_for("its answer", lambda: "Still watching." in here.said)
    first.send_signal(signal.SIGINT)
    here.wait_for("it once more", lambda: here.said.count("Stop watching?") == 2)
    os.write(terminal, b"\n")
    assert first.wait(60) == 130
    assert "The jobs go on running" in here.said
    assert here.only()
    code, said = here.run()
    assert code == 0, said
    assert "1 of them have a job or a process already, and are followed" in said
    assert len(here.arrays()) == 1
    assert ends(here.only()) == ["finished"]


def test_what_was_submitted_is_found_although_the_answer_was_lost(cluster, sweeps, monkeypatch):
    here = sweeps(cluster, pause=0.2)
    code, _ = here.run("hydra.launcher.wait=false")
    assert code == 0
    study = here.folder / "default"
    intent, answer = (study / "jobs.jsonl").read_text().splitlines()
    (study / "jobs.jsonl").write_text(intent + "\n" + answer[:10])  # killed while it wrote
    monkeypatch.setenv("SLURM_CONF", here.environment["SLURM_CONF"])
    (found,) = registry.recover(study)
    assert found.job == json.loads(answer)["job"]
    attached = here.lossbench("runs", "attach", str(study), timeout=240)
    assert attached.returncode == 0, attached.stderr
