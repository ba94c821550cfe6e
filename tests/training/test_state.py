import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from lossbench.training.state import CheckpointError, DamagedError, read_state, write_state

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), trees, max_size=4))
def test_plain_state_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, state: dict):
    file = tmp_path_factory.mktemp("state") / "state.safetensors"
    write_state(file, state)
    assert read_state(file) == state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.float64])
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype):
    weight = torch.randn(3, 4).to(dtype)
    state = {"a": {0: weight}, "transposed": weight.t(), "view": weight[1:], "none": weight[:0], "one": weight[0, 0]}
    write_state(tmp_path / "state.safetensors", state)
    found = read_state(tmp_path / "state.safetensors")
    assert torch.equal(found["a"][0], weight) and found["a"][0].dtype == dtype
    for name in ("transposed", "view", "none", "one"):
        assert torch.equal(found[name], state[name]) and found[name].shape == state[name].shape


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, place: int, change: int):
    file = tmp_path_factory.mktemp("state") / "state.safetensors"
    state = {"weight": torch.arange(100.0), "numbers": [1, 2.5, "x"]}
    write_state(file, state)
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= change
    file.write_bytes(content)
    try:
        found = read_state(file)
    except DamagedError:
        return
    # what a change of white space or of the order of the header's keys leaves is the state itself
    assert found["numbers"] == state["numbers"] and torch.equal(found["weight"], state["weight"])


def test_every_cut_is_noticed(tmp_path: Path):
    file = tmp_path / "state.safetensors"
    write_state(file, {"weight": torch.arange(10.0)})
    content = file.read_bytes()
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        with pytest.raises(DamagedError):
            read_state(file)


def test_another_kind_of_file_is_refused_and_nothing_in_it_is_run(tmp_path: Path):
    file = tmp_path / "state.safetensors"
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(DamagedError, match="not of the format"):
        read_state(file)
    file.write_bytes(pickle.dumps(_Trap()))
    with pytest.raises(DamagedError, match="cannot be read"):
        read_state(file)


class _Trap:
    def __reduce__(self) -> tuple:
        return (pytest.fail, ("a checkpoint was unpickled",))


def test_the_old_file_stays_when_the_new_one_cannot_be_written(tmp_path: Path):
    file = tmp_path / "state.safetensors"
    write_state(file, {"number": 1})
    (tmp_path / ".state.safetensors.tmp").mkdir()  # in the way
    with pytest.raises(CheckpointError, match="The one before it is still there"):
        write_state(file, {"number": 2})
    assert read_state(file) == {"number": 1}


def test_what_json_and_tensors_cannot_hold_is_refused(tmp_path: Path):
    with pytest.raises(TypeError, match="a/b is a set"):
        write_state(tmp_path / "state.safetensors", {"a": {"b": {1}}})
