import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lossbench.data.example import Example
from lossbench.data.tokens import tokenize
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
    with pytest.raises(DataError, match=rf"a: no token of the target '{target}' can be predicted .* labels are ignored"):
        tokenize([Example("a", prompt, target)], byte_tokenizer(adds_bos=False), 8, ends_with_eos=False)


@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_any_text_comes_back_from_its_tokens(prompt: str, target: str):
    prompt, target = (part.encode(errors="ignore").decode() for part in (prompt, target))
    (found,) = tokenize([Example("a", prompt, target or "x")], TOKENIZER, 500)
    assert TOKENIZER.decode(found.input_ids[1 : found.target_start]) == prompt
    assert TOKENIZER.decode(found.input_ids[found.target_start : -1]) == (target or "x")


@pytest.mark.parametrize("name", ["gpt2", "gpt-neox", "falcon", "llama2", "smollm2", "qwen3"])
def test_real_tokenizers_keep_the_answer_whole(name: str):
    tokenizer = AutoTokenizer.from_pretrained(real_data(f"tokenizers/{name}"))
    example = Example("a", "Question: How many apples?\nAnswer:", " There are <<3*4=12>>12 apples.\n#### 12")
    (found,) = tokenize([example], tokenizer, 500)
    ends_with_eos = found.input_ids[-1] == tokenizer.eos_token_id
    target = found.input_ids[found.target_start : len(found.input_ids) - ends_with_eos]
    assert tokenizer.decode(target, clean_up_tokenization_spaces=False).strip() == example.target.strip()
    starts_with_bos = tokenizer.bos_token_id is not None and found.input_ids[0] == tokenizer.bos_token_id
    assert starts_with_bos == (name == "llama2")
