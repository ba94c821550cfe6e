"""Pre-train the embedded model `tiny` from nothing but generated text, and write it where the package ships it.

    python scripts/pretrain_tiny.py --out src/lossbench/models/tiny

About 16 minutes on one idle core. The run is seeded and counted in steps, never in seconds, so the same machine and
versions give the same bytes; another CPU may round differently. Text: easy word problems (training split only), bare
arithmetic, plain sentences over the same words, and short lists said twice, which make copying heads form early.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lossbench.data.word_problems import EASY, HARD, PEOPLE, PLACES, THINGS, Problem, Scene, draw, step

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
ADJECTIVES = "red blue green yellow white small big old new".split()
WINDOW = 160


def as_text(problem: Problem) -> str:
    return f"Question: {problem.question}\nAnswer: {problem.answer}"


def easy_problem(rng: random.Random) -> str:
    while (problem := draw(rng, EASY)).split != "train":
        continue
    return as_text(problem)


def drill(rng: random.Random) -> str:
    def line() -> str:
        sign = rng.choice("+-*/")
        if sign == "+":
            left, right = rng.randint(1, 120), rng.randint(1, 99)
            return step(f"{left} + {right}", left + right)
        if sign == "-":
            right, value = rng.randint(1, 99), rng.randint(0, 99)
            return step(f"{value + right} - {right}", value)
        if sign == "*":
            pairs = [(rng.randint(2, 12), rng.randint(2, 12)), (rng.randint(2, 5), rng.randint(10, 45))]
            left, right = rng.choice(pairs)
            return step(f"{left} * {right}", left * right)
        value, right = rng.randint(1, 12), rng.randint(2, 12)
        return step(f"{value * right} / {right}", value)

    return "\n".join(line() for _ in range(6))


def prose(rng: random.Random) -> str:
    s = Scene(rng)
    sentences = (
        lambda: f"{s.a} went to the {s.place} with {s.b} on {s.day}.",
        lambda: f"{s.She} likes {rng.choice(ADJECTIVES)} {s.x} and {rng.choice(ADJECTIVES)} {s.y}.",
        lambda: f"The {s.box} was full of {rng.choice(ADJECTIVES)} {s.x}.",
        lambda: f"{s.b} has a {rng.choice(ADJECTIVES)} {s.box} and {s.a} has none.",
        lambda: f"On {s.later} {s.a} and {s.c} packed the {s.boxes} for {s.her} friends.",
        lambda: f"There are many children at the {s.place} on {s.later}.",
        lambda: f"{s.a} sold the {s.y} and bought {s.x} for {s.her} friends.",
        lambda: f"They read a book about the {rng.choice(PLACES)} and had tea.",
        lambda: f"{s.c} gave {s.a} some {s.x}, so {s.she} put them in a {s.box}.",
        lambda: f"It was a {rng.choice(['warm', 'cold', 'long', 'good'])} day.",
    )
    return " ".join(rng.choice(sentences)() for _ in range(rng.randint(3, 5)))


def said_twice(rng: random.Random) -> str:
    def word() -> str:
        return rng.choice([rng.choice(PEOPLE)[0], rng.choice(THINGS), rng.choice(PLACES), str(rng.randint(2, 99))])

    line = ", ".join(word() for _ in range(rng.randint(3, 12)))
    return f"{line}. Again: {line}."


def document(rng: random.Random) -> str:
    kinds, weights = (drill, easy_problem, prose, said_twice), (0.24, 0.46, 0.06, 0.24)
    return rng.choices(kinds, weights)[0](rng)


def train_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Byte-level BPE with one token a digit: any text round-trips, and arithmetic has a chance."""
    rng = random.Random(17)
    lines = [document(rng) for _ in range(6000)] + [as_text(draw(rng, HARD)) for _ in range(3000)]
    tokenizer = Tokenizer(BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[PAD, BOS, EOS, UNK],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD, unk_token=UNK,
        model_max_length=512, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    wrapped.save_pretrained(folder)
    return wrapped


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
            rms_norm_eps=1e-5, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip


def packed(tokenizer: PreTrainedTokenizerFast, batch: int, seed: int) -> Iterator[torch.Tensor]:
    """Endless (batch, WINDOW + 1) token ids of documents between BOS and EOS."""
    rng, stream, size = random.Random(seed), [], batch * (WINDOW + 1)
    while True:
        while len(stream) < size:
            for ids in tokenizer([document(rng) for _ in range(64)], add_special_tokens=False)["input_ids"]:
                stream += [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
        yield torch.tensor(stream[:size]).view(batch, WINDOW + 1)
        del stream[:size]


def learning_rate(progress: float, step: int, peak: float) -> float:
    """Warm-up over 100 steps, flat for 30 %, then a cosine to 2 % of the peak."""
    decay = 1.0 if progress < 0.3 else 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (progress - 0.3) / 0.7))
    return peak * min(1.0, (step + 1) / 100) * decay


def pretrain(model: LlamaForCausalLM, batches: Iterator[torch.Tensor], steps: int, peak: float) -> float:
    """Train for `steps`; returns the mean loss of the last hundred."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98))
    model.train()
    recent, started = [], time.monotonic()
    for done in range(steps):
        tokens = next(batches)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(done / steps, done, peak)
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent = [*recent[-99:], loss.item()]
        if (done + 1) % 100 == 0:
            seconds = time.monotonic() - started
            print(f"step {done + 1}: loss {sum(recent) / len(recent):.4f}, {seconds:.0f} s", flush=True)
    return sum(recent) / len(recent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(1)  # a model of this size runs several times slower on more
    started = time.monotonic()
    scratch = args.out.with_name(args.out.name + ".tmp")
    tokenizer = train_tokenizer(scratch)
    model = new_model(tokenizer, args.seed)
    loss = pretrain(model, packed(tokenizer, args.batch, args.seed + 1), args.steps, args.lr)
    model.half().save_pretrained(scratch)
    record = {
        "script": "scripts/pretrain_tiny.py",
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": args.steps, "tokens": args.steps * args.batch * WINDOW, "learning_rate": args.lr, "seed": args.seed,
        "final_loss": round(loss, 4), "minutes": round((time.monotonic() - started) / 60, 1),
        "torch": torch.__version__,
    }  # fmt: skip
    (scratch / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    shutil.rmtree(args.out, ignore_errors=True)
    scratch.rename(args.out)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
