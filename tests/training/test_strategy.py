import pytest

from lossbench import app
from lossbench.errors import ConfigError
from lossbench.training.objective import create_objective
from lossbench.training.strategy import check_strategy

GIANTS = ("llama2_7b", "llama2_13b")


@pytest.mark.parametrize("trainer", ["ddp", "fsdp", "deepspeed"])
@pytest.mark.parametrize("model", GIANTS)
def test_every_strategy_composes_with_large_models(trainer: str, model: str):
    found = app.compose(f"trainer={trainer}", f"model={model}").trainer
    assert found.strategy == trainer
    assert found.devices > 1 and found.accumulate % found.devices == 0


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("trainer=deepspeed",), "trainer=fsdp shares weights, gradients and moments"),
        (("trainer=fsdp", "loss=psft"), "loss=psft needs old_log_probs"),
        (("trainer=fsdp", "loss=token_order_prediction"), "needs head_logits"),
        (("trainer=fsdp", "optimizer.ema_decay=0.9"), "ema_decay does not work"),
    ],
)
def test_what_a_strategy_cannot_do_is_said_before_work(overrides: tuple[str, ...], sentence: str):
    config = app.compose(*overrides)
    with pytest.raises(ConfigError, match=sentence):
        check_strategy(config, create_objective(config.loss))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ("trainer.devices=2",),
            r"accumulate=1 forward passes of a step cannot be shared evenly by trainer\.devices=2",
        ),
        (("trainer.tokens_per_step=100", "trainer.accumulate=2"), "leave trainer.accumulate=2 at 1"),
    ],
)
def test_a_step_that_cannot_be_shared_is_refused(overrides: tuple[str, ...], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        app.compose(*overrides)
