"""A file that crashes, hangs or fills its reader is one sentence, and one that passes is not tried twice."""

import os
import time
from pathlib import Path

import pytest

from reprogram.child import tried_in_child
from reprogram.errors import ReprogramError

HERE = str(Path(__file__).parent)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])]))
    path = tmp_path / "some file"
    path.write_text("content")
    return path


def refused(task, file, **limits):
    with pytest.raises(ReprogramError) as caught:
        tried_in_child(f"childish:{task}", file, "data", "download it again", **limits)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_passed_is_tried_again_only_when_the_file_is_another(file):
    log = Path(f"{file}.log")
    for _ in range(2):
        tried_in_child("childish:succeed", file, "data")
    assert log.read_text() == "tried\n"
    file.write_text("other content")
    tried_in_child("childish:succeed", file, "data")
    assert log.read_text() == "tried\ntried\n"


def test_what_failed_is_tried_again(file):
    for _ in range(2):
        assert refused("say", file) == "file 'some file' is wrong; mend it"


def test_errors_of_the_task_are_one_sentence(file):
    assert refused("stumble", file) == f"data {str(file)!r} cannot be read ('odd content\\nand more'); download it again"


def test_a_crash_is_one_sentence(file):
    assert refused("crash", file) == f"data {str(file)!r} is damaged: its reader ended with SIGSEGV; download it again"


def test_a_reader_that_leaves_is_one_sentence(file):
    assert "cannot be read (0); download" in refused("leave", file)
    assert "its reader ended with code 7; download" in refused("vanish", file)


def test_a_reader_that_sleeps_or_turns_is_ended(file):
    begin = time.monotonic()
    assert "takes more than 1 seconds to read; download it again" in refused("hang", file, seconds=1)
    assert "takes more than 1 seconds to read; download it again" in refused("turn", file, seconds=1)
    assert time.monotonic() - begin < 60


def test_memory_is_limited(file):
    pytest.importorskip("resource")
    assert "takes more than 2.0 GiB of memory to read; download it again" in refused("fill", file)


def test_the_child_sees_no_current_folder_no_torch_and_no_questions(file, monkeypatch):
    (file.parent / "childish.py").write_text("raise SystemExit('the current folder was imported from')")
    monkeypatch.chdir(file.parent)
    tried_in_child("childish:look", file, "data")


def test_what_is_no_plain_file_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is no plain file" in refused("succeed", tmp_path / "pipe")
    assert "is no plain file" in refused("succeed", tmp_path)  # a folder with such a thing in it
    assert "is no plain file" in refused("succeed", Path("/dev/zero"))
    assert "does not exist; check the path" in refused("succeed", tmp_path / "nowhere")
    assert "cannot be read" in refused("succeed", Path("nul\0"))


def test_a_folder_is_another_when_a_file_in_it_is(tmp_path, file):
    log = tmp_path.with_suffix(".log")
    for _ in range(2):
        tried_in_child("childish:succeed", tmp_path, "data")
    (tmp_path / "more").write_text("more")
    tried_in_child("childish:succeed", tmp_path, "data")
    assert log.read_text() == "tried\ntried\n"
