from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.training.stopping import enough_after


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.lists(st.none() | st.sampled_from([0.1, 0.5, 0.6, 0.9]), max_size=9),
    st.integers(1, 4),
    st.none() | st.just(0.5),
)
def test_a_training_ends_when_the_best_is_old(values, patience, start):
    measured = [value for value in (start, *values) if value is not None]
    age = len(measured) - 1 - measured.index(max(measured)) if measured else 0
    records = [{"accuracy": {"val": value}} for value in values]
    ends = bool(values) and values[-1] is not None and age >= patience
    assert enough_after(patience, start)(records) == ends
