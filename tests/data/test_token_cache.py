from pathlib import Path

import pytest

from lossbench.data import token_cache
from lossbench.data.example import Example
from lossbench.data.tokens import tokenize
from tests.models_at_hand import byte_tokenizer

EXAMPLES = [Example("a", "Q: 1+1\nA:", " 2"), Example("b", "", "text 🙂")]


class Counting:
    """A tokenizer that counts how often it is asked for offsets, which is once a batch."""

    def __init__(self) -> None:
        self.tokenizer, self.calls = byte_tokenizer(), 0

    def __call__(self, *arguments, **options):
        self.calls += "return_offsets_mapping" in options
        return self.tokenizer(*arguments, **options)

    def __getattr__(self, name: str):
        return getattr(self.tokenizer, name)


def test_the_same_texts_are_tokenised_once(tmp_path: Path):
    tokenizer = Counting()
    first = tokenize(EXAMPLES, tokenizer, 100, cache=tmp_path)
    assert tokenize(EXAMPLES, tokenizer, 100, cache=tmp_path) == first == tokenize(EXAMPLES, byte_tokenizer(), 100)
    assert tokenizer.calls == 1


def test_window_and_eos_are_applied_to_what_was_stored(tmp_path: Path):
    tokenizer = Counting()
    tokenize(EXAMPLES, tokenizer, 100, cache=tmp_path)
    for options in ({"max_length": 12}, {"max_length": 100, "ends_with_eos": False}):
        assert tokenize(EXAMPLES, tokenizer, cache=tmp_path, **options) == tokenize(
            EXAMPLES, byte_tokenizer(), **options
        )
    assert tokenizer.calls == 1


@pytest.mark.parametrize(
    "other",
    [
        [Example("a", "Q: 1+1\nA: ", "2"), EXAMPLES[1]],  # the same text, another boundary
        [Example("a", "Q: 1+1\nA:", " 3"), EXAMPLES[1]],
        EXAMPLES[:1],
        EXAMPLES[::-1],
    ],
)
def test_other_texts_have_another_key(other: list[Example]):
    assert token_cache.key(other, byte_tokenizer()) != token_cache.key(EXAMPLES, byte_tokenizer())


def test_another_tokenizer_has_another_key_and_another_name_has_not():
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["apple"])
    assert token_cache.key(EXAMPLES, tokenizer) != token_cache.key(EXAMPLES, byte_tokenizer())
    renamed = [Example(f"{e.id}x", e.prompt, e.target) for e in EXAMPLES]
    assert token_cache.key(renamed, byte_tokenizer()) == token_cache.key(EXAMPLES, byte_tokenizer())


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str):
    expected = tokenize(EXAMPLES, byte_tokenizer(), 100, cache=tmp_path)
    (file,) = (tmp_path / "tokens").iterdir()
    whole = file.read_bytes()
    at = whole.index(b"ids.npy") + 150  # inside the numbers of the first array
    flipped = whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
    file.write_bytes({"cut": whole[: len(whole) // 2], "flip": flipped, "empty": b"", "other": b"PK nonsense"}[damage])
    assert tokenize(EXAMPLES, byte_tokenizer(), 100, cache=tmp_path) == expected
    assert file.read_bytes() == whole
    assert [found.name for found in file.parent.iterdir()] == [file.name]


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path):
    (tmp_path / "tokens").write_text("a file where a folder should be")
    assert tokenize(EXAMPLES, byte_tokenizer(), 100, cache=tmp_path) == tokenize(EXAMPLES, byte_tokenizer(), 100)


def test_the_folder_is_the_configured_one_or_the_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LOSSBENCH_CACHE", str(tmp_path))
    assert token_cache.folder(None) == tmp_path
    assert token_cache.folder("~/here") == Path("~/here").expanduser()
    monkeypatch.delenv("LOSSBENCH_CACHE")
    assert token_cache.folder(None) == Path("~/.cache/lossbench").expanduser()
