"""From one row an example to the numbers of a split. Nothing else enters: whoever has the rows can compute them again.

A mean over tokens is total over total, never a mean of examples' means; a share is over all examples of the split.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lossbench.errors import DataError
from lossbench.evaluation import calibration, formulas, text_statistics
from lossbench.evaluation.answers import ERROR_CLASSES
from lossbench.evaluation.mauve_metrics import mauve_metrics
from lossbench.evaluation.memorisation import MEMORISED, memorisation_metrics
from lossbench.evaluation.perplexity import bits_per_byte, byte_ppl, ppl, word_ppl
from lossbench.evaluation.whole_texts import WHOLE_TEXT, whole_text_metrics

Row = Mapping[str, Any]

EXACT_MATCHES = ("em", "em_strict", "em_flexible", "em_seed")
CHOICES = ("acc", "acc_norm", "acc_bytes", "letter_logprob")
VIEWS = ("continuation", "tuning", "tuned", WHOLE_TEXT, MEMORISED)
PREFIXES = {"validation": "val"}


def aggregate(rows: Sequence[Row], split: str) -> dict[str, float]:
    """The metrics that the columns of `rows` allow, named `split/metric` (validation is `val`).

    em, em_strict, em_flexible, em_seed: fractions of the examples. error/CLASS: the fraction of each error class.
    stops/REASON: of each way to end a text. new_tokens: generated tokens an example. nll: nats a target token, all
    targets together; ppl = exp(nll); eos_nll: nats at the end-of-sequence tokens alone. entropy: mean entropy in nats
    of the predictions at the target tokens; token_accuracy: the fraction of them that is the most probable token.
    bits_per_byte, byte_ppl, word_ppl: of the targets' text, without EOS, words split at white space. truncated: the
    fraction of prompts that lost their beginning. data/n_SPLIT: the number of examples.

    acc, acc_norm, acc_bytes, letter_logprob: fractions (see `choices`); choices/*: calibration of the softmax over the
    choices; confidence/*: calibration of exp(mean log p) of the generated tokens against em. text/*: repetition and
    diversity of the completions (see `text_statistics`). steps/*, seed/*: the `<<...>>` steps (see `formulas`).
    pass@K, maj@N: of sampled answers. max_prob, sure_tokens, target_rank: of the predictions at the target tokens.

    Rows that have a `view` are continuations for MAUVE, not examples: data/n_SPLIT_continuations is their number,
    text/* and stops/* are then those of the greedy ones, sampled/* those of the first samples, and mauve[FEATURIZER]
    compares them with human ones (see `mauve_metrics`). rolling[bos=MODE]/*: of whole texts (see `whole_texts`).
    memorisation/*: of training texts (see `memorisation`).
    """
    prefix = PREFIXES.get(split, split)
    examples = [row for row in rows if row.get("view") not in VIEWS]
    views = ([row for row in rows if row.get("view") == view] for view in VIEWS)
    continuations, tuning, tuned, whole, memorised = views
    compared = continuations or examples
    found = {
        **_answer_metrics(examples),
        **_sampled_metrics(examples),
        **_confidence_metrics(examples),
        **_choice_metrics(examples),
        **_token_metrics(examples),
        **_text_metrics(examples),
        **_step_metrics(examples),
        **(_answer_metrics(continuations) | _text_metrics(continuations) if continuations else {}),
    }
    if _has(compared, "mauve_human"):
        found |= mauve_metrics(compared, tuning, tuned)
    if whole:
        found |= whole_text_metrics([dict(row) for row in whole])
    if _has(compared, "samples"):
        found |= _text_metrics([{"completion": row["samples"][0]} for row in compared], "sampled")
    for rows_of_prompts in (examples, continuations):
        if _has(rows_of_prompts, "truncated"):
            found.setdefault("truncated", _mean(_column(rows_of_prompts, "truncated")))
    sizes = {f"data/n_{prefix}": float(len(examples))} if examples else {}
    if continuations:
        sizes[f"data/n_{prefix}_continuations"] = float(len(continuations))
    of_training = memorisation_metrics(memorised) if memorised else {}
    return sizes | of_training | {f"{prefix}/{name}": value for name, value in found.items()}


def _answer_metrics(rows: Sequence[Row]) -> dict[str, float]:
    found = {name: _mean(_column(rows, name)) for name in EXACT_MATCHES if _has(rows, name)}
    if _has(rows, "seed_crash"):
        found["seed_crash"] = _mean(_column(rows, "seed_crash"))
    if _has(rows, "error_class"):
        classes = _column(rows, "error_class")
        found |= {f"error/{name}": _mean(c == name for c in classes) for name in ERROR_CLASSES if name != "ok"}
    if _has(rows, "stop_reason"):
        reasons = _column(rows, "stop_reason")
        found |= {f"stops/{name}": _mean(r == name for r in reasons) for name in ("eos", "stop_string", "length")}
        found["new_tokens"] = _mean(_column(rows, "n_new_tokens"))
    return found


def _sampled_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """pass@k for k = 1, 2, 4, ... and n, and the share of questions whose most frequent answer is right."""
    if not _has(rows, "sampled_n"):
        return {}
    n = int(min(_column(rows, "sampled_n")))
    sizes = sorted({2**power for power in range(n.bit_length()) if 2**power <= n} | {n})
    pairs = [(int(row["sampled_n"]), int(row["sampled_right"])) for row in rows]
    found = {f"pass@{k}": _mean(pass_at_k(total, right, k) for total, right in pairs) for k in sizes}
    return found | {f"maj@{n}": _mean(_column(rows, "sampled_majority_em"))}


def pass_at_k(n: int, right: int, k: int) -> float:
    """The chance that one of `k` answers is right, estimated without bias from `right` of `n` (Chen et al. 2021, arXiv
    2107.03374): 1 - C(n - right, k) / C(n, k)."""
    if not 0 <= right <= n or not 1 <= k <= n:
        raise DataError(f"pass@{k} cannot be estimated from {right} right ones of {n} answers.")
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def _token_metrics(rows: Sequence[Row]) -> dict[str, float]:
    if not _has(rows, "nll_sum"):
        return {}
    nll_sum, n_tokens = math.fsum(_column(rows, "nll_sum")), sum(_column(rows, "n_tokens"))
    found = {
        "nll": nll_sum / n_tokens,
        "ppl": ppl(nll_sum, n_tokens),
        "entropy": math.fsum(_column(rows, "entropy_sum")) / n_tokens,
        "token_accuracy": sum(_column(rows, "n_correct_tokens")) / n_tokens,
    }
    for name, column in (("max_prob", "max_prob_sum"), ("sure_tokens", "n_sure_tokens"), ("target_rank", "rank_sum")):
        if _has(rows, column):
            found[name] = math.fsum(_column(rows, column)) / n_tokens
    has_eos = _fills(rows, "eos_nll")
    if has_eos:
        found["eos_nll"] = _mean(_column(rows, "eos_nll"))
    if _fills(rows, "n_bytes"):
        eos_sum = math.fsum(_column(rows, "eos_nll")) if has_eos else 0.0
        n_bytes = sum(_column(rows, "n_bytes"))
        found["bits_per_byte"] = bits_per_byte(nll_sum - eos_sum, n_bytes)
        found["byte_ppl"] = byte_ppl(nll_sum - eos_sum, n_bytes)
        if _fills(rows, "n_words") and (n_words := sum(_column(rows, "n_words"))):
            found["word_ppl"] = word_ppl(nll_sum - eos_sum, n_words)
    return found


def _confidence_metrics(rows: Sequence[Row]) -> dict[str, float]:
    if not _has(rows, "mean_logprob"):
        return {}
    sure = [min(1.0, math.exp(value)) for value in _column(rows, "mean_logprob")]
    found = _calibration("confidence", sure, _column(rows, "em"))
    found["confidence/mean"] = _mean(sure)
    found["confidence/entropy"] = _mean(_column(rows, "mean_entropy"))
    area = calibration.area_under_roc(sure, _column(rows, "em"))
    return found if math.isnan(area) else found | {"confidence/auroc": area}


def _choice_metrics(rows: Sequence[Row]) -> dict[str, float]:
    found = {name: _mean(_column(rows, name)) for name in CHOICES if _has(rows, name)}
    for column in ("choice_logprobs", "letter_logprobs"):
        if _has(rows, column):
            among = [calibration.softmax(list(values)) for values in _column(rows, column)]
            gold = _column(rows, "gold_choice")
            found |= _calibration("choices", *calibration.top_choice(among, gold))
            found["choices/brier"] = calibration.multiclass_brier(among, gold)
            right = (p[place] for p, place in zip(among, gold, strict=True))
            found["choices/nll"] = _mean(-math.log(p) if p else math.inf for p in right)
    return found


def _calibration(name: str, sure: Sequence[float], correct: Sequence[bool]) -> dict[str, float]:
    return {
        f"{name}/ece": calibration.expected_calibration_error(sure, correct),
        f"{name}/ece_adaptive": calibration.expected_calibration_error(sure, correct, binning="adaptive"),
        f"{name}/brier": calibration.brier(sure, correct),
    }


def _text_metrics(rows: Sequence[Row], prefix: str = "text") -> dict[str, float]:
    if not _has(rows, "completion"):
        return {}
    texts = [text.split() for text in _column(rows, "completion")]
    lengths = [len(words) for words in texts]
    found = {f"{prefix}/rep_{n}": _mean(text_statistics.rep_n(words, n) for words in texts) for n in (1, 2, 3, 4)}
    found |= {f"{prefix}/distinct_{n}": text_statistics.distinct_n(texts, n) for n in (1, 2, 3, 4)}
    found[f"{prefix}/diversity"] = _mean(text_statistics.diversity(words) for words in texts)
    found[f"{prefix}/zipf"] = text_statistics.zipf_coefficient(word for words in texts for word in words)
    found[f"{prefix}/words"] = _mean(lengths)
    if len(texts) > 1:
        found[f"{prefix}/words_sd"] = statistics.stdev(lengths)
        some = [
            text_statistics.tokenize_13a(text)
            for text in _column(rows, "completion")[: text_statistics.MAX_SELF_BLEU_TEXTS]
        ]
        found[f"{prefix}/self_bleu"] = _mean(text_statistics.self_bleu(some))
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _step_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Means over the examples for which a quantity exists. Without a step in any gold solution there are none."""
    if not any(row.get("gold_steps") for row in rows):
        return {}
    pairs = [(row["completion"], row["gold_steps"]) for row in rows]
    ours = [formulas.step_metrics(*pair) for pair in pairs]
    found = {"steps/without_gold": _mean("<<" not in gold for _, gold in pairs)}
    for name in ours[0]:
        if values := [value for shares in ours if (value := shares[name]) is not None]:
            found[f"steps/{name}"] = _mean(values)
    seeds = [shares for pair in pairs if (shares := _seed_metrics(*pair)) is not None]
    found["seed/crashed"] = 1 - len(seeds) / len(pairs)
    for name in seeds[0] if seeds else ():
        found[f"seed/{name.replace(' ', '_')}"] = _mean(shares[name] for shares in seeds)
    return found


def _seed_metrics(completion: str, gold: str) -> dict[str, float] | None:
    try:
        return formulas.seed_metrics(completion, gold)
    except (ValueError, IndexError):  # where the original stops; `seed/crashed` says how often
        return None


def _has(rows: Sequence[Row], column: str) -> bool:
    return bool(rows) and all(row.get(column) is not None for row in rows)


def _fills(rows: Sequence[Row], column: str) -> bool:
    """`_has` for columns that some tasks leave empty: a table read from a file writes a missing number as NaN."""
    return _has(rows, column) and not any(math.isnan(value) for value in _column(rows, column))


def _column(rows: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in rows]


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return math.fsum(found) / len(found)
