import pytest
import torch

from lossbench.models.compiled import compiled
from lossbench.models.load import add_peft
from tests.models.architectures import model_of
from tests.models.test_architectures import LORA, curve, tuning


@pytest.mark.parametrize("kind", ["Llama", *(pytest.param(k, marks=pytest.mark.slow) for k in ("GPT2", "GPTNeoX"))])
def test_a_compiled_body_trains_the_same(kind: str):
    plain = curve(tuning(model_of(kind)))
    calls = []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> object:  # what inductor would get, run as it is
        calls.append(len(graph.graph.nodes))
        return graph.forward

    model = model_of(kind)
    names = list(model.state_dict())
    with compiled(model, True, backend=backend):
        ours = curve(tuning(model))
        assert calls, "nothing was compiled"
        assert list(model.state_dict()) == names
    for a, b in zip(ours, plain, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    done = len(calls)
    with torch.no_grad():
        model.eval()(input_ids=torch.arange(11)[None])
    assert len(calls) == done, "afterwards the body runs as before"
    torch._dynamo.reset()


def test_a_body_behind_peft_is_compiled():
    model = add_peft(model_of("Llama"), LORA)
    with compiled(model, True, backend="eager"):
        assert model.get_base_model().model._compiled_call_impl is not None
    assert model.get_base_model().model._compiled_call_impl is None


def test_it_is_off_by_default():
    model = model_of("Llama")
    with compiled(model, False):
        assert model.model._compiled_call_impl is None


@pytest.mark.slow
def test_inductor_gives_the_same_curve():
    plain = curve(tuning(model_of("Llama")))
    model = model_of("Llama")
    with compiled(model, True):
        ours = curve(tuning(model))
    for a, b in zip(ours, plain, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    torch._dynamo.reset()
