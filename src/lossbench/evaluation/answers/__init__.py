"""Reading answers out of generated text, and judging them.

Pure Python on whole texts, without torch. One module a kind of knowledge: `rules` (which text counts as the answer,
ours and the field's), `letters` (multiple choice), `verdict` (why an answer is wrong). The grammar of a number and
MathQA's options are in `lossbench.data`, whose tasks read them too.
"""

from lossbench.data.options import option_number, parse_options
from lossbench.evaluation.answers.letters import LETTERS, letter
from lossbench.evaluation.answers.rules import RULES, exact_match, extract, seed_crashes
from lossbench.evaluation.answers.verdict import ERROR_CLASSES, error_class

__all__ = [
    "ERROR_CLASSES",
    "LETTERS",
    "RULES",
    "error_class",
    "exact_match",
    "extract",
    "letter",
    "option_number",
    "parse_options",
    "seed_crashes",
]
