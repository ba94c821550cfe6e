"""One study with everything in it that a report must survive."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lossbench.report import Report, assemble
from tests.report.factory import answers, write_plan, write_run

NOW = 1_800_000_000.0
HOSTILE = "<script>alert(1)</script>|_*`😀`"
# Exact match by loss and seed: cross_entropy whole, focal whole, lovasz with one seed left.
EM = {
    "cross_entropy": {0: 0.40, 1: 0.44, 2: 0.42},
    "focal": {0: 0.50, 1: 0.53, 2: 0.51},
    "lovasz": {0: 0.61},
    HOSTILE: {0: 0.30, 1: 0.35},
}


def metrics(loss: str, seed: int) -> dict[str, float]:
    em = EM[loss][seed]
    nll = 1.0 - em
    return {
        "test/em": em, "test/ppl": math.exp(nll), "test/nll": nll, "val/nll": nll + 0.1, "time/train_s": 60.0 + seed,
    }  # fmt: skip


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 losses x 3 seeds planned: lovasz failed once and is missing once; a fourth loss has a hostile name.

    Of the hostile loss seed 1 has a NaN and seed 2 crashed with a truncated log.
    """
    root = tmp_path_factory.mktemp("runs") / "demo"
    write_plan(root, ["cross_entropy", "focal", "lovasz"], [0, 1, 2])
    for loss in ("cross_entropy", "focal"):
        for seed in range(3):
            write_run(root, loss, seed, metrics=metrics(loss, seed), examples=answers(2 + seed))
    write_run(root, "lovasz", 0, metrics=metrics("lovasz", 0), examples=answers(5))
    error = {"type": "DivergedError", "message": "the gradient became NaN at step 40 <b>after</b> train-17"}
    write_run(root, "lovasz", 1, status="failed", error=error, traceback="Traceback ...\nDivergedError: at step 40\n")
    write_run(root, HOSTILE, 0, metrics=metrics(HOSTILE, 0), examples=answers(1, hostile="<img src=x onerror=1>"))
    write_run(root, HOSTILE, 1, metrics={**metrics(HOSTILE, 1), "val/nll": math.nan})
    write_run(root, HOSTILE, 2, status=None, cut=True)
    return root


@pytest.fixture(scope="session")
def report(study: Path) -> Report:
    return assemble([study], now=NOW)
