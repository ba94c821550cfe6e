import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lossbench import app
from lossbench.errors import ConfigError, ModelError
from lossbench.models.load import add_peft, context_window, load
from lossbench.models.locate import EMBEDDED, folder_of
from tests.models_at_hand import byte_tokenizer, tiny_llama


def test_the_embedded_model_is_an_ordinary_small_checkpoint():
    folder = EMBEDDED / "tiny"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4_000_000
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float16
    assert len(AutoTokenizer.from_pretrained(folder)) == model.config.vocab_size
    assert json.loads((folder / "pretraining.json").read_text())["script"] == "scripts/pretrain_tiny.py"


def test_the_embedded_model_knows_its_words():
    model, tokenizer = load(app.compose().model)
    ids = tokenizer(
        "Question: Each box holds 3 pens. Ava has 4 boxes. How many pens are there in all?", return_tensors="pt"
    )
    with torch.no_grad():
        nll = model(**ids, labels=ids["input_ids"]).loss
    assert nll < 2.5
    assert model.dtype == torch.float32
    assert context_window(model) == 512


def test_every_tokenizer_byte_round_trips():
    _, tokenizer = load(app.compose().model)
    text = "Zürich: 3 × 4 = 12 ½ 😀\n\ttabs  and  spaces"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path):
    tiny_llama(vocabulary=100).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"258 tokens, but the model's embedding only 100 rows"):
        load(app.compose("model=hf", f"model.path={tmp_path}").model)


def test_lora_trains_only_what_it_adds():
    tuned = add_peft(tiny_llama(), app.compose("peft=lora").peft)
    names = [name for name, weight in tuned.named_parameters() if weight.requires_grad]
    assert names
    assert all("lora_" in name for name in names)


def test_lora_on_modules_that_do_not_exist_names_those_that_do():
    with pytest.raises(ConfigError, match=r"whose linear modules are down_proj, .*: it has no query"):
        add_peft(tiny_llama(), app.compose("peft=lora", "peft.target_modules=[query]").peft)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("lossbench:huge", r"the package holds no model 'huge'"),
        ("/no/such/folder", r"no folder on this machine"),
        ("./nowhere", r"no folder on this machine"),
        (".", r"folder without config\.json"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_sentence(
    path: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=sentence):
        folder_of(path)


def test_owner_and_name_are_a_hub_id():
    assert folder_of("meta-llama/Llama-2-7b-hf") is None
