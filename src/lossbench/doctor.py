"""What this machine can do for a run, line by line, and what to do about what it cannot.

Each check is a function without arguments that returns one or more lines; none of them changes anything, and none asks
the network for longer than a few seconds.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "note", "bad"]
SECONDS = 5.0
ENOUGH_BYTES = 5 << 30  # for checkpoints and a cache


@dataclass(frozen=True)
class Line:
    """One finding.

    Args:
        name: what was looked at.
        status: ok; note, where something is missing that only some runs need; bad, where runs will fail.
        found: what is there.
        advice: what to do about it, empty where there is nothing to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


def examine(runs: Path = Path("runs")) -> list[Line]:
    """All checks; one that fails itself is a bad line and stops no other."""
    checks: list[tuple[str, Callable[[], Iterator[Line]]]] = [
        ("Python", _python),
        ("torch", _torch),
        ("disk", lambda: _disk(runs)),
        ("hub", _hub),
        ("wandb", _wandb),
        ("SLURM", _slurm),
        ("extras", _extras),
    ]
    found: list[Line] = []
    for name, check in checks:
        try:
            found += check()
        except Exception as error:  # a broken installation is what this command is for
            found.append(Line(name, "bad", f"{type(error).__name__}: {error}", "Reinstall lossbench in a fresh venv."))
    return found


def _python() -> Iterator[Line]:
    version = platform.python_version()
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Line(
        "Python",
        "ok" if fits else "bad",
        version,
        "" if fits else "Use Python 3.11 to 3.13: hydra-core breaks on 3.14.",
    )


def _torch() -> Iterator[Line]:
    import torch

    yield Line("torch", "ok", torch.__version__)
    if not torch.cuda.is_available():
        advice = "The embedded model and models of up to about 0.2 B parameters train on a CPU; others need a GPU."
        if shutil.which("nvidia-smi"):
            advice = "nvidia-smi is here but torch sees no GPU: install a CUDA build of torch that fits the driver."
        yield Line("GPU", "note", "none", advice)
    for k in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(k)
        yield Line(f"GPU {k}", "ok", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    if torch.cuda.is_available():
        has = torch.cuda.is_bf16_supported(including_emulation=False)
        advice = "" if has else "Use trainer.precision=32-true: this GPU only emulates bfloat16."
        yield Line("bfloat16", "ok" if has else "note", "in hardware" if has else "emulated", advice)
    elif platform.system() == "Linux":
        has = "avx512_bf16" in (flags := _cpu_flags()) or "amx_bf16" in flags
        advice = "" if has else "Use trainer.precision=32-true: bfloat16 is slower than float32 on this CPU."
        yield Line("bfloat16", "ok" if has else "note", "in hardware" if has else "emulated", advice)


def _cpu_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split())
    return set()


def _disk(runs: Path) -> Iterator[Line]:
    from huggingface_hub.constants import HF_HUB_CACHE

    from lossbench.data import token_cache

    places = {"runs": runs, "hub cache": Path(HF_HUB_CACHE), "token cache": token_cache.folder(None)}
    for name, place in places.items():
        there = next(parent for parent in [place.absolute(), *place.absolute().parents] if parent.exists())
        if not os.access(there, os.W_OK):
            yield Line(
                f"disk of {name}", "bad", f"{place} cannot be written to", f"Make {there} writable or choose another."
            )
            continue
        free = shutil.disk_usage(there).free
        advice = "" if free >= ENOUGH_BYTES else "Free some space: a checkpoint of a 7 B model in bfloat16 is 14 GB."
        yield Line(f"disk of {name}", "note" if advice else "ok", f"{free / 2**30:.0f} GiB free at {place}", advice)


def _hub() -> Iterator[Line]:
    from huggingface_hub import get_token
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    has_token = get_token() is not None
    yield Line(
        "hub login", "ok" if has_token else "note", "a token is set" if has_token else "no token",
        "" if has_token else "Gated models such as Llama 2 need `hf auth login`.",
    )  # fmt: skip
    if HF_HUB_OFFLINE:
        yield Line("hub access", "note", "HF_HUB_OFFLINE is set", "Only what is in the cache can be used.")
        return
    error = _answers(ENDPOINT)
    advice = "Download models where there is network (`hf download ID`), and pass folders: model.path=FOLDER."
    yield Line("hub access", "note" if error else "ok", error or f"{ENDPOINT} answers", advice if error else "")


def _wandb() -> Iterator[Line]:
    import netrc

    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").rstrip("/")
    host = server.removeprefix("https://").removeprefix("http://").partition(":")[0]
    known = bool(os.environ.get("WANDB_API_KEY"))
    if not known:
        try:
            known = netrc.netrc().authenticators(host) is not None
        except (OSError, netrc.NetrcParseError):
            known = False
    advice = "" if known else "Nothing is needed for tracking.mode=offline (the default); else run `wandb login`."
    yield Line("wandb login", "ok" if known else "note", f"{'a key' if known else 'no key'} for {host}", advice)


def _slurm() -> Iterator[Line]:
    if shutil.which("sbatch") is None:
        yield Line("SLURM", "note", "sbatch is not on PATH", "Sweeps run on this machine: hydra/launcher=local.")
        return
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%P %a"], capture_output=True, text=True, timeout=4 * SECONDS
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        if "configuration source" in said:  # the programs are installed, and no cluster is told to them
            yield Line(
                "SLURM", "note", "sinfo finds no slurm.conf", "Sweeps run on this machine: hydra/launcher=local."
            )
            return
        yield Line("SLURM", "bad", f"sinfo failed: {said}", "Ask your site whether the controller is down.")
        return
    up = [line.split()[0].rstrip("*") for line in done.stdout.splitlines() if line.split()[1:] == ["up"]]
    yield Line("SLURM", "ok" if up else "bad", f"partitions {', '.join(up)}" if up else "no partition is up")


def _extras() -> Iterator[Line]:
    from importlib.util import find_spec

    for extra, module, what in (
        ("mauve", "mauve", "the metric MAUVE"),
        ("harness", "lm_eval", "lossbench evaluate --harness"),
        ("quantised", "bitsandbytes", "peft=qlora and optimizer=adamw_8bit"),
    ):
        there = find_spec(module) is not None
        advice = "" if there else f"{what} needs it: pip install 'lossbench[{extra}]'"
        yield Line(f"extra {extra}", "ok" if there else "note", "installed" if there else "not installed", advice)


def _answers(url: str) -> str:
    """The reason why a server does not answer, or nothing."""
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=SECONDS).close()
    except urllib.error.HTTPError:
        return ""  # it answered
    except (OSError, ValueError) as error:
        return f"{url} does not answer ({getattr(error, 'reason', error)})"
    return ""
