"""The corpora of the EMO paper: made rows where the text itself cannot be here, real ones where it is."""

import gzip
import json
from pathlib import Path

import pytest

from lossbench.data.language_modeling import LanguageModeling
from lossbench.errors import DataError
from tests.data.golden import source_task
from tests.real_data import real_data

CORPORA = ("wikitext2", "wikitext103", "ptb", "webtext", "writing_prompts", "ag_news")
LONG = " ".join(f"word{i}" for i in range(200))


def corpus(name: str, *overrides: str) -> LanguageModeling:
    task = source_task(f"dataset={name}", *overrides)
    assert isinstance(task, LanguageModeling)
    return task


def write(folder: Path, name: str) -> None:
    """One made text a split, in the files that each corpus comes in."""
    for split, short in (("train", "train"), ("validation", "valid"), ("test", "test")):
        text = f"{split} {LONG}"
        match name:
            case "wikitext2" | "wikitext103":
                (folder / f"wiki.{short}.tokens").write_text(f" \n = Title = \n \n {text} \n")
            case "ptb":
                (folder / f"ptb.{short}.txt").write_text(f" {text} \n")
            case "webtext":
                with gzip.open(folder / f"webtext.{short}.jsonl.gz", "wt") as file:
                    file.write(json.dumps({"id": 1, "text": text}) + "\n")
            case "writing_prompts":
                (folder / f"{short}.wp_source").write_text("[ WP ] Write .\n")
                (folder / f"{short}.wp_target").write_text(f"{text} <newline> The end .\n")
            case "ag_news" if split != "validation":
                rows = [{"text": f"{i} {text}", "label": 0} for i in range(20)]
                (folder / f"{split}.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("name", CORPORA)
def test_prefixes_and_continuations_have_the_papers_lengths(name: str, tmp_path: Path):
    write(tmp_path, name)
    task = corpus(name, f"dataset.path={tmp_path}")
    lengths = {"ptb": (5, 25), "writing_prompts": (35, 80), "ag_news": (10, 30)}.get(name, (20, 80))
    assert (task.prefix_words, task.continuation_words) == lengths
    assert task.continued_rows == (5000 if name in ("webtext", "writing_prompts") else 4000)
    found = task.continuations("test")[0]
    assert len(found.prompt.split(" ")) == lengths[0]
    assert len(found.target.split(" ")) - 1 == lengths[1]
    assert found.prompt + found.target in task.documents("test")[3 if name.startswith("wikitext") else 0].target


@pytest.mark.parametrize("name", CORPORA)
def test_every_split_has_its_own_text(name: str, tmp_path: Path):
    write(tmp_path, name)
    task = corpus(name, f"dataset.path={tmp_path}")
    for split in ("train", "test"):
        assert any(f"{split} word0" in example.target for example in task.examples(split))
    assert task.metrics == ("perplexity",)
    assert not task.ends_with_eos
    assert any("were published" in sentence for sentence in task.notes.sentences)


def test_stories_follow_their_prompts_and_have_line_breaks(tmp_path: Path):
    write(tmp_path, "writing_prompts")
    (story,) = corpus("writing_prompts", f"dataset.path={tmp_path}").documents("test")
    assert story.target.startswith("[ WP ] Write . test word0")
    assert story.target.endswith(" \n The end .")


def test_a_prompt_without_story_is_an_error(tmp_path: Path):
    write(tmp_path, "writing_prompts")
    (tmp_path / "test.wp_target").unlink()
    with pytest.raises(DataError, match=r"test\.wp_target does not exist"):
        corpus("writing_prompts", f"dataset.path={tmp_path}").documents("test")


def test_ag_news_validates_on_its_first_rows_under_the_seed_policy(tmp_path: Path):
    write(tmp_path, "ag_news")
    seed, clean = (
        [
            [e.id for e in corpus("ag_news", f"dataset.path={tmp_path}", f"dataset.split_policy={policy}").documents(s)]
            for s in ("validation", "train")
        ]
        for policy in ("seed", "clean")
    )
    assert seed == [["agnews-train-0"], [f"agnews-train-{i}" for i in range(1, 20)]]
    assert [len(part) for part in clean] == [2, 18]


def test_webtext_says_where_its_files_are():
    with pytest.raises(DataError, match=r"dataset\.path must name a folder .* https://openaipublic"):
        corpus("webtext").check_available()


def test_real_wikitext_trains_on_validation_where_there_is_no_train():
    task = corpus("wikitext2", f"dataset.path={real_data('datasets/wikitext-2')}")
    documents = {split: task.documents(split) for split in ("train", "validation", "test")}
    assert {split: len(found) for split, found in documents.items()} == {"train": 3384, "validation": 376, "test": 4358}
    assert any("There is no train split" in sentence for sentence in task.notes.sentences)
    assert any("4,358 rows, as published" in sentence for sentence in task.notes.sentences)
    assert not any("not comparable" in sentence for sentence in task.notes.sentences)


def test_passages_of_real_wikitext_are_its_text():
    task = corpus("wikitext2", f"dataset.path={real_data('datasets/wikitext-2')}")
    text = "".join(passage.target for passage in task.examples("test"))
    whole = (real_data("datasets/wikitext-2") / "test.txt").read_text()
    assert text.split() == whole.split()
    assert max(len(passage.target) for passage in task.examples("test")) <= 1000
    assert 900 <= len(task.continuations("test")) <= 1000
