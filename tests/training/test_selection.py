from types import SimpleNamespace
from typing import Any

import pytest

from lossbench import app
from lossbench.errors import ConfigError
from lossbench.training.selection import Validation, criterion
from tests.models_at_hand import byte_tokenizer, tiny_llama
from tests.training.training_at_hand import EXAMPLES

METRICS = ("exact_match", "perplexity")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("train/loss", "is a value of the training objective"),
        ("val/loss", "is a value of the training objective"),
        ("loss", "is a value of the training objective"),
        ("val/focal", "is a value of the training objective"),
        ("test/em", "must be measured on the validation split: write val/em"),
        ("val/emm", "is no metric to choose by. Did you mean 'val/em'"),
        ("val/acc", "needs the metric choices, which dataset=arithmetic does not have"),
    ],
)
def test_what_would_make_a_comparison_unfair_or_cannot_be_measured_is_refused(name: str, sentence: str):
    with pytest.raises(ConfigError, match=sentence.replace(".", r"\.")):
        criterion(app.compose("loss=focal", f"trainer.select_by={name}"), METRICS)


def test_a_metric_knows_which_way_is_better():
    assert not criterion(app.compose(), METRICS).higher_is_better
    assert criterion(app.compose("trainer.select_by=val/em"), METRICS).higher_is_better


def test_cross_entropy_is_measured_beside_another_criterion():
    def measured(select_by: str) -> dict[str, float]:
        config = app.compose(f"trainer.select_by={select_by}")
        task: Any = SimpleNamespace(metrics=METRICS, ends_with_eos=False, max_new_tokens=4)
        examples: Any = [
            SimpleNamespace(id=e.id, prompt="a", target="b", answer="b", choices=(), meta={}) for e in EXAMPLES
        ]
        return Validation(task, examples, EXAMPLES, byte_tokenizer(), config).measure(tiny_llama(), lambda *_: None)

    alone, both = measured("val/nll"), measured("val/token_accuracy")
    assert set(alone) == {"val/nll"}
    assert set(both) == {"val/nll", "val/token_accuracy"}
    assert both["val/nll"] == pytest.approx(alone["val/nll"], rel=1e-6)
