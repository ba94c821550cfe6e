"""The `lossbench` command. Every command calls a function of the library and prints what it returns.

One module a command; `application.ORDER` is the order in which `--help` lists them.
"""

from __future__ import annotations

import sys

from lossbench.errors import LossbenchError, refused

from . import dashboard, diff, doctor, evaluate, export, losses, new_loss, prepare, report, runs, train
from .application import app

__all__ = [
    "app",
    "dashboard",
    "diff",
    "doctor",
    "evaluate",
    "export",
    "losses",
    "main",
    "new_loss",
    "prepare",
    "report",
    "runs",
    "train",
]


def main() -> None:
    """Entry point: what the user can mend is one sentence, not a traceback."""
    try:
        app()
    except LossbenchError as error:
        print(f"lossbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if (sentence := refused(error)) is None:
            raise
        print(f"lossbench: {sentence}", file=sys.stderr)
        sys.exit(sentence.exit_code)
    except ValueError as error:
        # `losses` stands on torch alone and has errors of its own; asking whether this is one must not import torch.
        own = sys.modules.get("lossbench.losses.errors")
        if own is None or not isinstance(error, own.LossError):
            raise
        print(f"lossbench: {error}", file=sys.stderr)
        sys.exit(2)
