"""Pictures of a report for docs/report.md: `python tools/report_shots.py REPORT.html docs/report`, with Chromium on PATH."""

import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
#: What a picture in the repository may take.
_MOST_BYTES = 150_000
#: name of the picture, selector of what is in it (None: the first screen), width, colours
_SHOTS = (
    ("summary", None, 1180, "light"),
    ("classes", "#classes", 1180, "light"),
    ("mapping", "#mapping", 1180, "dark"),
    ("phone", None, 390, "light"),
)


def main(report: Path, folder: Path) -> None:
    """Take them."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    if found is None:
        raise SystemExit("no Chromium on PATH: apt-get install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=_ARGUMENTS)
        for name, selector, width, colours in _SHOTS:
            height = 760 if width > 500 else 844
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)  # type: ignore[arg-type]
            page.goto(report.absolute().as_uri())
            page.wait_for_timeout(400)
            if selector:  # the bar at the top stays in sight, and would lie over the part
                page.locator("header.top").evaluate("bar => bar.remove()")
            taken = page.locator(selector).screenshot() if selector else page.screenshot()
            _write(folder / f"{name}.png", taken)
            page.close()
        browser.close()


def _write(path: Path, taken: bytes) -> None:
    """With a palette that covers all colours: a median cut turns the few marks in orange grey, as most of a page is."""
    picture = Image.open(BytesIO(taken)).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > _MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes, more than {_MOST_BYTES:,}; show less")
    print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
