"""Two processes over gloo give the weights of one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.training_at_hand import Lines, train

# 23 examples: the last step has 3, so that with batch_size=10 the second process has nothing to compute in it
PAIR = ("trainer.accumulate=2", "trainer.max_steps=6")
CASES: dict[str, dict] = {
    "cross_entropy": {"overrides": PAIR},
    "uneven": {"overrides": (*PAIR, "trainer.batch_size=5")},
    "nothing_to_do": {"overrides": (*PAIR, "trainer.batch_size=10", "loss=ce_focal")},
    "emo": {"overrides": (*PAIR, "loss=emo1_adaptive")},
    "whole_logits": {"overrides": (*PAIR, "loss=emo", "trainer.fused_head=false")},
    "lovasz": {"overrides": (*PAIR, "loss=ce_lovasz")},
    "second_head": {"overrides": (*PAIR, "loss=token_order_prediction")},
    "lora": {"overrides": (*PAIR, "peft=lora", "peft.dropout=0.3")},
    "accumulated": {"overrides": ("trainer.accumulate=6", "trainer.batch_size=1")},
    "average": {"overrides": (*PAIR, "optimizer.ema_decay=0.9")},
    "token_budget": {"overrides": ("trainer.tokens_per_step=40",)},
    "interrupted": {"overrides": (*PAIR, "loss=ce_focal"), "stop_after": 3},
    "interrupted_lora": {"overrides": (*PAIR, "peft=lora", "peft.dropout=0.3"), "stop_after": 5},
    "fsdp": {"overrides": (*PAIR, "trainer.strategy=fsdp")},
    "fsdp_emo": {"overrides": (*PAIR, "trainer.strategy=fsdp", "loss=emo1_adaptive")},
    "fsdp_lora": {"overrides": (*PAIR, "trainer.strategy=fsdp", "peft=lora", "peft.dropout=0")},
    "fsdp_interrupted": {"overrides": (*PAIR, "trainer.strategy=fsdp", "loss=ce_focal"), "stop_after": 3},
}


def together(folder: Path, *names: str) -> None:
    """Let two processes train these cases; what came out lies in `folder`."""
    ports = free_ports(2 * len(names))
    cases = folder / "cases.json"
    cases.write_text(
        json.dumps({name: {**CASES[name], "ports": ports[2 * k : 2 * k + 2]} for k, name in enumerate(names)})
    )
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])}
    command = [sys.executable, "-m", "tests.training.one_of_two", str(folder), str(cases)]
    processes = [
        subprocess.Popen(command, env={**os.environ, **world, "RANK": rank, "LOCAL_RANK": rank}) for rank in "01"
    ]
    try:
        assert [process.wait(timeout=900) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ddp")
    together(folder, *(name for name in CASES if "fsdp" not in name))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if "fsdp" not in name])
def test_two_processes_train_as_one(ddp: Path, tmp_path: Path, case: str):
    assert_as_one(ddp, tmp_path, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if "fsdp" in name])
def test_two_processes_that_share_the_weights_train_as_one(tmp_path: Path, case: str):
    together(tmp_path, case)  # a pair for each: device meshes of one process do not survive its process group
    assert_as_one(tmp_path, tmp_path / "alone", case)


def assert_as_one(together: Path, tmp_path: Path, case: str) -> None:
    settings = [o for o in CASES[case]["overrides"] if not o.startswith("trainer.strategy")]
    journal = Lines(tmp_path)
    one = train(tmp_path, *settings, journal=journal, dropout=0.0)
    alone = load_file(one.fitted.best.of(one.fitted.best.step))
    two = json.loads((together / f"{case}.json").read_text())
    ours = load_file(together / f"{case}.safetensors")
    assert ours.keys() == alone.keys()
    for name, weight in alone.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-5, atol=1e-5)
    assert two["chosen"][0] == two["chosen"][1]
    assert two["chosen"][0][0] == one.fitted.best.step
    assert len(two["lines"]) == len(one.lines)
    for line, expected in zip(map(json.loads, two["lines"]), map(json.loads, one.lines), strict=True):
        assert line == pytest.approx(expected, rel=1e-4, abs=1e-5)
