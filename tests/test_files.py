import pytest
import torch

from reprogram.errors import ReprogramError
from reprogram.files import claimed_folder, read_json, read_tensors, write_folder, write_json, write_tensors


def test_tensors_and_header_come_back_to_the_bit(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b/c": torch.arange(4), "d": torch.rand(2, 3, dtype=torch.float64).T}
    write_tensors(tmp_path / "x.safetensors", tensors, {"epoch": 3, "name": "θ"})
    back, header = read_tensors(tmp_path / "x.safetensors", "file")
    assert header == {"epoch": 3, "name": "θ"}
    assert all(torch.equal(back[key], tensors[key]) for key in tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    write_json(tmp_path / "x.json", {"old": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"new": object()})
    with pytest.raises(AttributeError):
        write_tensors(tmp_path / "x.json", {"a": "no tensor"})
    assert read_json(tmp_path / "x.json", "file") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    write_folder(tmp_path / "f", lambda fresh: (fresh / "a").touch())

    def fail(fresh):
        (fresh / "b").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "f", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["a"]


def test_reading_what_is_not_there_or_not_right(tmp_path):
    (tmp_path / "bad").write_text("{")
    for read in (read_json, read_tensors):
        with pytest.raises(ReprogramError, match="does not exist"):
            read(tmp_path / "missing", "thing")
        with pytest.raises(ReprogramError, match="thing"):
            read(tmp_path / "bad", "thing")


def test_a_claimed_folder_is_taken_back_if_nothing_came_of_it(tmp_path):
    with pytest.raises(KeyError), claimed_folder(tmp_path / "a" / "b"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileExistsError), claimed_folder(tmp_path / "a" / "b") as folder:
        (folder / "work").mkdir() or (folder / "work").mkdir()
    assert (tmp_path / "a" / "b" / "work").exists()


def test_numbered_folders_are_never_shared(tmp_path):
    names = []
    for _ in range(3):
        with claimed_folder(tmp_path / "run", numbered=True) as folder:
            names.append(folder.name)
    assert names == ["run", "run-2", "run-3"]


def test_names_that_are_not_utf8_are_written(tmp_path):
    write_json(tmp_path / "x.json", {"name": "caf\udce9.png"})
    assert read_json(tmp_path / "x.json", "file") == {"name": "caf\udce9.png"}
