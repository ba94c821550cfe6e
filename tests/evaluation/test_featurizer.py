from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from lossbench.errors import ModelError
from lossbench.evaluation import featurizer
from lossbench.evaluation.featurizer import Featurizer
from tests.evaluation import golden

TEXTS = ["A short text.", "Another text that is a good deal longer than the first.", "x"]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_features_are_the_last_hidden_states(model: PreTrainedModel, tokenizer: Any, pooling: str) -> None:
    made = Featurizer("f", model, tokenizer, pooling)  # type: ignore[arg-type]
    found = made.features(made.encode(TEXTS), batch_size=3)
    assert found.dtype == np.float32
    for row, ids in zip(found, made.encode(TEXTS), strict=True):
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]
        expected = states[-1] if pooling == "last" else states.mean(0)
        assert row == pytest.approx(expected.numpy(), abs=1e-5)


def test_features_do_not_depend_on_the_batch(model: PreTrainedModel, tokenizer: Any) -> None:
    made = Featurizer("f", model, tokenizer)
    one, many = (made.features(made.encode(TEXTS), batch_size=size) for size in (1, 3))
    assert one == pytest.approx(many, abs=1e-5)


@pytest.mark.parametrize(("pooling", "name"), [("last", "tiny_llama_text"), ("mean", "tiny_llama_text,mean")])
def test_a_featurizer_is_named_after_its_model_and_read_only(pooling: Any, name: str) -> None:
    made = featurizer.load(str(golden.FOLDER / "tiny_llama_text"), pooling=pooling)
    assert made.name == name
    assert not made.model.training
    assert not any(weight.requires_grad for weight in made.model.parameters())


def test_the_embedded_model_is_called_tiny() -> None:
    assert featurizer.load("lossbench:tiny").name == "tiny"


def test_a_folder_without_weights_is_said(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"The featurizer .* of MAUVE cannot be loaded"):
        featurizer.load(str(tmp_path))


def test_the_featurizer_is_read_only_and_unchanged_by_use() -> None:
    made = featurizer.load("lossbench:tiny")
    before = {name: weight.clone() for name, weight in made.model.state_dict().items()}
    made.features(made.encode(["Anna has 3 pens.", "Ben"]))
    assert not any(weight.requires_grad for weight in made.model.parameters())
    assert not made.model.training
    assert all(torch.equal(before[name], weight) for name, weight in made.model.state_dict().items())


def test_no_texts_have_no_features() -> None:
    assert featurizer.load("lossbench:tiny").features([]).shape == (0, 128)
