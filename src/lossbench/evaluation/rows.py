"""The columns of `examples.parquet`: what is kept of each example, so that every number can be computed again."""

from __future__ import annotations

from typing import Any

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
    text, gold = completion.text, gold_text(example, rule)
    row = {
        "completion": text,
        "stop_reason": completion.stop_reason,
        "n_new_tokens": completion.n_new_tokens,
        "gold": example.answer,
        "gold_value": answers.extract(gold, rule),
        "prediction": answers.extract(text, rule),
        "em": answers.exact_match(text, gold, rule),
        "error_class": answers.error_class(
            text, gold, completion.stop_reason, rule=rule, truncated_prompt=tokens.truncated
        ),
    }
    if rule == "lossbench":  # numbers as others read them, beside ours
        row |= {
            "em_strict": answers.exact_match(text, gold, "gsm8k_strict"),
            "em_flexible": answers.exact_match(text, gold, "gsm8k_flexible"),
            "em_seed": answers.exact_match(text, gold, "seed"),
            "gold_steps": example.target if "<<" in example.target else "",
        }
    return row


def likelihood(ends_with_eos: bool, example: Example, tokens: TokenizedExample, score: TargetScore) -> Row:
    """How likely the target is, in nats, and the sizes to divide by."""
    is_whole = tokens.target_start > 0  # otherwise its first token is unscored, and the bytes are not those of the NLL
    return {
        "nll_sum": score.nll_sum,
        "n_tokens": score.n_tokens,
        "eos_nll": score.last_nll if ends_with_eos else None,
        "entropy_sum": score.entropy_sum,
        "n_correct_tokens": score.n_correct,
        "n_bytes": len(example.target.encode()) if is_whole else None,
        "n_words": len(example.target.split()) if is_whole else None,
    }


def confidence(score: TargetScore) -> Row:
    """How sure the model was of the tokens that it generated itself, in nats."""
    return {
        "sum_logprob": -score.nll_sum,
        "mean_logprob": -score.nll_sum / score.n_tokens,
        "mean_entropy": score.entropy_sum / score.n_tokens,
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


def gold_text(example: Example, rule: str) -> str:
    """The gold answer as a text that every number rule can read: a bare `12` gets the marker that some rules need."""
    given = example.answer or ""
    return given if rule == "letter" or "####" in given else f"#### {given}"
