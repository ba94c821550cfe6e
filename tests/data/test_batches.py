import torch
from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.batches import IGNORED, StepDataset, collate
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample

LONG = TokenizedExample("long", [1, 10, 11, 12, 2], target_start=3)
SHORT = TokenizedExample("short", [1, 20, 2], target_start=2)


def test_labels_are_the_next_tokens_of_each_scope():
    batch = collate([LONG, SHORT])
    x = IGNORED
    assert batch.labels["sequence"].tolist() == [[10, 11, 12, 2, x], [20, 2, x, x, x]]
    assert batch.labels["answer"].tolist() == [[x, x, 12, 2, x], [x, 2, x, x, x]]
    assert batch.attention_mask.tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert batch.ids == ("long", "short")


def test_padding_with_the_eos_token_hides_no_label():
    assert torch.equal(collate([LONG, SHORT], pad_id=2).labels["answer"], collate([LONG, SHORT]).labels["answer"])


def test_the_first_token_of_a_text_has_nothing_to_predict_it():
    assert collate([TokenizedExample("a", [5, 6], 0)]).labels["answer"].tolist() == [[6, IGNORED]]


def test_a_step_counts_the_valid_tokens_of_all_its_micro_batches():
    steps = StepDataset([LONG, SHORT], StepPlan((5, 3), 1, 2, 0), last=1)
    (step,) = [steps[i] for i in range(len(steps))]
    assert len(step.batches) == 2
    assert step.normalizer == {"answer": 3, "sequence": 6}


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 20))
def test_the_ranks_together_have_the_step_and_each_knows_all_of_its_tokens(
    batch_size: int, accumulate: int, world: int, number: int
):
    examples = [TokenizedExample(f"{n}", [1] * (2 + n % 5), target_start=n % 4) for n in range(11)]
    plan = StepPlan(tuple(len(e.input_ids) for e in examples), batch_size, accumulate, 0, world_size=world)
    shares = [StepDataset(examples, plan, last=21, rank=rank)[number] for rank in range(world)]
    assert len({len(share.batches) for share in shares}) == 1
    ids = sorted(id for share in shares for batch in share.batches for id in batch.ids)
    assert ids == sorted(examples[i].id for micro_batch in plan.step(number) for i in micro_batch)
    for scope in ("answer", "sequence"):
        labelled = sum(int((b.labels[scope] != IGNORED).sum()) for share in shares for b in share.batches)
        assert {share.normalizer[scope] for share in shares} == {max(1, labelled)}


def test_a_step_is_the_same_wherever_training_begins():
    examples = [TokenizedExample(f"{n}", [1] * (2 + n % 5), target_start=1) for n in range(11)]
    plan = StepPlan(tuple(len(e.input_ids) for e in examples), 2, 2, 0)
    whole, rest = StepDataset(examples, plan, last=9), StepDataset(examples, plan, last=9, first=4)
    assert [step.batches[0].ids for step in rest] == [whole[number].batches[0].ids for number in range(4, 9)]
    assert [step.number for step in rest] == [4, 5, 6, 7, 8]
