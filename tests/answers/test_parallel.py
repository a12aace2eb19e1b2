"""Results come in the order of the items, and a mistake reads the same in every engine."""

import socket

import pytest

from reprogram import ReprogramError
from reprogram.answers.parallel import Workers
from reprogram.answers.survey import survey_shard


def test_processes_keep_the_order_and_carry_errors(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.csv").write_text("label,logit_0\n" + "cat,1\n" * (number + 1))
    items = sorted(tmp_path.iterdir())
    (tmp_path / "4.csv").write_text("label,logit_0\ncat,x\n,2\n")
    with Workers("local", processes=2) as workers:
        found = workers.map(survey_shard, {}, [item for item in items if item.name != "4.csv"])
        assert [survey.rows for survey in found] == [1, 2, 3, 4, 6, 7, 8, 9]
        with pytest.raises(ReprogramError, match=r"row 2 of .*4.csv' has no label") as raised:
            list(workers.map(survey_shard, {}, items))
    with pytest.raises(ReprogramError) as alone:
        list(Workers().map(survey_shard, {}, items))
    assert str(raised.value) == str(alone.value)


def test_mistakes():
    for arguments, message in (
        (("cloud",), "engine 'cloud' is not known"),
        (("local", 0), "at least 1"),
        (("local", 1, "auto"), "only the ray engine"),
    ):
        with pytest.raises(ReprogramError, match=message):
            Workers(*arguments)


def test_a_ray_that_is_not_there_is_told_at_once():
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Workers("ray", 1, f"127.0.0.1:{port}") as workers, pytest.raises(ReprogramError, match="does not answer"):
        list(workers.map(pow, 2, [1]))
