"""The state of a training at a safe point, between two optimizer steps: to be saved, and put back bit for bit.

No data order is in it: that is a function of the seed and the step's number (`StepPlan`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from lossbench.training.checkpoint import like, load_weights, weights_of, whole
from lossbench.training.module import FineTuning
from lossbench.training.ranks import Ranks


def state_of(module: FineTuning, optimizer: Optimizer, ranks: Ranks) -> dict[str, Any]:
    """Everything that the next optimizer step depends on beside the data. All ranks call it, and rank 0 uses it.

    Trained weights alone (under LoRA its own), the optimizer's moments, the schedule, averaged weights, snapshots of
    losses that look back, and by rank what differs there: buffers of losses with a state, and random generators.
    """
    return {
        "weights": weights_of(module),
        "optimizer": _whole(optimizer.state_dict()),
        "schedule": module.schedule.state_dict(),
        "average": _whole(module.average.state_dict()) if module.average else None,
        "snapshot": module.context.snapshot_state(),
        "ranks": ranks.gathered({"loss": dict(module.objective.state_dict()), "random": random_state()}),
    }


def put_back(state: Mapping[str, Any], module: FineTuning, optimizer: Optimizer, ranks: Ranks) -> None:
    """Make everything as `state_of` found it. With another number of ranks, rank 0's part serves those that are new."""
    load_weights(module, state["weights"])
    optimizer.load_state_dict(_sharded(state["optimizer"], optimizer))
    module.schedule.load_state_dict(dict(state["schedule"]))
    if module.average:
        own = module.average.state_dict()
        module.average.load_state_dict({name: like(own[name], value) for name, value in state["average"].items()})
    module.context.load_snapshot_state(state["snapshot"])
    mine = state["ranks"][ranks.rank] if ranks.rank < len(state["ranks"]) else state["ranks"][0]
    module.objective.load_state_dict(mine["loss"])
    set_random_state(mine["random"])


def random_state() -> dict[str, Any]:
    """The states of the generators of torch, its GPUs, numpy and Python, as tensors and plain numbers."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put back what `random_state` gave; GPUs that were not there keep their own state."""
    torch.set_rng_state(state["torch"])
    for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, device)
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


def _whole(value: Any) -> Any:
    if isinstance(value, Tensor):
        return whole(value)
    if isinstance(value, Mapping):
        return {key: _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value


def _sharded(saved: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer's whole state with the moments of sharded weights sharded as these are."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    moments = {
        number: {
            name: like(weights[number], value) if isinstance(value, Tensor) and value.dim() else value
            for name, value in parts.items()
        }
        for number, parts in saved["state"].items()
    }
    return {"state": moments, "param_groups": saved["param_groups"]}
