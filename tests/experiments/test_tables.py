"""Tables: what stands in them, that hostile names stay names in each form, and that the same runs give the same bytes."""

import csv
import io
import json
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from grids import HOSTILE, grid, outcome
from reprogram.cli.text import show_table
from reprogram.errors import ReprogramError
from reprogram.experiments.layout import Entry, Row, Table
from reprogram.experiments.markup import latex_text, markdown_text
from reprogram.experiments.outcomes import Failure
from reprogram.experiments.tables import FILES, long_csv, results, write_tables
from reprogram.files.seals import is_sealed
from reprogram.text import csv_text, printable, read_csv, whole

# what a table of LaTeX is made of; everything else in a row must be plain text
COMMANDS = {
    *("textbf", "textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar", "textdagger"),
    *("textdaggerdbl", "dots", "pm", "times", "geq", "leq", "toprule", "midrule", "bottomrule", "begin", "end", "centering"),
    "caption",
}
names = st.text(max_size=30) | st.sampled_from(HOSTILE)


def read_table(text):
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_the_table_of_accuracies():
    table = results(grid(), columns="mapping", order={"mapping": ["ilm"]}).table
    assert table.names == ("data",)
    assert table.columns == ("ilm", "blm", "blm+")
    assert [row.names for row in table.rows] == [("a",), ("b",), ("c",), ("d",)]
    runs = [run.accuracy["selected"] for run in grid() if run.labels == {"data": "b", "mapping": "blm"}]
    entry = table.rows[1].cells[1]
    assert entry.numbers["mean"] == pytest.approx(sum(runs) / 3)
    assert re.fullmatch(r"\d\d\.\d ± \d\.\d", entry.text)
    for row in (*table.rows, *table.summary):
        means = [cell.numbers["mean"] for cell in row.cells]
        assert [cell.best for cell in row.cells] == [mean == max(means) for mean in means]
    columns = zip(*[[cell.numbers["mean"] for cell in row.cells] for row in table.rows], strict=True)
    assert [cell.numbers["mean"] for cell in table.summary[0].cells] == pytest.approx([sum(c) / 4 for c in columns])


def test_what_is_missing_failed_or_not_selected_is_marked():
    runs = [run for run in grid(data=("a", "b")) if (run.labels["data"], run.labels["mapping"]) != ("a", "ilm")]
    runs = [run for run in runs if (run.labels["data"], run.labels["mapping"]) != ("b", "blm")]
    lost = [Failure(f"f{seed}", {"data": "b", "mapping": "blm"}, seed, "a|b\nc") for seed in range(3)]
    other = runs.pop(0)
    lost.append(Failure("g", other.labels, other.seed, "diverged"))
    runs[0] = outcome(runs[0].labels, runs[0].seed, None, last=0.5)
    found = results(runs, failures=lost)
    first, second = found.table.rows
    assert re.fullmatch(r"\d\d\.\d ± \d+\.\d \(2\) ‡ †", first.cells[0].text)
    assert first.cells[2].text == "–"
    assert second.cells[0].text == "failed †"
    assert sum(cell.best for cell in first.cells) == 1
    assert "(n): of n seeds." in found.table.notes
    assert found.table.summary == ()  # no row is complete
    assert "- f0: a\\|b\\\\nc" in found.markdown()
    assert "4 runs failed" in found.table.latex()


def test_a_single_cell_is_not_the_best_of_anything():
    table = results(grid(mapping=("blm",))).table
    assert not any(cell.best for row in table.rows for cell in row.cells)


def test_equals_are_all_the_best():
    runs = [outcome({"data": "a", "mapping": name}, 0, value) for name, value in {"p": 0.3, "q": 0.1 + 0.2}.items()]
    assert [cell.best for cell in results(runs).table.rows[0].cells] == [True, True]


def test_other_axes_join_the_rows_and_constant_ones_the_notes():
    table = results(grid(program=("none", "padding"), model=("lite0",))).table
    assert table.names == ("data", "program")
    assert len(table.rows) == 8
    assert "In all runs: model lite0." in table.notes


def test_methods_of_several_axes():
    found = results(grid(program=("none", "padding")), columns=("program", "mapping"))
    assert found.table.columns[0] == "none / blm"
    assert found.analysis.methods == found.table.columns
    assert len(found.analysis.pairs) == 15


def test_axes_that_are_not_there_or_there_twice():
    with pytest.raises(ReprogramError, match="axis 'maping' is not known"):
        results(grid(), columns="maping")
    with pytest.raises(ReprogramError, match="for rows and for columns"):
        results(grid(), rows="mapping", columns="mapping")
    with pytest.raises(ReprogramError, match="no run is finished"):
        results([])


def test_all_files(tmp_path):
    found = write_tables(grid(), tmp_path / "new", title="Four sets")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(FILES)
    text = (tmp_path / "new/results.json").read_text()
    assert is_sealed(text)
    content = json.loads(text)
    assert content["table"]["rows"][0]["cells"][0]["mean"] == found.table.rows[0].cells[0].numbers["mean"]
    assert content["statistics"]["ranks"]["average_rank"] == list(found.analysis.ranks.average)
    assert len(content["statistics"]["pairs"]) == 3
    page = (tmp_path / "new/table.md").read_text()
    for heading in ("Four sets", "Average ranks over 4 blocks", "Differences of methods", "How optimistic", "In words"):
        assert f"### {heading}" in page
    assert "\\toprule" in (tmp_path / "new/table.tex").read_text()


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_the_same_runs_give_the_same_bytes(rng: random.Random):
    runs = grid(program=("none", "padding"))
    mixed = list(runs)
    rng.shuffle(mixed)
    assert long_csv(mixed) == long_csv(runs)
    one, other = results(mixed), results(runs)
    assert one.markdown() == other.markdown()
    assert one.to_json() == other.to_json()


