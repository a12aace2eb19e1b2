"""How a run is prepared where several processes carry it out."""

import contextlib

import pytest

from reprogram import ReprogramError
from reprogram.ranks import Ranks
from reprogram.run.build import prepare
from reprogram.run.config import FitConfig


class Queue(Ranks):
    """Tells when the block of a turn begins and ends."""

    def __init__(self):
        self.told_of = []

    @contextlib.contextmanager
    def in_turn(self):
        self.told_of.append("begun")
        try:
            yield
        finally:
            self.told_of.append("ended")


@pytest.mark.parametrize(("download", "turns"), [(True, ["begun", "ended"]), (False, [])])
def test_what_may_be_fetched_is_fetched_by_one_process_and_then_read_by_the_others(download, turns, tmp_path):
    """Torchvision writes an archive where it belongs: two that fetch it at once destroy it for each other."""
    ranks = Queue()
    with pytest.raises(ReprogramError):
        prepare(FitConfig(data=str(tmp_path / "nowhere"), download=download), ranks=ranks)
    assert ranks.told_of == turns
