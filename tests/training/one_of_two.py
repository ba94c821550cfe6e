"""python -m tests.training.one_of_two FOLDER CASES.json: one of two processes that train each case together.

torchrun's variables say which one. Rank 0 writes FOLDER/CASE.safetensors, and what was logged and chosen beside it.
Every process group has a port of its own, from those of the case: one that begins where another has just ended could
meet the store of the old one, and wait for ever.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from lossbench import app
from lossbench.training.interrupt import Interrupted
from lossbench.training.ranks import Ranks
from tests.training.training_at_hand import Lines, train


def main(folder: Path, cases: dict[str, dict]) -> None:
    for name, case in cases.items():
        os.environ["MASTER_PORT"], again = map(str, case["ports"])
        ranks = Ranks.of(app.compose("trainer.devices=2", "trainer.accumulate=2"))
        journal, settings = Lines(folder / name), ("trainer.devices=2", "trainer.accelerator=cpu", *case["overrides"])
        reached = ranks.rank == 1  # by the signal, which one of them gets alone
        stop = {"stop_after": case["stop_after"]} if "stop_after" in case and reached else {}
        try:
            outcome = train(folder / name, *settings, journal=journal, ranks=ranks, dropout=0.0, **stop)
        except Interrupted:
            dist.destroy_process_group()
            os.environ["MASTER_PORT"] = again
            outcome = train(folder / name, *settings, journal=journal, ranks=ranks, dropout=0.0)
        chosen = [None, None]
        dist.all_gather_object(chosen, [outcome.fitted.best.step, outcome.fitted.best.value, outcome.fitted.done.step])
        if ranks.is_first:
            best = outcome.fitted.best
            weights = load_file(best.of(best.step))
            save_file(weights, folder / f"{name}.safetensors")
            (folder / f"{name}.json").write_text(json.dumps({"chosen": chosen, "lines": journal.kept}))
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