def test_every_run_is_a_row_of_raw_data(tmp_path):
    runs = grid(data=HOSTILE[:4], mapping=("=1+1", "ilm"), seeds=(0, 1))
    runs[0] = replace(
        outcome(runs[0].labels, 0, None, last=1 / 3, right=(1, 0, 1)), extra={"words": "@x", "data": "y", "seed": 4}
    )
    write_tables(runs, tmp_path)
    rows = read_csv(tmp_path / "results.csv")
    assert len(rows) == 16
    by_run = {(row["data"], row["mapping"], row["seed"]): row for row in rows}
    assert len(by_run) == 16
    for run in runs:
        row = by_run[run.labels["data"], run.labels["mapping"], str(run.seed)]
        assert row["run"] == run.name
        assert (float(row["selected"]) if row["selected"] else None) == run.accuracy["selected"]
        assert float(row["last"]) == run.accuracy["last"]  # to the last digit
    row = by_run[runs[0].labels["data"], "=1+1", "0"]
    assert (row["right"], row["words"], row["seed'"], row["data'"]) == ("2", "@x", "4", "y")
    raw = (tmp_path / "results.csv").read_text(errors="surrogateescape")
    assert not any(cell[:1] in ("=", "@", "+") for line in read_table(raw) for cell in line)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(names, min_size=2, max_size=4, unique=True), st.lists(names, min_size=1, max_size=3, unique=True))
def test_hostile_names_stay_names(data, mapping):
    data, mapping = (list(dict.fromkeys(map(whole, texts))) for texts in (data, mapping))
    runs = grid(data=tuple(data), mapping=tuple(mapping), seeds=(0, 1))
    found = results(runs, title=data[0])
    for table in found.tables:
        check_csv(table)
        check_markdown(table)
        check_latex(table)
        json.dumps(table.to_json(), allow_nan=False)
    assert not control(found.markdown().replace("\n", ""))


def control(text):
    return [letter for letter in text if printable(letter) != letter]


def check_csv(table):
    rows = read_table(table.csv())
    assert {len(row) for row in rows} == {len(rows[0])}
    assert [tuple(map(csv_text, row[: len(table.names)])) for row in rows[1 : 1 + len(table.rows)]] == [
        tuple(map(whole, row.names)) for row in table.rows
    ]


def check_markdown(table):
    """A reader of Markdown sees one heading, one table of exactly these names, and nothing but text and bold letters."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(table.markdown())
    kinds = {token.type for token in tokens}
    assert not kinds & {
        "html_block",
        "bullet_list_open",
        "ordered_list_open",
        "fence",
        "code_block",
        "blockquote_open",
        "hr",
    }
    inline = [token for token in tokens if token.type == "inline"]
    assert {child.type for token in inline for child in token.children} <= {
        *("text", "text_special", "strong_open", "strong_close", "softbreak"),
    }
    seen = ["".join(child.content for child in token.children) for token in inline]
    width = len(table.names) + len(table.columns)
    cells = seen[1 : 1 + width * (1 + len(table.rows) + len(table.summary))]
    expected = [*table.names, *table.columns]
    for row in (*table.rows, *table.summary):
        expected += [*row.names, *(entry.text for entry in row.cells)]
    assert cells == [printable(whole(text)).strip() for text in expected]
    assert seen[0] == printable(whole(table.title)).strip()


def check_latex(table):
    text = table.latex()
    assert not control(text.replace("\n", ""))
    lines = text.splitlines()
    assert lines[0].startswith("%")
    body = "\n".join(lines[1:])
    assert set(re.findall(r"\\([a-zA-Z]+)", body)) <= COMMANDS | GREEK
    assert not re.search(r"(?<!\\)(?:\\\\)*[%#]", body.replace("\\\\\n", "\n"))  # no comment, no parameter
    rows = body[body.index("\\toprule") : body.index("\\bottomrule")].split("\\\\\n")[:-1]
    assert len(rows) == 1 + len(table.rows) + len(table.summary)
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row)) == len(table.names) + len(table.columns) - 1
        plain = re.sub(r"\\[{}]", "", row)
        assert plain.count("{") == plain.count("}")
        assert not re.match(r"(\\\w+\n)*\s*[\[*]", row)  # nothing that the line before would take for its own


GREEK = set(re.findall(r"\\(\w+)", latex_text("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ")))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_one_by_one(name, capsys):
    row = Row((name,), (Entry(name, best=True), Entry("1.0")))
    table = Table(name, (name,), (name, "x"), (row, row), (), (f"Said of {name}.",))
    for check in (check_csv, check_markdown, check_latex):
        check(table)
    headings, rows, numbers = table.for_terminal()
    show_table(headings, rows, numbers=numbers)
    printed = capsys.readouterr().out
    assert not control(printed.replace("\n", ""))


def test_markup():
    assert markdown_text("1. a") == "1\\. a"
    assert markdown_text("- a") == "\\- a"
    assert markdown_text("www.x.y http://z") == "www\\.x.y http\\://z"
    assert latex_text("a--b, 'c'") == "a{-}{-}b, 'c'"
    assert latex_text("[x] \\") == "{[}x{]} \\textbackslash{}"


def test_the_terminal_has_a_mark_for_the_best(capsys):
    headings, rows, numbers = results(grid()).table.for_terminal()
    show_table(headings, rows, numbers=numbers)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.count("◂") for line in lines) == 5
    assert lines[1].split() == ["data", "blm", "blm+", "ilm"]
