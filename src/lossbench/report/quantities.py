"""Every quantity that a run records: how it is labelled, printed, bounded and ranked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """One column.

    Attributes:
        name: as logged, e.g. `test/em`.
        label: as printed, e.g. `Exact match`.
        unit: what one unit is (`%`, `s`, `nats`); empty for a plain number.
        direction: which values are better; None where the question makes no sense.
        scale: factor between the logged and the printed value (a fraction shown as per cent has 100).
        digits: decimal places; None for four significant digits.
        low, high: bounds of a possible value, inclusive; outside them a value is invalid.
        is_log_mean: average log values and show exp of the mean (perplexity); a difference is then a ratio.
        is_required: a run without it is incomplete when a run of the same model and dataset has it.
        is_ranked: best and second best are marked, and differences to the baseline are tested.
        description: one sentence for the method notes.
    """

    name: str
    label: str
    unit: str = ""
    direction: Direction | None = None
    scale: float = 1.0
    digits: int | None = None
    low: float = -math.inf
    high: float = math.inf
    is_log_mean: bool = False
    is_required: bool = False
    is_ranked: bool = False
    description: str = ""

    def is_valid(self, value: float) -> bool:
        """True for a finite value within the bounds."""
        return math.isfinite(value) and self.low <= value <= self.high


def fraction(label: str, description: str) -> Metric:
    return Metric(
        "", label, "%", "higher", 100.0, 1, 0.0, 1.0, is_required=True, is_ranked=True, description=description
    )


def share(label: str, direction: Direction | None, description: str, *, high: float = 1.0) -> Metric:
    """A fraction that explains a result and is neither required nor ranked."""
    return Metric("", label, "%", direction, 100.0, 1, 0.0, high, description=description)


def number(
    label: str,
    direction: Direction | None,
    description: str,
    digits: int | None = 3,
    *,
    unit: str = "",
    low: float = 0.0,
    high: float = math.inf,
    is_ranked: bool = False,
) -> Metric:
    return Metric(
        "", label, unit, direction, 1.0, digits, low, high, is_ranked=is_ranked, description=description
    )  # fmt: skip


def _perplexity(label: str, description: str, *, is_required: bool = False) -> Metric:
    return Metric(
        "", label, "", "lower", 1.0, 3, 1.0,
        is_log_mean=True, is_required=is_required, is_ranked=True, description=description,
    )  # fmt: skip


def _calibration(prefix: str, what: str, *, classes: bool = False) -> dict[str, Metric]:
    return {
        f"{prefix}/ece": Metric(
            "", f"Calibration error of {what}", "%", "lower", 100.0, 1, 0.0, 1.0, is_ranked=True,
            description=f"expected calibration error of {what}, 15 bins of equal width",
        ),
        f"{prefix}/ece_adaptive": share(
            f"Calibration error of {what} (adaptive bins)", "lower", "the same with 15 bins of equal count"
        ),
        f"{prefix}/brier": number(
            f"Brier score of {what}", "lower", "mean squared error of probabilities", 4, high=2.0 if classes else 1.0
        ),
    }  # fmt: skip


def _text(prefix: str, what: str) -> dict[str, Metric]:
    found = {f"{prefix}/diversity": number(f"Diversity of {what}", None, "product of 1 - rep-n, n = 2 to 4", high=1.0)}
    for n in (1, 2, 3, 4):
        found[f"{prefix}/rep_{n}"] = share(f"rep-{n} of {what}", None, f"share of repeated {n}-grams within a text")
        found[f"{prefix}/distinct_{n}"] = share(
            f"distinct-{n} of {what}", None, f"distinct over all {n}-grams of all texts"
        )
    return found | {
        f"{prefix}/zipf": number(f"Zipf exponent of {what}", None, "least squares over all ranks", low=-math.inf),
        f"{prefix}/self_bleu": number(
            f"Self-BLEU of {what}", None, "BLEU-4 of each text against others", 1, high=100.0
        ),
        f"{prefix}/words": number(f"Words of {what}", None, "words a text", 1),
        f"{prefix}/words_sd": number(f"S.d. of words of {what}", None, "standard deviation of words a text", 1),
    }


# `steps/*` are ours, `seed/*` the vision-loss paper's: (name of ours, name of theirs, label, direction, upper bound)
_STEPS: tuple[tuple[str, str, str, Direction, float], ...] = (
    ("iou", "iou", "IoU", "higher", 1.0),
    ("overlap", "overlap_index", "overlap", "higher", math.inf),
    ("dice", "dice_score", "Dice", "higher", 1.0),
    ("precision", "precision", "precision", "higher", 1.0),
    ("recall", "recall", "recall", "higher", 1.0),
    ("missing", "missing_steps", "missing", "lower", 1.0),
    ("extra", "extra_steps", "extra", "lower", math.inf),
    ("wrong_operators", "wrong_operators", "wrong operators", "lower", 1.0),
    ("inverted_operands", "inverted_operands", "inverted operands", "lower", 1.0),
    ("repetitions", "repetitions", "repeated", "lower", 1.0),
)


def _steps() -> dict[str, Metric]:
    found = {
        "steps/right_arithmetic": share("Steps: right arithmetic", "higher", "share of equations that hold"),
        "steps/without_gold": share("Steps: none in the reference", None, "examples whose reference has no step"),
        "seed/accuracy": share("Seed: accuracy", "higher", "the vision-loss paper's number after ####"),
        "seed/real_iou": share("Seed: real IoU", "higher", "equivalent steps over the union of strings"),
        "seed/crashed": share("Seed: crashed", None, "share of examples on which the paper's code stops"),
    }
    for ours, theirs, label, direction, high in _STEPS:
        found[f"steps/{ours}"] = share(f"Steps: {label}", direction, "of the <<...>> steps as formulas", high=high)
        found[f"seed/{theirs}"] = share(
            f"Seed: {label}", direction, "of the <<...>> steps as strings, as the vision-loss paper counts", high=high
        )
    return found


QUANTITIES: dict[str, Metric] = {
    "em": fraction("Exact match", "share of examples whose extracted answer equals the reference answer"),
    "em_strict": fraction("Exact match (strict)", "exact match under lm-evaluation-harness' strict filter of gsm8k"),
    "em_flexible": fraction("Exact match (flexible)", "exact match under lm-evaluation-harness' flexible filter"),
    "em_seed": fraction("Exact match (seed)", "exact match under the vision-loss paper's code; where it stops, wrong"),
    "seed_crash": share("Seed crash", None, "share of examples on which the vision-loss paper's exact match stops"),
    "accuracy": fraction("Accuracy", "share of examples for which the right choice is picked"),
    "acc": fraction("Accuracy", "share of examples whose right choice is the most likely one"),
    "acc_norm": fraction("Accuracy (characters)", "the same with log-likelihoods divided by characters"),
    "acc_bytes": fraction("Accuracy (bytes)", "the same with log-likelihoods divided by UTF-8 bytes"),
    "letter_logprob": fraction("Letter accuracy", "share of examples whose right letter is the most likely one"),
    "mauve": Metric(
        "",
        "MAUVE",
        "",
        "higher",
        1.0,
        3,
        0.0,
        1.0,
        is_required=True,
        is_ranked=True,
        description="closeness of generated to human text by the featurizer named, from 0 to 1",
    ),
    "mauve_indicative": Metric(
        "",
        "MAUVE (indicative)",
        "",
        "higher",
        1.0,
        3,
        0.0,
        1.0,
        is_required=True,
        description="MAUVE of fewer than 1,000 texts: no claim rests on it",
    ),
    "ppl": _perplexity(
        "Perplexity",
        "exp of the mean negative log-likelihood a target token; averaged over seeds on the log scale",
        is_required=True,
    ),
    "byte_ppl": _perplexity("Perplexity a byte", "exp of the negative log-likelihood a UTF-8 byte of the targets"),
    "word_ppl": _perplexity("Perplexity a word", "exp of the negative log-likelihood a word of the targets"),
    "bits_per_byte": number(
        "Bits a byte",
        "lower",
        "negative log-likelihood over UTF-8 bytes of the targets, comparable across tokenizers",
        4,
        unit="bits",
        is_ranked=True,
    ),
    "nll": Metric(
        "",
        "NLL",
        "nats",
        "lower",
        1.0,
        4,
        0.0,
        is_required=True,
        is_ranked=True,
        description="mean negative log-likelihood of the target tokens, comparable across losses",
    ),
    "eos_nll": number("NLL of EOS", "lower", "mean negative log-likelihood of the end of the target", 4, unit="nats"),
    "entropy": number("Entropy", None, "mean entropy of the predictions at target tokens", 4, unit="nats"),
    "token_accuracy": share("Token accuracy", "higher", "target tokens that are the most probable one"),
    "max_prob": share("Top probability", None, "mean probability of the most probable token"),
    "sure_tokens": share("Sure tokens", None, "predictions whose most probable token has p > 0.99"),
    "target_rank": number("Target rank", "lower", "mean rank of the target token, from 1", 2, low=1.0),
    "cross_entropy": Metric("", "Cross-entropy", "nats", "lower", 1.0, 4, 0.0),
    "ece": Metric("", "Calibration error", "%", "lower", 100.0, 1, 0.0, 1.0, is_ranked=True),
    **_calibration("confidence", "answers"),
    "confidence/auroc": number(
        "AUROC of confidence", "higher", "right answers are given with more confidence", high=1.0
    ),
    "confidence/mean": share("Confidence", None, "mean of exp(mean log p) of the generated tokens"),
    "confidence/entropy": number("Entropy of answers", None, "mean entropy while generating", 4, unit="nats"),
    **_calibration("choices", "choices", classes=True),
    "choices/nll": number("NLL among choices", "lower", "of the right choice among all", 4, unit="nats", low=0.0),
    "extractable": Metric(
        "",
        "Extractable",
        "%",
        "lower",
        100.0,
        1,
        0.0,
        1.0,
        is_ranked=True,
        description="training texts that are reproduced verbatim from their first tokens by greedy decoding",
    ),
    "extractable_held_out": share("Extractable, held out", None, "the same of texts that were not trained on"),
    "verbatim_tokens": number("Verbatim tokens", "lower", "of a training text, before the first that differs", 1),
    "verbatim_tokens_held_out": number("Verbatim tokens, held out", None, "of a text that was not trained on", 1),
    **{
        f"error/{name}": share(f"Errors: {label}", "lower", f"share of examples that are wrong: {label}")
        for name, label in {
            "wrong_value": "wrong value",
            "no_marker": "no marker",
            "marker_without_number": "marker without number",
            "no_number": "no number",
            "no_letter": "no letter",
            "runaway": "cut off",
            "empty": "empty",
            "truncated_prompt": "prompt cut off",
        }.items()
    },
    "stops/eos": share("Stops: EOS", None, "texts that end with EOS"),
    "stops/stop_string": share("Stops: string", None, "texts that end with a stop string"),
    "stops/length": share("Stops: length", "lower", "texts that were cut off by the length limit"),
    "new_tokens": number("New tokens", None, "generated tokens an example", 1),
    "truncated": share("Prompts cut off", "lower", "prompts that lost their beginning to the context window"),
    **_text("text", "generated text"),
    **_text("sampled", "sampled text"),
    **_steps(),
    "train_s": Metric("", "Training time", "s", "lower", 1.0, 1, 0.0, description="wall-clock seconds of training"),
    "eval_s": Metric("", "Evaluation time", "s", "lower", 1.0, 1, 0.0),
    "tokens_per_s": Metric("", "Tokens per second", "", "higher", 1.0, 0, 0.0),
    "peak_memory_mb": Metric(
        "", "Peak memory", "MB", "lower", 1.0, 0, 0.0, description="of the GPU, or else of the whole process"
    ),
    "gpu_hours": Metric("", "GPU hours", "h", "lower", 1.0, 2, 0.0, description="of training, all GPUs together"),
}
