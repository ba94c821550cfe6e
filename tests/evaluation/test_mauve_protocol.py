from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedModel

from lossbench.data.example import Example
from lossbench.errors import DataError
from lossbench.evaluation import mauve_protocol
from lossbench.evaluation.featurizer import Featurizer
from lossbench.evaluation.mauve_protocol import Cutter, MauveProtocol, flat, regrouped

EMO, MIXCE = MauveProtocol(protocol="emo"), MauveProtocol(protocol="mixce", tokens=27)
EXAMPLES = [Example("page-0", "one two", " three four five"), Example("page-1", "six seven", " eight nine ten")]


@pytest.fixture
def featurizer(llama: PreTrainedModel, tokenizer: Any) -> Featurizer:
    return Featurizer("small", llama, tokenizer)


def test_our_texts_join_without_a_gap_and_emo_s_have_two_spaces() -> None:
    samples = [" x y", " z"]
    assert mauve_protocol.human_texts(EXAMPLES)[0] == "one two three four five"
    assert mauve_protocol.model_texts(MauveProtocol(), EXAMPLES, samples) == ["one two x y", "six seven z"]
    assert mauve_protocol.model_texts(EMO, EXAMPLES, samples) == ["one two  x y", "six seven  z"]


def test_emo_writes_as_many_tokens_as_words_and_clusters_once(featurizer: Featurizer) -> None:
    assert mauve_protocol.new_tokens(EMO, EXAMPLES, [9, 11]) == 3
    assert mauve_protocol.new_tokens(MauveProtocol(), EXAMPLES, [9, 11]) == 11
    assert mauve_protocol.new_tokens(MauveProtocol(max_new_tokens=4), EXAMPLES, [9, 11]) == 4
    assert EMO.clusterings == (25,)
    assert EMO.label(featurizer) == "small,emo"
    assert MauveProtocol().label(featurizer) == "small"
    pieces = Cutter.of(EMO, featurizer, ["a"]).pieces(["word " * 300, "b"], 0)
    assert [len(group) for group in pieces] == [1, 1]  # nothing is dropped
    assert len(pieces[0][0]) == 256


def test_texts_are_cut_to_what_nine_in_ten_human_texts_reach(featurizer: Featurizer) -> None:
    human = ["x" * size for size in range(1, 21)]
    lengths = sorted(len(ids) for ids in featurizer.encode(human))
    cutter = Cutter.of(MauveProtocol(), featurizer, human)
    assert cutter.length == lengths[2]
    assert sum(length >= cutter.length for length in lengths) >= 18
    pieces = cutter.pieces(human, 0)
    assert {len(ids) for ids in flat(pieces)} == {cutter.length}
    assert pieces[0] == []


def test_mixce_windows_have_one_length_in_words_and_come_from_anywhere(
    featurizer: Featurizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mauve_protocol.MIXCE_WINDOWS == 10_000
    monkeypatch.setattr(mauve_protocol, "MIXCE_WINDOWS", 500)
    texts = [" ".join(f"w{n}" for n in range(70)) for _ in range(12)]
    cutter = Cutter.of(MIXCE, featurizer, texts)
    pieces = cutter.pieces(texts, 3)
    assert sum(map(len, pieces)) == 500
    assert pieces == cutter.pieces(texts, 3)
    assert pieces != cutter.pieces(texts, 4)
    words = {len(featurizer.tokenizer.decode(ids).split()) for ids in pieces[0]}
    assert words == {20}  # 27 tokens / 1.35
    with pytest.raises(DataError, match="compares 500 windows of 20 words a side, and there are only 50"):
        cutter.pieces(texts[:1], 0)


def test_regrouping_undoes_flattening() -> None:
    pieces = [[[1]], [], [[2], [3]]]
    assert regrouped(["a", "b", "c"], pieces) == [["a"], [], ["b", "c"]]
    assert flat(pieces) == [[1], [2], [3]]
