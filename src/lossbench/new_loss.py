"""Write the files of a new loss: its class, its configuration and its test."""

from __future__ import annotations

import re
from pathlib import Path

from lossbench.errors import ConfigError

CLASS = '''\
"""What {name} does, in one sentence."""

from __future__ import annotations

from torch import Tensor

from lossbench.losses import Batch, TargetLoss, register


@register("{name}")
class {cls}(TargetLoss):
    """One sentence: what it does.

        f = -(1 - p_t)^k log p_t

    Args:
        k: exponent, >= 0; 0 is cross-entropy.
    """

    paper = "Authors, year, title, address"
    bounds = (0.0, float("inf"))

    def __init__(self, k: float = 1.0) -> None:
        super().__init__()
        self.k = k

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        """(n,) log p of the target -> (n,) value of each token. Other families see more: lossbench.losses.base."""
        return -((-log_p.expm1()) ** self.k) * log_p
'''
CONFIG = """\
# What {name} does, in one line.
name: {name}
terms:
  {name}: {{weight: 1.0, scope: answer, k: 1.0, loss: "{module}:{cls}"}}
"""
TEST = """\
import math

import torch
{imports}

def test_{name}_passes_every_check() -> None:
    report = losses.check({cls}())
    assert report.ok, str(report)


def test_{name}_by_hand() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)  # p_t = 3/4
    value = {cls}(k=2.0)(logits, torch.tensor([0]))
    assert math.isclose(value.item(), (1 / 4) ** 2 * -math.log(3 / 4), rel_tol=1e-12)
"""


def write(name: str, folder: Path) -> list[Path]:
    """Write NAME.py, conf/loss/NAME.yaml and tests/test_NAME.py below a folder; refuses to overwrite anything.

    Inside a checkout of lossbench the class goes to the registry's own families, elsewhere it is a module of the
    user's that `loss=NAME` imports.

    Raises:
        ConfigError: the name is no Python name in snake_case, is taken, or a file is there already.
    """
    from lossbench.losses import available

    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ConfigError(f"{name!r} is no name for a loss: use lower-case words joined by underscores, like my_loss.")
    if name in available():
        raise ConfigError(
            f"A loss named {name!r} exists already (`lossbench losses show {name}`); choose another name."
        )
    cls = "".join(part.capitalize() for part in name.split("_"))
    own = (folder / "src" / "lossbench" / "losses" / "families").is_dir()
    module = f"lossbench.losses.families.{name}" if own else name
    source = f"src/lossbench/losses/families/{name}.py" if own else f"{name}.py"
    test = f"tests/losses/families/test_{name}.py" if own else f"tests/test_{name}.py"
    imports = "\nfrom lossbench import losses\n" + (
        f"from {module} import {cls}\n" if own else f"\nfrom {module} import {cls}\n"
    )
    class_text, config_text = CLASS, CONFIG
    if own:
        class_text = CLASS.replace(
            "from lossbench.losses import Batch, TargetLoss, register",
            "from ..base import TargetLoss\nfrom ..batch import Batch\nfrom ..registry import register",
        )
        config_text = CONFIG.replace(', loss: "{module}:{cls}"', "")
    texts = {source: class_text, f"conf/loss/{name}.yaml": config_text, test: TEST}
    for file in texts:
        if (folder / file).exists():
            raise ConfigError(f"{folder / file} exists already; nothing was written.")
    written = []
    for file, text in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text.format(name=name, cls=cls, module=module, imports=imports), encoding="utf-8")
        written.append(folder / file)
    return written
