"""Is generation slower than `model.generate` called on length-sorted batches? Goal: at most 1.05 times.

    python benchmarks/generation.py                       # the embedded model, one CPU thread
    python benchmarks/generation.py --model gpt2 --device cuda

Both sides take the same prompts, batches, left padding and number of new tokens, and decode the new tokens to text.
They run in turn, so that what else the machine does hits both alike; the median of the rounds' ratios counts. Time is
CPU seconds of one thread on a CPU, and wall time on a GPU. Greedy decoding is compared with a bare `model.generate`,
sampling with a bare one with top_k 0, top_p 1 and temperature 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from lossbench.data.word_problems import problems
from lossbench.evaluation.generate import generate
from lossbench.models.locate import folder_of

GOAL = 1.05


def bare(model: Any, tokenizer: Any, prompts: list[list[int]], size: int, new_tokens: int, **sampling: Any) -> int:
    """`model.generate` as one would call it by hand; returns the number of texts."""
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    order = sorted(range(len(prompts)), key=lambda number: -len(prompts[number]))
    texts = []
    for begin in range(0, len(order), size):
        batch = [prompts[number] for number in order[begin : begin + size]]
        width = max(map(len, batch))
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in batch]).to(model.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in batch]).to(model.device)
        settings = sampling or {"do_sample": False}
        written = model.generate(
            ids, attention_mask=mask, max_new_tokens=new_tokens, use_cache=True, pad_token_id=pad, **settings
        )
        texts += tokenizer.batch_decode(written[:, width:], skip_special_tokens=True)
    return len(texts)


def compare(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int, clock: Callable[[], float]) -> dict:
    """Interleaved rounds after one to warm up; each side goes first in turn."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    ours(), theirs()
    for number in range(rounds):
        pair = [("ours", ours), ("theirs", theirs)]
        for name, call in pair if number % 2 else reversed(pair):
            begun = clock()
            call()
            seconds[name].append(clock() - begun)
    ratios = [a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 4) for ratio in sorted(ratios)],
        "ours_s": statistics.median(seconds["ours"]),
        "theirs_s": statistics.median(seconds["theirs"]),
    }


def wall_of_gpu() -> float:
    """Seconds, after the GPU has done what it was given."""
    torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lossbench:tiny", help="a folder, a hub id, or lossbench:tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    asked = parser.parse_args()

    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = str(folder_of(asked.model) or asked.model)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(asked.device).eval()
    if asked.device == "cpu":
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    found = islice(problems("test", "easy", 0), asked.prompts)
    prompts = [tokenizer(f"Question: {problem.question}\nAnswer:")["input_ids"] for problem in found]
    size, new_tokens = asked.batch_size, asked.new_tokens
    clock = wall_of_gpu if asked.device.startswith("cuda") else time.process_time

    def ours(**settings: Any) -> Callable[[], Any]:
        return lambda: generate(model, tokenizer, prompts, max_new_tokens=new_tokens, batch_size=size, **settings)

    sampling = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
    cases = {
        "greedy": (ours(), lambda: bare(model, tokenizer, prompts, size, new_tokens)),
        "greedy, stop string": (
            ours(stop_strings=("Question:",)),
            lambda: bare(model, tokenizer, prompts, size, new_tokens),
        ),
        "sampling": (ours(sample_seed=0), lambda: bare(model, tokenizer, prompts, size, new_tokens, **sampling)),
    }
    results = {name: compare(*pair, asked.rounds, clock) for name, pair in cases.items()}
    for name, result in results.items():
        verdict = "within" if result["ratio"] <= GOAL else "above"
        print(
            f"{name:<20} {result['ratio']:.3f} of model.generate ({result['ours_s']:.3f} s against "
            f"{result['theirs_s']:.3f} s), {verdict} the goal of {GOAL}"
        )
    if asked.out:
        about = {"model": asked.model, "device": asked.device, "torch": torch.__version__, "goal": GOAL}
        asked.out.write_text(json.dumps({**about, "results": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
