"""The columns of `examples.parquet`: what is kept of each example, so that every number can be computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lossbench.data import numbers
from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample
from lossbench.evaluation import answers
from lossbench.evaluation.choices import ChoiceScores, first_best, letters
from lossbench.evaluation.generate import Completion
from lossbench.evaluation.perplexity import TargetScore

Row = dict[str, Any]


def identity(example: Example, tokens: TokenizedExample, split: str) -> Row:
    """Which example this is, and whether the model saw all of its prompt."""
    return {
        "id": example.id,
        "split": split,
        "prompt": example.prompt,
        "prompt_tokens": tokens.target_start,
        "truncated": tokens.truncated,
    }


def answer(rule: str, example: Example, tokens: TokenizedExample, completion: Completion) -> Row:
    """What was generated, what was read out of it, and why it is wrong."""
    text, gold, options = completion.text, gold_text(example, rule), letters_of(example)
    row = {
        "completion": text,
        "stop_reason": completion.stop_reason,
        "n_new_tokens": completion.n_new_tokens,
        "gold": example.answer,
        "gold_value": answers.extract(gold, rule, options),
        "prediction": answers.extract(text, rule, options),
        "em": answers.exact_match(text, gold, rule, options),
        "error_class": answers.error_class(
            text, gold, completion.stop_reason, rule=rule, truncated_prompt=tokens.truncated, letters=options
        ),
    }
    if rule == "lossbench":  # numbers as others read them, beside ours
        row |= {
            "pred_marked": _as_text(numbers.marked(text)),
            "pred_last": _as_text(numbers.last(text)),
            "seed_crash": answers.seed_crashes(text, gold),
            "em_strict": answers.exact_match(text, gold, "gsm8k_strict"),
            "em_flexible": answers.exact_match(text, gold, "gsm8k_flexible"),
            "em_seed": answers.exact_match(text, gold, "seed"),
            "gold_steps": example.target if "<<" in example.target else "",
        }
    return row


def sampled(rule: str, example: Example, texts: Sequence[str]) -> Row:
    """Several sampled answers to one question: how many are right, and whether the answer that most of them give is.

    Texts without an answer have no vote; of equally frequent answers the one that was given first wins.
    """
    gold, options = gold_text(example, rule), letters_of(example)
    right = [answers.exact_match(text, gold, rule, options) for text in texts]
    votes: Counter[str] = Counter()
    first: dict[str, bool] = {}
    for text, is_right in zip(texts, right, strict=True):
        if (said := answers.extract(text, rule, options)) is not None:
            votes[said] += 1
            first.setdefault(said, is_right)
    winner = max(votes, key=votes.__getitem__) if votes else None  # insertion order decides between equal counts
    return {
        "sampled_completions": list(texts),
        "sampled_n": len(texts),
        "sampled_right": sum(right),
        "sampled_majority": winner,
        "sampled_majority_em": winner is not None and first[winner],
    }


def likelihood(ends_with_eos: bool, example: Example, tokens: TokenizedExample, score: TargetScore) -> Row:
    """How likely the target is, in nats, and the sizes to divide by."""
    is_whole = tokens.target_start > 0  # otherwise its first token is unscored, and the bytes are not those of the NLL
    return {
        "nll_sum": score.nll_sum,
        "n_tokens": score.n_tokens,
        "eos_nll": score.last_nll if ends_with_eos else None,
        "entropy_sum": score.entropy_sum,
        "n_correct_tokens": score.n_correct,
        "max_prob_sum": score.max_prob_sum,
        "n_sure_tokens": score.n_sure,
        "rank_sum": score.rank_sum,
        "n_bytes": len(example.target.encode()) if is_whole else None,
        "n_words": len(example.target.split()) if is_whole else None,
    }


def confidence(score: TargetScore) -> Row:
    """How sure the model was of the tokens that it generated itself, in nats; `min_margin` is the smallest lead in
    log-probability that a most probable token had on the next: near 0, rounding may change the text."""
    return {
        "sum_logprob": -score.nll_sum,
        "mean_logprob": -score.nll_sum / score.n_tokens,
        "mean_entropy": score.entropy_sum / score.n_tokens,
        "min_margin": score.min_margin,
    }


def choice(example: Example, scores: ChoiceScores) -> Row:
    """How likely each choice is, and which of them each norm takes."""
    return {
        "gold_choice": example.gold_choice,
        "choice_logprobs": list(scores.log_probs),
        "choice_chars": list(scores.characters),
        "choice_bytes": list(scores.bytes),
        "acc": scores.by_sum == example.gold_choice,
        "acc_norm": scores.by_character == example.gold_choice,
        "acc_bytes": scores.by_byte == example.gold_choice,
    }


def letter_choice(example: Example, log_probs: list[float]) -> Row:
    """How likely each option's letter is, and whether the most likely one is right."""
    best = first_best(log_probs)
    return {
        "gold_choice": example.gold_choice,
        "letter_logprobs": log_probs,
        "letter": letters(len(log_probs))[best],
        "letter_logprob": best == example.gold_choice,
    }


def asks_for_letter(example: Example) -> bool:
    """Whether the options stand in the prompt and their letters are what is to be said."""
    return bool(example.choices) and example.target.strip() == example.answer


def letters_of(example: Example) -> str:
    """The letters of the example's own options; A to E where it names none."""
    return letters(len(example.choices)) if example.choices else answers.LETTERS


def gold_text(example: Example, rule: str) -> str:
    """The gold answer as a text that every number rule can read: a bare `12` gets the marker that some rules need."""
    given = example.answer or ""
    return given if rule == "letter" or "####" in given else f"#### {given}"


def filled(table: Sequence[Row]) -> list[Row]:
    """All rows with the columns of all, None where a row has none: Parquet takes its columns from the first one."""
    names = dict.fromkeys(name for row in table for name in row)
    return [{name: row.get(name) for name in names} for row in table]


def _as_text(number: Any) -> str | None:
    return None if number is None else str(number)
