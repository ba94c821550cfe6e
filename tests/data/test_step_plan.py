import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.step_plan import MicroBatch, StepPlan

plans = st.builds(
    StepPlan,
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60).map(tuple),
    batch_size=st.integers(1, 7),
    accumulate=st.integers(1, 4),
    seed=st.integers(0, 5),
    group_by_length=st.booleans(),
    tokens_per_step=st.none() | st.integers(1, 40),
)


def steps_of_epoch(plan: StepPlan, epoch: int) -> list[tuple[MicroBatch, ...]]:
    return [plan.step(number) for number in range(plan.first_step(epoch), plan.first_step(epoch + 1))]


@given(plans, st.integers(0, 3))
def test_every_example_comes_once_an_epoch(plan: StepPlan, epoch: int):
    seen = Counter(i for step in steps_of_epoch(plan, epoch) for batch in step for i in batch)
    assert seen == Counter(range(len(plan.lengths)))


@given(plans, st.integers(0, 100))
def test_no_step_is_empty_or_larger_than_asked(plan: StepPlan, number: int):
    step = plan.step(number)
    assert step
    assert all(1 <= len(batch) <= plan.batch_size for batch in step)
    if plan.tokens_per_step is None:
        assert len(step) <= plan.accumulate
    else:
        examples = sum(step, ())
        assert len(examples) == 1 or sum(plan.lengths[i] for i in examples) <= plan.tokens_per_step


@given(plans, st.integers(0, 100))
def test_accumulation_only_cuts_a_step_into_pieces(plan: StepPlan, number: int):
    whole = replace(plan, batch_size=plan.step_size, accumulate=1)
    assert sum(plan.step(number), ()) == sum(whole.step(number), ())


@given(plans, st.integers(0, 100), st.integers(1, 5))
def test_a_step_is_the_same_at_any_world_size(plan: StepPlan, number: int, world: int):
    shared = replace(plan, world_size=world)
    dealt = [shared.of_rank(number, rank) for rank in range(world)]
    assert Counter(sum(dealt, ())) == Counter(plan.step(number))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@given(plans, st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_a_step_does_not_depend_on_what_was_asked_before(plan: StepPlan, numbers: list[int]):
    assert [plan.step(number) for number in numbers] == [replace(plan).step(number) for number in numbers]


@given(plans, st.integers(0, 3))
def test_whole_epochs_have_all_of_their_steps(plan: StepPlan, epochs: int):
    assert plan.steps_in(epochs) == max(1, plan.first_step(epochs))
    assert plan.steps_in(epochs) <= plan.steps_in(epochs + 0.5) <= plan.steps_in(epochs + 1)


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [sum(StepPlan((1,) * 50, 50, 1, seed).step(epoch), ()) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_a_token_budget_is_nearly_filled():
    rng = random.Random(0)
    lengths = tuple(rng.randint(5, 20) for _ in range(400))
    plan = StepPlan(lengths, 4, 1, 0, tokens_per_step=100)
    *whole, _ = steps_of_epoch(plan, 0)
    assert all(80 < sum(lengths[i] for i in sum(step, ())) <= 100 for step in whole)


def test_grouping_by_length_saves_padding_and_keeps_the_order_random():
    rng = random.Random(0)
    lengths = tuple(rng.randint(20, 200) for _ in range(640))

    def padded(plan: StepPlan) -> int:
        steps = [step[0] for step in steps_of_epoch(plan, 0)]
        return sum(len(step) * max(lengths[i] for i in step) for step in steps)

    random_order, grouped = (StepPlan(lengths, 16, 1, 0, grouping) for grouping in (False, True))
    assert padded(grouped) < 1.1 * sum(lengths) < 1.5 * sum(lengths) < padded(random_order)
    longest = [max(lengths[i] for i in grouped.step(number)[0]) for number in range(40)]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)
