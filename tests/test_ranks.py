"""Several processes: what each has of the work, what they exchange, and that their number changes no result."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import ranks_worker as alone
from launching import launch
from reprogram import ReprogramError
from reprogram.progress import Progress
from reprogram.ranks import ALONE, JoinedRanks, Ranks, joined
from reprogram.training.settings import TrainingSettings
from reprogram.training.state import FitState

WORKER = Path(alone.__file__)


def ranks_of(size):
    return [JoinedRanks(rank, size, None, 1.0) for rank in range(size)]


# ---- whose part is whose


@given(total=st.integers(1, 50), size=st.integers(1, 9))
def test_shares_of_a_batch_are_all_of_it_once(total, size):
    shares = [ranks.share(total) for ranks in ranks_of(size)]
    counted = [place for share in shares for place in range(total)[share.rows][: share.count]]
    assert counted == list(range(total))
    assert sum(share.weight for share in shares) == pytest.approx(1)
    assert all(len(range(total)[share.rows]) >= 1 for share in shares), "each has an image to run, even if it does not count"
    assert max(share.count for share in shares) - min(share.count for share in shares) <= 1


@given(total=st.integers(1, 90), size=st.integers(1, 9), batch_size=st.integers(1, 40))
def test_rows_are_whole_batches_and_all_of_them_once(total, size, batch_size):
    table, whole = torch.arange(total), torch.arange(total).split(batch_size)
    parts = [part.tolist() for ranks in ranks_of(size) for part in ranks.batches(table, batch_size)]
    assert parts == [part.tolist() for part in whole]
    for ranks in ranks_of(size):
        own = [place for part in ranks.batches(table, batch_size) for place in part.tolist()]
        assert table[ranks.rows(total, batch_size)].tolist() == own


def test_alone_there_is_nothing_to_exchange():
    value = torch.arange(3.0)
    assert ALONE.sum(value) is value
    assert ALONE.leads
    assert ALONE.lost() == ""
    assert ALONE.told(lambda: ("x", {})) == ("x", {})
    assert ALONE.gather([value, value], value[:0]).tolist() == [0, 1, 2, 0, 1, 2]
    assert ALONE.share(7) == Ranks().share(7)
    assert ALONE.share(7).weight == 1.0  # a loss times this is the loss, to the bit


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2"}, r"WORLD_SIZE = 2 processes cannot be joined .*torchrun"),
        ({"WORLD_SIZE": "2", "REPROGRAM_TIMEOUT": "soon"}, r"REPROGRAM_TIMEOUT = 'soon' was given"),
    ],
)
def test_what_is_missing_to_join_is_said(variables, message, monkeypatch):
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ReprogramError, match=message), joined():
        pass


@pytest.mark.parametrize("size", ["1", "", "none"])
def test_one_process_joins_nobody(size, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", size)
    with joined() as ranks:
        assert ranks is ALONE
    assert not torch.distributed.is_initialized()


# ---- real processes


def outcome(size, mode, folder):
    launch(size, WORKER, mode, folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    alone.trained("blm", ALONE, epochs=1, checkpoint=folder / "begun")
    return folder, outcome(2, "main", folder)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    return folder, outcome(3, "some", folder)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What the same trainings find alone, and their checkpoints."""
    folder = tmp_path_factory.mktemp("one")
    return folder, {name: alone.told(*alone.trained(name, ALONE, checkpoint=folder / name)) for name in alone.TRAINED}


def assert_alike(found, expected):
    """Whole numbers exactly, others to 1e-5."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(
                found[name], tensor, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )
        else:
            assert torch.equal(found[name], tensor), name


def assert_said_alike(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_said_alike(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_said_alike(*pair)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    else:
        assert found == expected


@pytest.mark.parametrize("size", ["two", "three"])
def test_processes_exchange_sums_rows_words_and_errors(size, request):
    _, found = request.getfixturevalue(size)
    count = len(found)
    for rank, said in enumerate(found):
        said = said["primitives"]
        assert said["sum"] == [sum(range(1, count + 1)), 10 * sum(range(count))]
        assert said["doubled"] == [2 * number for number in range(10)]
        assert said["flags"] == [other == 1 for other in range(count)]
        assert said["rows"] == [[0, 8], [8, 10]] if count == 2 else [[0, 4], [4, 8], [8, 10]]
        assert said["told"] == [{"said": "by 0", "none": None}, [[0.0], [1.0], [2.0]]]
        assert said["aligned"] == [[0.0, 0.0], [0.0, 0.0]]
        assert said["gradients"] == [[[sum(range(1, count + 1))] * 2] * 2, [0.0]]
        assert said["disagreed"].startswith(
            f"rank {count - 1} of {count} has other source model than the first process, but"
        )
        assert said["settled"] == f"rank {count - 1} has met infinity"
        assert found[rank]["turn"] == ([] if rank == 0 else [True]), "the first one fills, the others find it filled"


@pytest.mark.parametrize("name", list(alone.TRAINED))
def test_two_processes_train_as_one(name, one, two):
    """θ, ω and the optimiser's state to 1e-5 after two epochs, counts exactly; and all that is said about it."""
    said, tensors = one[1][name]
    assert float(tensors["program theta"].abs().max()) > 0.01, "something was learned"
    for rank, found in enumerate(two[1]):
        assert_said_alike(found[name], said)
        assert_alike(load_file(two[0] / f"{name}-{rank}.safetensors"), tensors)
    assert_alike(load_file(two[0] / name), load_file(one[0] / name))


