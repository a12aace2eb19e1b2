"""The program over the epochs: few small pictures, the same however often a run was stopped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.files import write_tensors
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.run.folder import FolderBook
from reprogram.run.history import HISTORY, MOST_EPOCHS, NO_HISTORY, SIDE, kept_epochs, read_history, write_history
from reprogram.run.verify import verify


@given(st.integers(1, 5000))
def test_few_epochs_are_kept_and_none_that_was_dropped(done):
    now, next_one = kept_epochs(done), kept_epochs(done + 1)
    assert {1, done} <= now <= set(range(1, done + 1))
    assert len(now) <= MOST_EPOCHS
    assert next_one <= now | {done + 1}
    assert done < 4 or len(now) > min(done, MOST_EPOCHS) // 3


def drawn(program, seed):
    with torch.no_grad():
        program.theta.copy_(torch.randn(program.theta.shape, generator=torch.Generator().manual_seed(seed)))
    return program


def test_a_faint_pattern_is_kept_and_told_in_its_own_strength(tmp_path):
    program = Watermark(16).bind((0.5,) * 3, (0.25,) * 3)
    with torch.no_grad():
        program.theta[:, 0] = 0.004  # a thousandth of black to white: far below one of 255 grey levels
    history = NO_HISTORY.with_epoch(1, program)
    moved = history.moved()[0]
    assert moved[0, 0].tolist() == pytest.approx([0.001] * 3, rel=0.01)
    assert float(moved[1:].abs().max()) < 5e-6


def test_large_canvases_become_small_pictures(tmp_path):
    history = NO_HISTORY
    for epoch in range(1, 30):
        history = history.with_epoch(epoch, drawn(Padding(256, 100), epoch))
    assert history.frames.shape == (len(kept_epochs(29)), SIDE, SIDE, 3)
    assert set(history.epochs) == kept_epochs(29)
    write_history(tmp_path / HISTORY, history)
    assert (tmp_path / HISTORY).stat().st_size < 500_000
    again = read_history(tmp_path / HISTORY)
    assert torch.equal(again.frames, history.frames)
    assert (again.epochs, again.scales) == (history.epochs, history.scales)


@pytest.mark.parametrize(
    ("frames", "header"),
    [
        (torch.zeros(1, 4, 4, 3), {"epochs": [1], "scales": [1.0]}),
        (torch.zeros(1, 4, 5, 3, dtype=torch.uint8), {"epochs": [1], "scales": [1.0]}),
        (torch.zeros(1, 999, 999, 3, dtype=torch.uint8), {"epochs": [1], "scales": [1.0]}),
        (torch.zeros(2, 4, 4, 3, dtype=torch.uint8), {"epochs": [2, 1], "scales": [1.0, 1.0]}),
        (torch.zeros(1, 4, 4, 3, dtype=torch.uint8), {"epochs": [1], "scales": []}),
        (torch.zeros(1, 4, 4, 3, dtype=torch.uint8), {"epochs": [1], "scales": [0.0]}),
        (torch.zeros(1, 4, 4, 3, dtype=torch.uint8), {"epochs": ["1"], "scales": [1.0]}),
    ],
)
def test_what_is_no_history_is_refused(frames, header, tmp_path):
    write_tensors(tmp_path / HISTORY, {"frames": frames}, header)
    with pytest.raises(ReprogramError, match="expected form"):
        read_history(tmp_path / HISTORY)


def test_verify_knows_it(run, tmp_path):
    folder, _ = run
    assert [checked.problem for checked in verify(folder) if checked.path.name == HISTORY] == [None]
    damaged = bytearray((folder / HISTORY).read_bytes())
    damaged[-1] ^= 1
    (tmp_path / HISTORY).write_bytes(damaged)
    assert "SHA-256 differs" in verify(tmp_path / HISTORY)[0].problem


def test_a_run_keeps_each_of_its_few_epochs(run):
    history = read_history(run[0] / HISTORY)
    assert history.epochs == (1, 2, 3)
    assert history.frames.shape == (3, 64, 64, 3)
    assert not torch.equal(history.moved()[0], history.moved()[2])


def test_what_a_kill_left_out_is_made_up_for(run, tmp_path):
    """A kill may come after the checkpoint of an epoch and before its picture."""
    folder, _ = run
    whole = read_history(folder / HISTORY)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.safetensors").write_bytes((folder / "checkpoint" / "state.safetensors").read_bytes())
    earlier = type(whole)(whole.epochs[:2], whole.frames[:2], whole.scales[:2])
    write_history(tmp_path / HISTORY, earlier)
    from reprogram.run.record import read_run

    program = read_run(folder).program
    FolderBook(tmp_path, {}).catch_up(program)
    assert (tmp_path / HISTORY).read_bytes() == (folder / HISTORY).read_bytes()
    FolderBook(tmp_path, {}).catch_up(program)
    assert (tmp_path / HISTORY).read_bytes() == (folder / HISTORY).read_bytes()


def test_a_history_of_another_size_is_begun_anew(tmp_path):
    history = NO_HISTORY.with_epoch(1, Padding(8, 4)).with_epoch(2, Padding(16, 4))
    write_history(tmp_path / HISTORY, history)
    assert read_history(tmp_path / HISTORY).epochs == (2,)
