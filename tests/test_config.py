import pytest

from lossbench import app, config
from lossbench.errors import ConfigError


def faults(**changes: object) -> str:
    plain = app.compose().model_dump()
    for key, value in changes.items():
        section, _, name = key.partition("__")
        (plain[section] if name else plain)[name or section] = value
    with pytest.raises(ConfigError) as caught:
        config.parse(plain)
    return str(caught.value)


def test_a_composed_configuration_survives_a_round_trip():
    composed = app.compose("loss=focal", "seed=3")
    assert config.parse(composed.model_dump(mode="json")) == composed


def test_an_unknown_key_is_named_with_the_nearest_right_one():
    assert faults(trainer__max_stepz=3) == (
        "Unknown key trainer.max_stepz=3. Did you mean 'trainer.max_steps' or 'trainer.batch_size' or "
        "'trainer.strategy'?"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer__lr", 0.0),
        ("optimizer__lr", float("nan")),
        ("trainer__batch_size", 0),
        ("trainer__precision", "fp8"),
        ("evaluation__split", "train"),
        ("seed", -1),
        ("study", "a/b"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_key(key: str, value: object):
    message = faults(**{key: value})
    assert f"{key.replace('__', '.')}={value!r} cannot be used" in message


def test_a_missing_key_is_named():
    assert "model.path is missing" in faults(model={"name": "x"})


def test_every_fault_is_reported_at_once():
    assert len(faults(optimizer__lr=-1, trainer__batch_size=0).splitlines()) == 2


def test_a_loss_without_terms_is_refused():
    assert "at least one term" in faults(loss={"name": "x", "terms": {}})


def test_lora_without_targets_is_refused():
    lora = {"method": "lora", "bits": None, "r": 8, "alpha": 16, "dropout": 0.0, "target_modules": []}
    assert "peft.target_modules" in faults(peft=lora)


def test_keys_cover_what_scripts_rely_on():
    assert set(
        [
            "study",
            "seed",
            "model.path",
            "dataset.path",
            "dataset.limit",
            "trainer.max_steps",
            "trainer.batch_size",
            "trainer.accumulate",
            "trainer.precision",
            "optimizer.lr",
            "evaluation.limit",
            "evaluation.batch_size",
            "paths.runs",
            "tracking.mode",
        ]
    ) <= set(config.keys())
