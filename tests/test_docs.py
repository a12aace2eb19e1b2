"""README and the pages under docs/ are true: their files, commands, outputs and Python are tried as they stand."""

import re
from pathlib import Path

import pytest

from desk import make_desk
from pages import BLOCK, Reader

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRIED = [page for page in PAGES if {language for language, *_ in BLOCK.findall(page.read_text())} & {"console", "python"}]


@pytest.fixture(scope="module")
def desk(shapes, tmp_path_factory):
    return make_desk(tmp_path_factory.mktemp("desk"), shapes)


@pytest.mark.parametrize("page", TRIED, ids=lambda page: page.name)
def test_a_reader_who_follows_the_page_sees_what_it_shows(page, desk, tmp_path, monkeypatch, capsys):
    for thing in desk.iterdir():  # each page has a desk of its own
        (tmp_path / thing.name).symlink_to(thing)
    for _, name, _ in BLOCK.findall(page.read_text()):  # a page that shows a file brings it
        if name and (tmp_path / name).is_symlink():
            (tmp_path / name).unlink()
    Reader(tmp_path, monkeypatch, capsys).follow(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
    for target, place in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        headings = re.findall(r"^#+ (.*)$", (page.parent / target if target else page).read_text(), flags=re.MULTILINE)
        assert place in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
