"""The wheel carries all that `lossbench train` needs, and runs in an empty folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_run import SMALL

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built wheel, unpacked as an installer would."""
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(out),
    ]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = out.glob("lossbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    return out / "site"


def test_the_wheel_carries_configuration_studies_and_the_tiny_model(unpacked: Path):
    package = unpacked / "lossbench"
    for name in ("conf/config.yaml", "conf/loss/focal.yaml", "sweeps/demo.yaml", "models/tiny/model.safetensors"):
        assert (package / name).is_file()
    assert (unpacked / "hydra_plugins" / "lossbench_launchers" / "local.py").is_file()
    assert not list(package.rglob("*.tmp"))


def test_train_works_from_the_wheel_in_an_empty_folder(unpacked: Path, tmp_path: Path):
    code = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
        f"import lossbench.cli\nassert lossbench.cli.__file__.startswith({str(unpacked)!r})\nlossbench.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "loss=focal", *SMALL],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/default/focal-tiny-arithmetic-s0-*/result.json"))) == 1
