"""A run's model as a folder that transformers loads, with the logits that the run's own model has."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from typer.testing import CliRunner

from lossbench import reevaluate
from lossbench.app import compose
from lossbench.cli import app
from lossbench.errors import ConfigError, DataError, ModelError
from lossbench.export import PROBE, TOLERANCE, _merged, export
from lossbench.models.load import add_peft
from lossbench.reevaluate import Wishes
from lossbench.run import run
from tests.models.architectures import ARCHITECTURES, KIND_OF, attention_of, model_of, settings
from tests.models.test_architectures import LORA, saved

QUICK = (
    "evaluation.limit=4", "evaluation.generate=false", "trainer.accelerator=cpu", "trainer.progress=false",
    "trainer.max_steps=2", "dataset.train_examples=20", "evaluation.validation_limit=4", "tracking.mode=disabled",
    "optimizer.lr=0.01",
)  # fmt: skip
HEAD_TOO = ("peft=lora", "peft.target_modules=[q_proj,lm_head]")
UNTIED = {"max_position_embeddings": 512}  # the task's examples are long in bytes
VARIANTS = {
    "full": (),  # the embedded model: head and embedding are one
    "lora": ("peft=lora",),
    "lora on a tied head": HEAD_TOO,
    "second head": ("loss=token_order_prediction",),
    "untied": None,
    "lora on an untied head": None,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run folder of a variant, trained once."""
    root, made = tmp_path_factory.mktemp("runs"), {}

    def of(variant: str) -> Path:
        if variant not in made:
            overrides = VARIANTS[variant]
            if overrides is None:
                base = root / "base"
                if not base.exists():
                    saved(model_of("Llama", **UNTIED), base)
                overrides = ("model=hf", f"model.path={base}", *(HEAD_TOO if "lora" in variant else ()))
            study = re.sub(r"\W", "_", variant)
            made[variant] = run(compose(f"paths.runs={root}", f"study={study}", *QUICK, *overrides))
        return made[variant]

    return of


def own_model(folder: Path) -> torch.nn.Module:
    model, _ = reevaluate._restored(reevaluate.find(str(folder)))
    return model


def logits(model: Any, tokenizer: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(**tokenizer(PROBE, return_tensors="pt", return_token_type_ids=False)).logits


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_transformers_loads_it_with_equal_logits(variant: str, merge: bool, trained: Any, tmp_path: Path):
    folder = trained(variant)
    made = export(str(folder), tmp_path / "out", merge=merge)
    assert made.kind == ("full" if "lora" not in variant else "merged" if merge else "adapter")
    tokenizer = AutoTokenizer.from_pretrained(made.folder)
    found = logits(AutoModelForCausalLM.from_pretrained(made.folder, dtype=torch.float32), tokenizer)
    expected = logits(own_model(folder), tokenizer)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert GenerationConfig.from_pretrained(made.folder).eos_token_id is not None or "untied" in variant
    names = {file.name for file in made.folder.iterdir()}
    assert {"README.md", "tokenizer.json", "generation_config.json"} <= names
    assert ("adapter_model.safetensors" if made.kind == "adapter" else "model.safetensors") in names
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")], "nothing temporary is left"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_lora_of_every_architecture_becomes_part_of_the_weights(kind: str, dtype: torch.dtype, tmp_path: Path):
    (name, *_) = (name for name, own in KIND_OF.items() if own == kind)
    targets = (*settings(name)["lora_target_modules"], "lm_head")
    tuned = add_peft(model_of(kind).to(dtype), LORA.model_copy(update={"target_modules": targets})).eval()
    with torch.no_grad():
        for weight_name, weight in tuned.named_parameters():
            if "lora_B" in weight_name:
                weight.normal_(std=0.1)
    ids = torch.arange(20).view(2, 10)
    with torch.no_grad():
        expected = tuned(input_ids=ids).logits
        with tuned.disable_adapter():
            without = tuned(input_ids=ids).logits
    _merged(tuned).save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype, attn_implementation=attention_of(kind)).eval()
    with torch.no_grad():
        found = again(input_ids=ids).logits
    largest = TOLERANCE[str(dtype).removeprefix("torch.")] * expected.abs().max()
    assert (found - expected).abs().max() <= largest < (without - expected).abs().max()


