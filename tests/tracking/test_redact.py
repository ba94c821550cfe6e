import pytest

from lossbench.tracking.redact import redacted


def test_secrets_are_hidden_by_the_names_of_their_keys():
    config = {"hub_token": "hf_x", "api-key": "k", "tokenizer": "gpt2", "deep": [{"password": "p", "lr": 0.1}]}
    assert redacted(config) == {
        "hub_token": "***",
        "api-key": "***",
        "tokenizer": "gpt2",
        "deep": [{"password": "***", "lr": 0.1}],
    }
    assert redacted({"apiKey": "k", "credentials": ["a"], "token": 4, "secret": None}) == {
        "apiKey": "***", "credentials": "***", "token": 4, "secret": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["max_new_tokens", "tokenizer", "keyboard", "tokens_per_step", "monkey"])
def test_what_only_sounds_like_a_secret_stays(name: str):
    assert redacted({name: "abc"}) == {name: "abc"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hf_abcdefghijklmnopqrstuvwx", "***"),
        ("load from https://me:pass@host/data", "load from https://***@host/data"),
        ("sk-abcdefghijklmnopqrst and more", "*** and more"),
        ("hf_short", "hf_short"),
        ("mail me@host", "mail me@host"),
    ],
)
def test_secrets_are_hidden_by_their_looks(text: str, shown: str):
    assert redacted({"path": text}) == {"path": shown}


def test_values_of_secret_variables_are_hidden_wherever_they_stand(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATA_PASSWORD", "correct horse")
    monkeypatch.setenv("SOME_TOKEN", "1")
    assert redacted({"dataset": ["x=correct horse;y=1"]}) == {"dataset": ["x=***;y=1"]}
