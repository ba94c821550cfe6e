import os
import subprocess
import sys
from pathlib import Path

import pytest

from lossbench.errors import ConfigError
from lossbench.new_loss import write


def test_a_new_loss_passes_its_own_tests_and_is_a_configuration(tmp_path: Path):
    written = write("my_loss", tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in written] == [
        "my_loss.py",
        "conf/loss/my_loss.yaml",
        "tests/test_my_loss.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HYDRA_FULL_ERROR": "0"}
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(tested, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    shown = [sys.executable, "-m", "lossbench", "train", "loss=my_loss", "--cfg", "job", "--package", "loss"]
    done = subprocess.run(shown, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "loss: my_loss:MyLoss" in done.stdout, done.stderr


def test_in_a_checkout_it_joins_the_registry(tmp_path: Path):
    (tmp_path / "src" / "lossbench" / "losses" / "families").mkdir(parents=True)
    source, config, test = write("my_loss", tmp_path)
    assert source == tmp_path / "src" / "lossbench" / "losses" / "families" / "my_loss.py"
    assert "from ..base import TargetLoss" in source.read_text() and ":" not in config.read_text().split("k: 1.0")[1]
    assert "from lossbench.losses.families.my_loss import MyLoss" in test.read_text()


@pytest.mark.parametrize(
    ("name", "message"), [("MyLoss", "no name for a loss"), ("a-b", "no name"), ("focal", "exists already")]
)
def test_names_that_cannot_work_are_refused(name: str, message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        write(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path):
    (tmp_path / "my_loss.py").write_text("mine")
    with pytest.raises(ConfigError, match="exists already; nothing was written"):
        write("my_loss", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["my_loss.py"]