@pytest.mark.parametrize("name", ["blm", "blm+"])
def test_the_statistics_of_one_two_and_three_processes_are_equal(name, one, two, three):
    expected, *others = (
        {key: value for key, value in load_file(folder / name).items() if key.startswith(("gathered", "model/mapping"))}
        for folder in (one[0], two[0], three[0])
    )
    assert any(not value.is_floating_point() and value.sum() == 61 for value in expected.values())
    for found in others:
        assert_alike(found, expected)
    both = [load_file(three[0] / f"{name}-{rank}.safetensors") for rank in range(3)]
    assert all(torch.equal(both[0][key], part[key]) for part in both[1:] for key in part), (
        "the same ω everywhere, to the bit"
    )


def test_what_one_process_has_begun_two_continue(two, one):
    said, tensors = one[1]["blm"]
    for rank, found in enumerate(two[1]):
        assert_said_alike(found["continued"], said)
        assert_alike(load_file(two[0] / f"continued-{rank}.safetensors"), tensors)


def test_what_two_processes_have_begun_one_continues(two, one, tmp_path):
    found, expected = (
        alone.trained("blm", ALONE, epochs=3, checkpoint=shutil.copy(folder / "blm", tmp_path / name))
        for name, folder in (("two", two[0]), ("one", one[0]))
    )
    assert len(found[0].records) == 3
    assert_said_alike(alone.told(*found)[0], alone.told(*expected)[0])
    assert_alike(load_file(tmp_path / "two"), load_file(tmp_path / "one"))


def test_a_mapping_without_a_program_is_the_same_and_as_sure(two):
    said, tensors = alone.told(*alone.untrained(ALONE))
    for rank, found in enumerate(two[1]):
        assert_said_alike(found["untrained"], said)
        assert_alike(load_file(two[0] / f"untrained-{rank}.safetensors"), tensors)


def test_choice_and_prediction_sets_are_the_same(two):
    for name, expected in (("chosen", alone.chosen(ALONE)), ("covered", alone.covered(ALONE))):
        for found in two[1]:
            assert_said_alike(found[name], expected)


def test_what_one_process_meets_ends_all_of_them_alike(two):
    expected = alone.diverged(ALONE)
    assert "the logits hold NaN or infinity in epoch 1 of 2" in expected
    assert [found["diverged"] for found in two[1]] == [expected] * 2


def test_processes_with_other_images_do_not_begin(two):
    for found in two[1]:
        assert found["other"].startswith("rank 1 of 2 has other data than the first process, but all are to do the same")


def test_a_process_that_answers_no_more_is_named(tmp_path):
    done = launch(2, WORKER, "hang", tmp_path, check=False, REPROGRAM_TIMEOUT="2")
    assert done.returncode != 0
    said = (tmp_path / "lost-0").read_text()
    assert said == "rank 1 of 2 has not answered for 2 s (set REPROGRAM_TIMEOUT to wait longer)"


def test_a_batch_is_augmented_as_a_whole_whoever_has_it():
    """Shares of random views are the views of the shares: an image looks the same in any number of processes."""
    model, data = alone.build("blm", alone.small_frozen()), alone.data_of()
    settings = TrainingSettings(**alone.HOW)

    def seen(ranks):
        state = FitState(model, settings, data.train.labels)
        state.ranks = ranks
        views = torch.Generator().manual_seed(3)
        order = torch.randperm(61, generator=torch.Generator().manual_seed(1))
        rows = state.batches(data.train, order, Progress(), "x", views)
        return [(images[: share.count], labels[: share.count], own[: share.count]) for images, labels, own, share in rows]

    whole = seen(ALONE)
    parts = [seen(ranks) for ranks in ranks_of(3)]
    for step, batch in enumerate(whole):
        for place, expected in enumerate(batch):
            assert torch.equal(torch.cat([part[step][place] for part in parts]), expected)
