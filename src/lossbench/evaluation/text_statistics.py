"""What generated texts look like: do they repeat themselves, or each other? Pure Python on words.

A text is split at white space unless said otherwise, and an n-gram is n consecutive words of one text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from lossbench.errors import DataError

Words = Sequence[str]
MAX_SELF_BLEU_TEXTS = 500


def ngrams(words: Sequence, n: int) -> list[tuple]:
    """All n-grams of a sequence, in order."""
    return list(zip(*(words[start:] for start in range(n)), strict=False))


def rep_n(words: Sequence, n: int) -> float:
    """1 - distinct / all n-grams of one text (Welleck et al. 2020, arXiv 1908.04319); 0 for a text without one.

    On `text.split(" ")` it is the repetitiveness of the EMO repository; with n = 4 on words it is seq-rep-4.
    """
    found = ngrams(words, n)
    return 1 - len(set(found)) / len(found) if found else 0.0


def diversity(words: Sequence) -> float:
    """prod_{n=2..4} (1 - rep_n) (Su et al. 2022, arXiv 2202.06417): 1 where nothing is said twice."""
    return math.prod(1 - rep_n(words, n) for n in (2, 3, 4))


def distinct_n(texts: Iterable[Sequence], n: int) -> float:
    """Distinct / all n-grams of a corpus (Li et al. 2016, arXiv 1510.03055); NaN for a corpus without one."""
    counts = Counter(gram for words in texts for gram in ngrams(words, n))
    return len(counts) / counts.total() if counts else math.nan


def zipf_coefficient(tokens: Iterable, ranks: int | None = None) -> float:
    """s of count ~ rank^-s: least squares of log count on log rank, over all ranks or the first `ranks`.

    Natural language has about 1; a higher one says that few words do all the work. NaN with fewer than two kinds.
    """
    counts = sorted(Counter(tokens).values(), reverse=True)[:ranks]
    if len(counts) < 2:
        return math.nan
    x = [math.log(rank) for rank in range(1, len(counts) + 1)]
    y = [math.log(count) for count in counts]
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return -slope / math.fsum((a - mean_x) ** 2 for a in x)


def self_bleu(texts: Sequence[Words], order: int = 4) -> list[float]:
    """BLEU-4 of each text against all others, 0 to 100 (Zhu et al. 2018, arXiv 1802.01886): high where texts are alike.

    Sentence BLEU as sacrebleu computes it (exponential smoothing, effective order off) on the words given; the n-gram
    matches of a text are clipped by the reference that has most of them. At most `MAX_SELF_BLEU_TEXTS` texts.
    """
    if not 2 <= len(texts) <= MAX_SELF_BLEU_TEXTS:
        raise DataError(f"Self-BLEU compares 2 to {MAX_SELF_BLEU_TEXTS} texts with each other, got {len(texts)}.")
    counts = [[Counter(ngrams(words, n)) for words in texts] for n in range(1, order + 1)]
    best = [_two_best(level) for level in counts]
    lengths = [len(words) for words in texts]
    return [_bleu(number, counts, best, lengths) for number in range(len(texts))]


def tokenize_13a(text: str) -> list[str]:
    """sacrebleu's default tokens (mteval-v13a): punctuation apart, but `1,200` and `3.5` whole."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for mark, character in (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")):
        text = text.replace(mark, character)
    text = f" {text} "
    text = re.sub(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])", r" \1 ", text)
    text = re.sub(r"([^0-9])([\.,])", r"\1 \2 ", text)
    text = re.sub(r"([\.,])([^0-9])", r" \1 \2", text)
    text = re.sub(r"([0-9])(-)", r"\1 \2 ", text)
    return text.split()


def rouge_n(reference: str, prediction: str, n: int) -> float:
    """F-measure of the n-grams that two texts share (Lin 2004), in rouge_score's tokens and without a stemmer."""
    wanted, found = (Counter(ngrams(_rouge_tokens(text), n)) for text in (reference, prediction))
    return _f_measure((wanted & found).total(), found.total(), wanted.total())


def rouge_l(reference: str, prediction: str) -> float:
    """F-measure of the longest common subsequence of two texts, in rouge_score's tokens and without a stemmer."""
    wanted, found = _rouge_tokens(reference), _rouge_tokens(prediction)
    row = [0] * (len(found) + 1)
    for word in wanted:
        previous = 0
        for place, other in enumerate(found, 1):
            previous, row[place] = row[place], previous + 1 if word == other else max(row[place], row[place - 1])
    return _f_measure(row[-1], len(found), len(wanted))


def _rouge_tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _f_measure(matches: int, found: int, wanted: int) -> float:
    if not matches:
        return 0.0
    precision, recall = matches / found, matches / wanted
    return 2 * precision * recall / (precision + recall)


def _two_best(level: Sequence[Counter]) -> dict[tuple, tuple[int, int, int]]:
    """For each n-gram the highest count, the text that has it, and the highest count of any other text."""
    found: dict[tuple, tuple[int, int, int]] = {}
    for number, counts in enumerate(level):
        for gram, count in counts.items():
            first, owner, second = found.get(gram, (0, -1, 0))
            found[gram] = (count, number, first) if count > first else (first, owner, max(second, count))
    return found


def _bleu(
    number: int,
    counts: Sequence[Sequence[Counter]],
    best: Sequence[dict[tuple, tuple[int, int, int]]],
    lengths: Sequence[int],
) -> float:
    log_precisions, halvings = 0.0, 0
    for level, others in zip(counts, best, strict=True):
        total = level[number].total()
        matches = 0
        for gram, count in level[number].items():
            first, owner, second = others[gram]
            matches += min(count, second if owner == number else first)
        if total == 0 or (matches == 0 and level is counts[0]):
            return 0.0
        if matches == 0:
            halvings += 1
            precision = Fraction(1, 2**halvings * total)
        else:
            precision = Fraction(matches, total)
        log_precisions += math.log(precision)
    length = lengths[number]
    closest = min((abs(other - length), other) for place, other in enumerate(lengths) if place != number)[1]
    brevity = 0.0 if length >= closest else 1 - closest / length
    return 100 * math.exp(brevity + log_precisions / len(counts))
