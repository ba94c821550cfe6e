import re
from itertools import accumulate, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lossbench.data.example import Example
from lossbench.data.task import Notes
from lossbench.data.tokens import tokenize, with_tokens
from lossbench.errors import DataError
from tests.models_at_hand import BOS, EOS, byte_tokenizer
from tests.real_data import real_data

TOKENIZER = byte_tokenizer()


def test_the_prompt_ends_exactly_where_the_target_begins():
    (found,) = tokenize([Example("a", "Q: 1+1\nA:", " 2")], TOKENIZER, 100)
    assert found.input_ids[0] == BOS
    assert found.input_ids[-1] == EOS
    assert TOKENIZER.decode(found.input_ids[1 : found.target_start]) == "Q: 1+1\nA:"
    assert TOKENIZER.decode(found.input_ids[found.target_start : -1]) == " 2"


def test_no_eos_where_a_target_is_cut_out_of_a_longer_text():
    (found,) = tokenize([Example("a", "", "text")], TOKENIZER, 100, ends_with_eos=False)
    assert found.input_ids[-1] != EOS
    assert found.target_start == 1


def test_a_tokenizer_that_adds_no_bos_gets_none():
    (found,) = tokenize([Example("a", "Q", "A")], byte_tokenizer(adds_bos=False), 100)
    assert BOS not in found.input_ids


def test_a_long_prompt_loses_its_beginning_but_neither_bos_nor_target():
    (found,) = tokenize([Example("a", "0123456789", "ab")], TOKENIZER, 8)
    assert found.truncated
    assert found.input_ids[0] == BOS
    assert TOKENIZER.decode(found.input_ids[1:-1]) == "6789ab"
    assert found.target_start == 5


def test_a_target_longer_than_the_window_is_refused_by_name():
    with pytest.raises(DataError, match=r"ex-7: its target alone is 9 tokens long, but .* must fit into 8"):
        tokenize([Example("ex-7", "Q", "12345678")], TOKENIZER, 8)


@pytest.mark.parametrize(("prompt", "target"), [("Q", ""), ("", "x")])
def test_an_example_whose_labels_are_all_ignored_is_refused(prompt: str, target: str):
    with pytest.raises(
        DataError, match=rf"a: no token of the target '{target}' can be predicted .* labels are ignored"
    ):
        tokenize([Example("a", prompt, target)], byte_tokenizer(adds_bos=False), 8, ends_with_eos=False)


@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_any_text_comes_back_from_its_tokens(prompt: str, target: str):
    prompt, target = (part.encode(errors="ignore").decode() for part in (prompt, target))
    (found,) = tokenize([Example("a", prompt, target or "x")], TOKENIZER, 500)
    assert TOKENIZER.decode(found.input_ids[1 : found.target_start]) == prompt
    assert TOKENIZER.decode(found.input_ids[found.target_start : -1]) == (target or "x")


PROMPTS = ("", "Q: 1+1\nA:", "Answer: ", "Answer:\n", "naïve café — 3 €\nAnswer:", "🙂 Answer: ", "a\t", "word")
TARGETS = (
    "5", " 5", "12,0", " There are 12.", " <<3*4=12>>12\n#### 12", "<<3*4=12>>", "A", "\nB", " 🙂🙂 ok", "é", "  two",
)  # fmt: skip
REAL = ("gpt2", "gpt-neox", "falcon", "llama2", "smollm2", "qwen3")


def token_bytes(tokens: list[str], *, sentencepiece: bool) -> list[int]:
    """How many bytes of the text each token is, from its spelling in the vocabulary: no use of offsets."""
    found = []
    for token in tokens:
        if not sentencepiece:
            found.append(len(token))  # byte-level: a letter a byte
        elif re.fullmatch("<0x[0-9A-F]{2}>", token):
            found.append(1)
        else:
            found.append(len(token.replace("▁", " ").encode()))
    return found


@pytest.mark.parametrize("name", REAL)
def test_the_target_begins_with_the_token_that_holds_its_first_byte(name: str):
    tokenizer = AutoTokenizer.from_pretrained(real_data(f"tokenizers/{name}"))
    examples = [Example(f"{p!r} {t!r}", p, t) for p, t in product(PROMPTS, TARGETS) if p or tokenizer.bos_token]
    tokens = (
        tokenize(examples, tokenizer, 500, ends_with_eos=False)
        if name == "llama2"
        else tokenize(examples, tokenizer, 500)
    )
    for example, found in zip(examples, tokens, strict=True):
        bos = int(name == "llama2")
        eos = int(name != "llama2")
        assert (found.input_ids[0] == tokenizer.bos_token_id) == bool(bos) or not example.prompt
        ids = found.input_ids[bos : len(found.input_ids) - eos]
        ends = list(accumulate(token_bytes(tokenizer.convert_ids_to_tokens(ids), sentencepiece=name == "llama2")))
        added = ends[-1] - len((example.prompt + example.target).encode())  # SentencePiece puts a space in front
        assert added == bos
        beginning = len(example.prompt.encode()) + added if example.prompt else 0
        assert found.target_start - bos == next(i for i, end in enumerate(ends) if end > beginning), example.id


@pytest.mark.parametrize("name", REAL)
def test_bos_is_there_once_where_the_tokenizer_adds_it_and_eos_is_learned(name: str):
    tokenizer = AutoTokenizer.from_pretrained(real_data(f"tokenizers/{name}"))
    (found,) = tokenize([Example("a", "Question: How many?\nAnswer:", " 12")], tokenizer, 500)
    assert found.input_ids[-1] == tokenizer.eos_token_id
    starts_with_bos = tokenizer.bos_token_id is not None and found.input_ids[0] == tokenizer.bos_token_id
    assert starts_with_bos == (name == "llama2")
    assert found.input_ids[1:-1].count(tokenizer.bos_token_id) == 0


def test_progress_counts_the_texts():
    seen: list[tuple[int, int]] = []
    examples = [Example(str(i), "Q", "A") for i in range(2500)]
    tokenize(examples, TOKENIZER, 10, on_progress=lambda done, total, speed: seen.append((done, total)))
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]


def test_an_example_that_comes_with_tokens_keeps_them():
    prepared = Example("a", "", "", meta={"input_ids": [5, 6, 7], "target_start": 2})
    text = Example("b", "Q", "A")
    found = tokenize([prepared, text], TOKENIZER, 10)
    assert (found[0].input_ids, found[0].target_start) == ([5, 6, 7], 2)
    assert found[1:] == tokenize([text], TOKENIZER, 10)


def test_a_target_longer_than_the_window_can_be_left_out_and_the_rest_stays_together():
    examples = [Example("a", "Q", "x" * 30), Example("b", "Q", "short"), Example("c", "Q", "y" * 40)]
    tokens = tokenize(examples, byte_tokenizer(), 20, skip_too_long=True)
    assert [row.id for row in tokens] == ["b"]
    assert with_tokens(examples, tokens) == [examples[1]]
    notes = Notes()
    notes.count_too_long("train", 3, 1, 20)
    assert notes.counts == {"train_too_long": 2}
    assert "2 of 3 examples of train are left out (dataset.skip_bad=true)" in notes.sentences[0]
    with pytest.raises(DataError, match="All 3 targets of train have more than 20 tokens"):
        notes.count_too_long("train", 3, 0, 20)
