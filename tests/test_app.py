"""The command line as a user types it: what it composes, and what it says when it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lossbench import app, resources

ROOT = Path(__file__).parents[1]
LOSSES = sorted(file.stem for file in (resources.folder("conf") / "loss").glob("*.yaml") if file.stem != "custom")
ASK_FOR = {"model=hf": "model.path=a/b", "loss=custom": "loss._target_=a.B"}  # options with a key to fill in
OPTIONS = [
    f"{folder.name}={file.stem}"
    for folder in sorted(resources.folder("conf").iterdir())
    if folder.is_dir()
    for file in sorted(folder.glob("*.yaml"))
]


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
    )


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("loss=focall", "loss=focall is no configuration. Did you mean 'focal'"),
        ("model=llama9", "model=llama9 is no configuration. Did you mean"),
        ("dataset=gsm8", "dataset=gsm8 is no configuration. Did you mean 'gsm8k'?"),
        ("trainer.max_stepz=3", "Unknown key trainer.max_stepz. Did you mean 'trainer.max_steps'"),
        ("trainer.max_steps=abc", "trainer.max_steps='abc' cannot be used"),
        ("model=hf", "model.path has no value; pass model.path=VALUE."),
        ("hydra.launcher.worker=3", "Unknown key hydra.launcher.worker. Did you mean 'hydra.launcher.workers'"),
        ("loss.terms={a: {weight: 1}}", "loss.terms.a is not there to be set; +loss.terms.a=VALUE adds it."),
        ("hydra/launcher=slurm", "hydra/launcher=slurm starts the runs of a sweep; add -m."),
        ("hydra/sweeper=optuna", "hydra/sweeper=optuna chooses the runs of a sweep; add -m."),
        ("hydra.launcher.workers=2", "hydra.launcher.workers=2 is for sweeps; add -m."),
        ("sweep.dry_run=true", "sweep.dry_run=true is for sweeps; add -m."),
        ("sweep=demo", "sweep=demo describes many runs; add -m."),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argument: str, sentence: str):
    done = train(argument)
    assert done.returncode == 2
    assert done.stderr.startswith(f"lossbench: {sentence}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_composes_with_llama2_7b(loss: str):
    composed = app.compose(f"loss={loss}", "model=llama2_7b", "dataset=gsm8k")
    assert composed.loss.name == loss
    assert composed.peft.method == "lora"
    assert (composed.peft.r, composed.peft.alpha, composed.peft.dropout) == (8, 16, 0.05)
    assert composed.peft.target_modules == (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head",
    )  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_keeps_its_values_and_says_what_it_is(option: str):
    app.compose(option, *([ASK_FOR[option]] if option in ASK_FOR else []))
    group, _, name = option.partition("=")
    text = (resources.folder("conf") / group / f"{name}.yaml").read_text()
    assert text.startswith("# ")


def test_the_composed_job_is_shown_without_heavy_imports():
    code = (
        "import sys; sys.argv = ['train.py', '--cfg', 'job', 'loss=emo', 'model=llama2_7b', 'dataset=gsm8k']\n"
        "from lossbench.app import main\n"
        "main()\n"
        "heavy = {'torch', 'transformers', 'lightning', 'wandb', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "name: emo" in done.stdout


def test_a_study_of_the_sweeps_folder_can_be_chosen():
    done = train("-m", "sweep=demoo")
    assert (done.returncode, "sweep=demoo is no configuration. Did you mean 'demo'" in done.stderr) == (2, True)
