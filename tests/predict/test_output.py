"""A table that is filled over hours: what was kept counts, whatever happened to the process or to the files."""

import json
import os
import shutil

import pytest

from reprogram import ReprogramError
from reprogram.files import write_sealed
from reprogram.files.tables import Column
from reprogram.predict.output import output
from reprogram.predict.words import Meant

COLUMNS = (Column("image"), Column("set", "texts"), Column("share", "number"), Column("error"))
IDENTITY = {"model": "abc", "batch_size": 2}
NAMES = ["a.png", "=1.png", os.fsdecode(b"\xff.png"), "two\nlines.png", "e.png", "f.png", "g.png"]
FORMS = ("csv", "jsonl", "parquet")


def rows(names):
    return [{"image": name, "set": ["x", "y"], "share": 0.1, "error": "bad" if name == "e.png" else None} for name in names]


def images(names):
    return (Meant(name) for name in names)


def fill(path, form, *, names=NAMES, stop=None, identity=IDENTITY, **options):
    """Fill a table in batches of two; a stop comes after so many rows."""
    with output(path, form, COLUMNS, identity, save_every=2, **options) as table:
        if table.complete:
            return table
        rest = list(table.rest_of(images(names)))
        table.started = table.rows
        for start in range(0, len(rest), 2):
            if stop is not None and table.rows >= stop:
                raise KeyboardInterrupt
            table.add(rows([image.path for image in rest[start : start + 2]]))
    return table


def stopped(path, form="csv", stop=4, **options):
    with pytest.raises(KeyboardInterrupt):
        fill(path, form, stop=stop, **options)


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupted_table_ends_as_an_undisturbed_one(tmp_path, form):
    whole = fill(tmp_path / "whole", form)
    assert (whole.rows, whole.failed) == (7, 1)
    out = tmp_path / "out"
    for stop in (2, 4, 6):
        stopped(out, form, stop, resume=stop > 2)
        assert not out.exists()
        with (tmp_path / ".out.partial").open("ab") as partial:
            partial.write(b"half a ro")  # what a killed process had written and not kept
    table = fill(out, form, resume=True)
    assert (table.started, table.rows, table.failed) == (6, 7, 1)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]
    assert fill(out, form, resume=True).complete


@pytest.mark.parametrize("form", FORMS)
def test_a_kill_between_the_last_steps(tmp_path, form, monkeypatch):
    whole = tmp_path / "whole"
    fill(whole, form)
    out, journal, partial = tmp_path / "out", tmp_path / ".out.journal", tmp_path / ".out.partial"
    real = type(out).unlink

    def killed(path, *arguments, **options):
        if path in (journal, partial) and not options:
            raise MemoryError
        return real(path, *arguments, **options)

    for _ in range(2):
        monkeypatch.setattr(type(out), "unlink", killed)
        with pytest.raises(MemoryError):
            fill(out, form, resume=True)
        monkeypatch.undo()
        assert journal.exists()
    assert out.read_bytes() == whole.read_bytes()
    table = fill(out, form, resume=True)
    assert (table.rows, table.failed) == (7, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]
    assert out.read_bytes() == whole.read_bytes()


def test_what_stands_there_is_kept_unless_told_otherwise(tmp_path):
    out = tmp_path / "new" / "out.csv"
    stopped(out)
    with pytest.raises(ReprogramError, match=r"begun before and is not complete; add --resume .* --replace"):
        fill(out, "csv")
    fill(out, "csv", names=NAMES[:2], replace=True)
    before = out.read_bytes()
    with pytest.raises(ReprogramError, match=r"exists already; .*--replace, or --resume"):
        fill(out, "csv")
    stopped(out, replace=True)
    assert out.read_bytes() == before  # until the new one is complete
    fill(out, "csv", resume=True)
    assert out.read_text(errors="surrogateescape").count("\n") == 9  # a head, seven rows, a line end in a name
    with pytest.raises(ReprogramError, match="is a folder"):
        fill(tmp_path, "csv")


