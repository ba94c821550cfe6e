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
    parser.add_argument("--out", type=Path, help="a file for the figures, .md or .json")
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
        about = {key: value for key, value in vars(asked).items() if key != "out"} | {"torch": torch.__version__}
        text = json.dumps({**about, "goal": GOAL, "results": results}, indent=2) + "\n"
        asked.out.write_text(markdown(about, results) if asked.out.suffix == ".md" else text, encoding="utf-8")


def markdown(about: dict[str, Any], results: dict[str, dict]) -> str:
    """The figures as a page, each beside its goal."""
    rows = [
        f"| {name} | {found['ratio']:.3f} | {found['ratios'][0]:.2f} to {found['ratios'][-1]:.2f} | "
        f"{found['ours_s']:.3f} | {found['theirs_s']:.3f} | {GOAL} {'met' if found['ratio'] <= GOAL else 'missed'} |"
        for name, found in results.items()
    ]
    clock = "wall" if about["device"].startswith("cuda") else "CPU"
    return "\n".join(
        [
            "# Generation against a bare `model.generate` on length-sorted batches",
            "",
            f"{about['model']} on {about['device']}, torch {about['torch']}: {about['prompts']} prompts, batches of "
            f"{about['batch_size']}, {about['new_tokens']} new tokens, {about['rounds']} interleaved rounds. The ratio "
            "is the median of the rounds' ratios; the range is that of single rounds.",
            "",
            f"| | ratio | rounds | ours, {clock} s | theirs, {clock} s | goal |",
            "|---|--:|--:|--:|--:|--:|",
            *rows,
            "",
            "`python benchmarks/generation.py --out benchmarks/results/generation.md` makes this page again.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
