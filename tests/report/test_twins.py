import json

import pytest

from lossbench.report import assemble, twins
from tests.report.factory import write_run

NOW = 1_800_000_000.0
HOW = "write it again: .venv/bin/python -m tests.report.test_twins"


def copy():
    """What `same_gradient.json` must hold."""
    from lossbench import losses
    from lossbench.losses.equivalences import SAME_GRADIENT

    names = sorted({name for group in SAME_GRADIENT.values() for name, _ in group})
    defaults = {name: losses.info(name).defaults for name in names}
    return json.loads(json.dumps({"defaults": defaults, "groups": SAME_GRADIENT}))


def test_the_copy_equals_the_table_of_equivalences():
    assert json.loads(twins.FILE.read_text()) == copy(), HOW


def flat(term, **given):
    return {f"loss.terms.{term}.{key}": value for key, value in {"weight": 1.0, "scope": "answer", **given}.items()}


@pytest.mark.parametrize(
    "settings, gradient",
    [
        (flat("focal", gamma=0), "p - Y"),
        (flat("focal", gamma=2.0), "focal, gamma = 2"),
        (flat("focal"), "focal, gamma = 2"),  # the default
        (flat("focal", gamma=0, weight=3.0), "p - Y"),  # a factor changes no direction
        (flat("mae"), "p_t (p - Y)"),
        (flat("focal", gamma=1.0), None),
        (flat("focal", gamma=0, detach_weight=True), None),  # another loss, whatever it turns out to be
        (flat("focal", gamma=0, weight=-1.0), None),
        (flat("focal", gamma=0, loss="my.module:Loss"), None),
        ({**flat("focal", gamma=0), **flat("cross_entropy")}, None),
        ({}, None),
    ],
)
def test_a_loss_is_matched_by_its_parameters_and_its_defaults(settings, gradient):
    found = twins.gradient_of(settings)
    assert (found and found[0]) == gradient


def test_rows_with_one_gradient_are_named(tmp_path):
    for loss, given in (("cross_entropy", {}), ("focal", {"gamma": 0.0}), ("mae", {}), ("dft", {}), ("emo", {})):
        config = {"loss": {"terms": {loss: {"weight": 1.0, "scope": "answer", **given}}}}
        write_run(tmp_path, loss, 0, metrics={"test/em": 0.5}, config=config)
    (table,) = assemble([tmp_path], now=NOW).tables
    assert twins.twins(table) == [("cross_entropy", "focal"), ("dft", "mae")]
    assert "cross_entropy and focal have the same gradient" in twins.sentence(("cross_entropy", "focal"))


def test_other_settings_or_another_scope_are_no_twins(tmp_path):
    for loss, scope, steps in (("mae", "answer", 150), ("dft", "sequence", 150), ("mixce", "answer", 300)):
        given = {"eta": 0.0} if loss == "mixce" else {}
        config = {
            "loss": {"terms": {loss: {"weight": 1.0, "scope": scope, **given}}},
            "trainer": {"max_steps": steps},
        }
        write_run(tmp_path, loss, 0, metrics={"test/em": 0.5}, config=config)
    (table,) = assemble([tmp_path], now=NOW).tables
    assert twins.twins(table) == []


if __name__ == "__main__":
    twins.FILE.write_text(json.dumps(copy(), indent=1, sort_keys=True) + "\n")
