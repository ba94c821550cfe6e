import shutil
from pathlib import Path

import pytest

from lossbench import app, identity
from lossbench.identity import identify


@pytest.mark.parametrize(
    "change",
    [
        "optimizer.lr=0.5",
        "loss.terms.cross_entropy.weight=0.5",
        "trainer.accumulate=2",
        "trainer.max_steps=7",
        "evaluation.limit=3",
        "dataset.difficulty=easy",
        "dataset.limit=10",
        "dataset.corrupt_targets=0.2",
        "evaluation=memorisation",
        "trainer.fused_head=false",  # differs from auto by rounding
        "peft=lora",
        "model.dtype=bfloat16",
        "model=hf model.path=somebody/else",
    ],
)
def test_what_can_change_a_number_makes_another_run(change: str):
    assert identify(app.compose(*change.split())).group != identify(app.compose()).group


@pytest.mark.parametrize(
    "change",
    [
        "paths.runs=/elsewhere",
        "study=another",
        "tracking.mode=disabled",
        "trainer.log_every=1",
        "dataset.skip_bad=true",
        "paths.cache=/elsewhere",
        "trainer.progress=false",
        "model.name=renamed",
        "loss.name=renamed",
        "peft.r=64",  # without LoRA
    ],
)
def test_what_cannot_change_a_number_leaves_the_run_as_it_is(change: str):
    assert identify(app.compose(change)).id == identify(app.compose()).id


def test_a_seed_changes_the_run_but_not_its_group():
    one, two = identify(app.compose("seed=1")), identify(app.compose("seed=2"))
    assert (one.id != two.id, one.group == two.group) == (True, True)


def test_local_data_counts_by_content_not_by_place(tmp_path: Path):
    for name, text in (("a", "{}\n"), ("b", "{}\n"), ("c", "{} \n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text(text)
    same, copy, other = (
        identify(app.compose("dataset=gsm8k", f"dataset.path={tmp_path / name}")).id for name in ("a", "b", "c")
    )
    assert same == copy != other


def test_the_name_is_short_and_safe_in_a_path():
    found = identify(app.compose("model.name=" + "x" * 60, "seed=12"))
    assert len(found.name) <= 44
    assert found.name.startswith("cross_entropy-xxx")
    assert found.name.endswith("-s12")


def test_documenting_or_adding_a_loss_renames_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(identity.LOSSES, tmp_path / "losses")
    monkeypatch.setattr(identity, "LOSSES", tmp_path / "losses")
    before = identity.code_of_losses(["focal"])
    (tmp_path / "losses" / "families" / "mine.py").write_text(
        '"""Mine."""\nfrom ..registry import register\n\n\n@register("mine")\nclass Mine:\n    pass\n'
    )
    base = tmp_path / "losses" / "base.py"
    base.write_text("# a comment\n" + base.read_text())
    with_new_import_only = identity.code_of_losses(["focal"])
    (tmp_path / "losses" / "families" / "mine.py").unlink()
    assert identity.code_of_losses(["focal"]) == before
    base.write_text(base.read_text().replace("max(batch.n, 1)", "max(batch.n, 2)"))
    assert identity.code_of_losses(["focal"]) != before
    assert with_new_import_only == before


def test_names_of_registered_losses_are_found_in_the_source():
    assert identity.code_of_losses(["focal"]) != identity.code_of_losses(["cross_entropy"])


def test_mauve_and_samples_change_the_id_only_where_they_are_on():
    plain = identify(app.compose())
    assert identify(app.compose("evaluation.sample_temperature=0.5")) == plain
    on = {identify(app.compose("evaluation=mauve", *more)).id for more in ((), ("evaluation.mauve.tokens=64",))}
    sampled = {identify(app.compose("evaluation.samples=4", f"evaluation.sample_temperature={t}")).id for t in (0.5, 1)}
    assert len(on | sampled | {plain.id}) == 5