def test_training_is_in_it(trained: Any, tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(export(str(trained("lora")), tmp_path / "out", merge=True).folder)
    merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out"), tokenizer)
    untrained, _ = reevaluate._restored(reevaluate.find("lossbench:tiny"))
    assert (merged - logits(untrained, tokenizer)).abs().max() > 0.01


def test_a_tied_head_with_lora_parts_from_the_embedding(trained: Any, tmp_path: Path):
    merged = AutoModelForCausalLM.from_pretrained(
        export(str(trained("lora on a tied head")), tmp_path / "a", merge=True).folder
    )
    assert not merged.config.tie_word_embeddings
    assert not torch.equal(merged.get_output_embeddings().weight, merged.get_input_embeddings().weight)
    tied = AutoModelForCausalLM.from_pretrained(export(str(trained("lora")), tmp_path / "b", merge=True).folder)
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight


def test_an_adapter_is_small_and_names_its_base(trained: Any, tmp_path: Path):
    made = export(str(trained("lora on an untied head")), tmp_path / "out")
    weights = load_file(made.folder / "adapter_model.safetensors")
    assert weights and all("lora_" in name for name in weights)
    adapter = json.loads((made.folder / "adapter_config.json").read_text())
    assert Path(adapter["base_model_name_or_path"]).is_dir()
    assert any("set base_model_name_or_path" in sentence for sentence in made.notes)


def test_a_second_head_stays_behind_with_a_sentence(trained: Any, tmp_path: Path):
    made = export(str(trained("second head")), tmp_path / "out")
    assert any("second LM head" in sentence for sentence in made.notes)
    assert "second LM head" in (made.folder / "README.md").read_text()
    assert not any("second" in name for name in load_file(made.folder / "model.safetensors"))


def test_the_card_says_what_was_done(trained: Any, tmp_path: Path):
    folder = trained("lora")
    card = (export(str(folder), tmp_path / "out", merge=True).folder / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["license"] == "apache-2.0"
    assert front["library_name"] == "transformers"
    identity = json.loads((folder / "run.json").read_text())
    metrics = json.loads((folder / "result.json").read_text())["metrics"]
    for part in (
        "arithmetic", "cross_entropy", "| answer |", identity["id"], identity["versions"]["lossbench"], "LoRA",
        "r 8, alpha 16", f"{metrics['test/nll']:.6g}", "Apache-2.0", "learning rate 0.01", "val/nll",
    ):  # fmt: skip
        assert part in card, part
    assert str(tmp_path) not in card and str(folder.parent) not in card, "no place on this machine"


def test_lossbench_evaluates_what_it_exported(trained: Any, tmp_path: Path):
    folder = trained("lora")
    own = json.loads((folder / "result.json").read_text())["metrics"]["test/nll"]
    runs = (f"paths.runs={tmp_path / 'runs'}", *QUICK[:4], "trainer.threads=1")
    for merge in (True, False):
        made = export(str(folder), tmp_path / f"out-{merge}", merge=merge)
        found = reevaluate.evaluate(str(made.folder), Wishes(overrides=runs))
        assert found.metrics["test/nll"] == pytest.approx(own, rel=1e-5)


def test_an_adapter_is_not_trained_further_but_what_is_merged_is(trained: Any, tmp_path: Path):
    for merge in (False, True):
        made = export(str(trained("lora")), tmp_path / f"out-{merge}", merge=merge)
        config = compose(f"paths.runs={tmp_path / 'runs'}", *QUICK, "model=hf", f"model.path={made.folder}")
        if merge:
            assert json.loads((run(config) / "result.json").read_text())["status"] == "finished"
        else:
            with pytest.raises(ConfigError, match="which can be evaluated but not trained further"):
                run(config)


def test_the_command_line_says_where_it_is(trained: Any, tmp_path: Path):
    arguments = ["export", str(trained("full")), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"folder": str(tmp_path / "out"), "kind": "full", "notes": []}
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, DataError)
    assert "exists already, and nothing is overwritten" in str(again.exception)


def test_by_default_it_lies_in_the_runs_folder(trained: Any, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(trained("full"), copy)
    assert export(str(copy)).folder == copy / "export"


def test_what_is_no_trained_run_is_refused(trained: Any, tmp_path: Path):
    with pytest.raises(ConfigError, match="lossbench:tiny is no folder of a run that was trained"):
        export("lossbench:tiny", tmp_path / "out")
    copy = tmp_path / "copy"
    shutil.copytree(trained("full"), copy)
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace("trust_remote_code: false", "trust_remote_code: true"))
    with pytest.raises(ConfigError, match="never run from an export"):
        export(str(copy), tmp_path / "out")
    (copy / "result.json").unlink()
    with pytest.raises(DataError, match="has not finished"):
        export(str(copy), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_that_computes_something_else_is_discarded(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def forget(model: Any) -> Any:
        return model.unload()  # LoRA taken off instead of merged

    monkeypatch.setattr("lossbench.export._merged", forget)
    with pytest.raises(ModelError, match="logits differ by"):
        export(str(trained("lora")), tmp_path / "out", merge=True)
    assert list(tmp_path.iterdir()) == []


def test_sampling_parameters_without_sampling_do_not_stop_it(trained: Any, tmp_path: Path):
    base = tmp_path / "base"
    model = model_of("Llama", **UNTIED)
    saved(model, base)
    (base / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_p": 0.9}))
    folder = run(compose(f"paths.runs={tmp_path}", *QUICK, "model=hf", f"model.path={base}"))
    made = export(str(folder), tmp_path / "out")
    assert GenerationConfig.from_pretrained(made.folder).temperature == 0.6


def test_the_cache_is_on_again(trained: Any, tmp_path: Path):
    made = export(str(trained("full")), tmp_path / "out")
    assert json.loads((made.folder / "config.json").read_text())["use_cache"]
