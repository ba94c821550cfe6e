"""Value and gate of losses against the probability of the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from lossbench import losses
from lossbench.errors import ConfigError


def plot(names: Sequence[str], out: Path, vocabulary: int = 1000) -> Path:
    """Draw both curves of every named loss, with its defaults, into a PNG or SVG file; returns the file.

    The other V - 1 tokens share the rest of the probability equally. The gate is the factor by which the gradient at
    the target's logit differs from that of cross-entropy.
    """
    if out.suffix not in {".png", ".svg"}:
        raise ConfigError(f"{out} must end in .png or .svg.")
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    probability = torch.cat([torch.logspace(-4, -1.3, 40), torch.linspace(0.05, 0.995, 120)]).double()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in names:
        try:
            value, gate = losses.curve(losses.create(name), probability, vocabulary)
        except losses.MissingContext as error:
            raise ConfigError(f"{name} cannot be drawn by itself: {error}") from error
        left.plot(probability, value, label=name)
        right.plot(probability, gate, label=name)
    left.set(xlabel="probability of the target", ylabel="loss of a token", ylim=(None, min(left.get_ylim()[1], 8)))
    right.set(xlabel="probability of the target", ylabel="gate (1 = cross-entropy)")
    right.axhline(1, color="0.8", linewidth=0.8, zorder=0)
    left.legend()
    matplotlib.rcParams["svg.hashsalt"] = "lossbench"
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    plt.close(figure)
    return out