def test_only_the_same_work_is_continued(tmp_path):
    out = tmp_path / "out.csv"
    stopped(out)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for identity in ({**IDENTITY, "batch_size": 3}, {**IDENTITY, "top": 1}):
        with pytest.raises(ReprogramError, match=r"begun with another (batch size|top) \((2|None), now (3|1)\).*--replace"):
            fill(out, "csv", resume=True, identity=identity)
    for names in (NAMES[1:], NAMES[:3], ["b.png", *NAMES[1:]]):
        with pytest.raises(ReprogramError, match="the first 4 images are others"):
            fill(out, "csv", resume=True, names=names)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    partial = tmp_path / ".out.csv.partial"
    for content in (partial.read_bytes().replace(b"0.1", b"0.2"), partial.read_bytes()[:-5]):
        partial.write_bytes(content)
        with pytest.raises(ReprogramError, match=r"has changed since it was written .*--replace"):
            fill(out, "csv", resume=True)
    journal = tmp_path / ".out.csv.journal"
    journal.write_text(journal.read_text().replace('"rows": 4', '"rows": 2'))
    with pytest.raises(ReprogramError, match=r"journal .* has changed since it was written .*--replace"):
        fill(out, "csv", resume=True)
    fill(out, "csv", replace=True)


def test_a_table_is_filled_by_one_process_and_a_failure_at_once_leaves_nothing(tmp_path):
    out = tmp_path / "new" / "out.csv"
    with output(out, "csv", COLUMNS, IDENTITY) as table:
        with pytest.raises(ReprogramError, match=r"out.csv' is in use by process"):
            fill(out, "csv", resume=True)
        assert list(table.rest_of(images([]))) == []
    assert out.read_text() == "image,set,share,error\n"
    out.unlink()
    out.parent.rmdir()
    stopped(out, stop=0)
    assert list(tmp_path.iterdir()) == []


def test_rows_of_any_name_stand_in_every_format(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for form in FORMS:
        fill(tmp_path / form, form)
    lines = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    assert [line["image"] for line in lines] == NAMES
    table = parquet.read_table(tmp_path / "parquet").to_pylist()
    assert [row["image"] for row in table] == [name.replace("\udcff", r"\udcff") for name in NAMES]
    assert [{**row, "image": ""} for row in table] == [{**line, "image": ""} for line in lines]
    csv = (tmp_path / "csv").read_bytes()
    assert b'\n\'=1.png,x|y,0.1,\n\xff.png,x|y,0.1,\n"two\nlines.png",x|y,0.1,\ne.png,x|y,0.1,bad\n' in csv


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_were_complete_and_are_gone_are_not_called_complete(tmp_path, form, monkeypatch):
    out, journal = tmp_path / "out", tmp_path / ".out.journal"
    real = type(out).unlink

    def killed(path, *arguments, **options):
        if path == journal and not options:
            raise MemoryError
        return real(path, *arguments, **options)

    monkeypatch.setattr(type(out), "unlink", killed)
    with pytest.raises(MemoryError):
        fill(out, form, resume=True)
    monkeypatch.undo()
    if form != "parquet":
        content = out.read_bytes()
        out.write_bytes(b"something else")
        with pytest.raises(ReprogramError, match=r"were complete, but neither .*--replace"):
            fill(out, form, resume=True)
        out.write_bytes(content)
        journal_text = journal.read_text()
        assert fill(out, form, resume=True).rows == 7
        journal.write_text(journal_text)
    out.unlink()
    with pytest.raises(ReprogramError, match=r"were complete, but neither .*--replace"):
        fill(out, form, resume=True)
    assert fill(out, form, replace=True).rows == 7


def test_a_disk_that_is_full_at_once_keeps_no_rows_that_do_not_count(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        fill(tmp_path / "out.csv", "csv")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_rows_are_kept_in_a_file_and_in_nothing_else(tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    for make in (os.mkfifo, lambda path: path.symlink_to("elsewhere"), os.mkdir):
        make(tmp_path / ".out.csv.partial")
        with pytest.raises(ReprogramError, match=r"partial' is no file, .*; remove it"):
            fill(tmp_path / "out.csv", "csv")
        shutil.rmtree(tmp_path / ".out.csv.partial") if make is os.mkdir else (tmp_path / ".out.csv.partial").unlink()
    assert (tmp_path / "elsewhere").read_text() == "precious"


@pytest.mark.parametrize("lie", [{"bytes": 2**62}, {"bytes": 2**70}, {"complete": True}])
def test_a_journal_that_lies_is_refused_before_the_disk_is_filled(tmp_path, lie):
    out, journal = tmp_path / "out.csv", tmp_path / ".out.csv.journal"
    stopped(out)
    content = json.loads(journal.read_text())
    del content["sha256"]
    write_sealed(journal, {**content, **lie})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ReprogramError, match=r"--replace"):
        fill(out, "csv", resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
