import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.step_plan import StepPlan

plans = st.builds(
    StepPlan,
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60).map(tuple),
    batch_size=st.integers(1, 7),
    accumulate=st.integers(1, 4),
    seed=st.integers(0, 5),
    group_by_length=st.booleans(),
)


@given(plans, st.integers(0, 3))
def test_every_example_comes_once_an_epoch(plan: StepPlan, epoch: int):
    first = epoch * plan.steps_per_epoch
    seen = Counter(i for n in range(first, first + plan.steps_per_epoch) for batch in plan.step(n) for i in batch)
    assert seen == Counter(range(len(plan.lengths)))


@given(plans, st.integers(0, 100))
def test_no_step_is_empty_or_larger_than_asked(plan: StepPlan, number: int):
    step = plan.step(number)
    assert 1 <= len(step) <= plan.accumulate
    assert all(1 <= len(batch) <= plan.batch_size for batch in step)


@given(plans, st.integers(0, 100))
def test_accumulation_only_cuts_a_step_into_pieces(plan: StepPlan, number: int):
    whole = StepPlan(plan.lengths, plan.step_size, 1, plan.seed, plan.group_by_length)
    assert sum(plan.step(number), ()) == sum(whole.step(number), ())


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [sum(StepPlan((1,) * 50, 50, 1, seed).step(epoch), ()) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_grouping_by_length_saves_padding_and_keeps_the_order_random():
    rng = random.Random(0)
    lengths = tuple(rng.randint(20, 200) for _ in range(640))

    def padded(plan: StepPlan) -> int:
        steps = [plan.step(number)[0] for number in range(plan.steps_per_epoch)]
        return sum(len(step) * max(lengths[i] for i in step) for step in steps)

    random_order, grouped = (StepPlan(lengths, 16, 1, 0, grouping) for grouping in (False, True))
    assert padded(grouped) < 1.1 * sum(lengths) < 1.5 * sum(lengths) < padded(random_order)
    longest = [max(lengths[i] for i in grouped.step(number)[0]) for number in range(40)]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)
