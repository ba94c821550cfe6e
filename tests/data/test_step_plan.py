from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.step_plan import StepPlan

plans = st.builds(
    StepPlan,
    examples=st.integers(1, 60),
    batch_size=st.integers(1, 7),
    accumulate=st.integers(1, 4),
    seed=st.integers(0, 5),
)


@given(plans, st.integers(0, 3))
def test_every_example_comes_once_an_epoch(plan: StepPlan, epoch: int):
    first = epoch * plan.steps_per_epoch
    seen = Counter(i for n in range(first, first + plan.steps_per_epoch) for batch in plan.step(n) for i in batch)
    assert seen == Counter(range(plan.examples))


@given(plans, st.integers(0, 100))
def test_no_step_is_empty_or_larger_than_asked(plan: StepPlan, number: int):
    step = plan.step(number)
    assert 1 <= len(step) <= plan.accumulate
    assert all(1 <= len(batch) <= plan.batch_size for batch in step)


@given(plans, st.integers(0, 100))
def test_accumulation_only_cuts_a_step_into_pieces(plan: StepPlan, number: int):
    whole = StepPlan(plan.examples, plan.batch_size * plan.accumulate, 1, plan.seed)
    assert sum(plan.step(number), ()) == sum(whole.step(number), ())


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [sum(StepPlan(50, 50, 1, seed).step(epoch), ()) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4
