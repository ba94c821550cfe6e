import torch

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
