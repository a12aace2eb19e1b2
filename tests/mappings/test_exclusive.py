"""One mapper in several threads: no count is lost, and nothing of the lock is seen."""

import copy
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone

from reprogram.errors import ReprogramError
from reprogram.mappings.exclusive import _lock_of, _locks, exclusive
from reprogram.mappings.label_mapper import LabelMapper


def drawn(n=60):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 5)) + 2 * np.eye(5)[y], y


@pytest.mark.parametrize("name", ["flm", "blm", "blm+", "gaussian"])
def test_several_threads_may_teach_one_mapper(name):
    X, y = drawn(2000)
    whole = LabelMapper(name).fit(X, y)
    shared = LabelMapper(name).partial_fit(X[:1], y[:1], classes=[0, 1, 2])
    parts = np.array_split(np.arange(1, 2000), 160)
    start = threading.Barrier(8)

    def teach(number):
        start.wait()
        for part in parts[number::8]:
            shared.partial_fit(X[part], y[part])
            shared.predict(X[:3])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(teach, range(8)))
    assert shared.mapping_.statistics.n == 2000
    np.testing.assert_allclose(shared.weights_, whole.weights_, rtol=1e-4, atol=1e-6)


def test_the_lock_is_no_part_of_a_mapper():
    X, y = drawn()
    fitted = LabelMapper("blm").fit(X, y)
    assert fitted in _locks
    assert not any("lock" in name for name in (*vars(fitted), *fitted.get_params()))
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted), copy.copy(fitted)):
        np.testing.assert_array_equal(copied.predict_proba(X), fitted.predict_proba(X))
        copied.partial_fit(X, y)
    assert clone(fitted).fit(X, y).score(X, y) == fitted.score(X, y)
    count = len(_locks)
    del fitted, copied
    assert len(_locks) < count


class Box:
    def __init__(self):
        self.kept = 1

    @exclusive
    def change(self):
        """Says what it does."""
        self.kept, self.new = 2, 3
        raise ReprogramError("no")


def test_what_is_refused_leaves_the_attributes_as_they_were():
    box = Box()
    with pytest.raises(ReprogramError):
        box.change()
    assert vars(box) == {"kept": 1}
    assert Box.change.__doc__ == "Says what it does."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads is what is tested
def test_a_forked_process_does_not_wait_for_a_lock_of_its_parent():
    X, y = drawn()
    mapper = LabelMapper("blm").fit(X, y)
    locked, done = threading.Event(), threading.Event()

    def hold():
        with _lock_of(mapper):
            locked.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(60)
    child = os.fork()
    if not child:
        free = _lock_of(mapper).acquire(timeout=20)
        os._exit(0 if free else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
