from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.example import Example
from lossbench.data.language_modeling import cut, passages


@given(st.text(alphabet="ab \n", max_size=300), st.integers(1, 40))
def test_cutting_loses_no_character_and_keeps_the_length(text: str, characters: int):
    pieces = cut(text, characters)
    assert "".join(pieces) == text
    assert all(len(piece) <= characters for piece in pieces)


def test_a_text_is_cut_before_a_space():
    assert cut("one two three", 8) == ["one two", " three"]
    assert cut("abcdefgh ij", 4) == ["abcd", "efgh", " ij"]


def test_lines_of_a_running_text_are_put_together():
    lines = [Example(f"l{i}", "", text) for i, text in enumerate([" \n", "one\n", "two\n", "three 4\n", " \n"])]
    found = passages(lines, 10, running_text=True)
    assert [passage.target for passage in found] == [" \none\ntwo\n", "three 4\n \n"]
    assert len({passage.id for passage in found}) == len(found)


def test_texts_of_their_own_are_not_put_together():
    found = passages([Example("a", "", "one"), Example("b", "", "two")], 100, running_text=False)
    assert [(passage.id, passage.target) for passage in found] == [("a-0", "one"), ("b-0", "two")]
