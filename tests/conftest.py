"""Fixtures that several test files share."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from command import PADDING, SMALL, here
from reprogram.sources.load import load_frozen

# The networks here are small and the test workers share the cores: a second thread mostly waits for the first one.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that the tests start


# The camera is one that the browser makes up.
CHROMIUM = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
)


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window, one for all tests of a worker; where there is none, no page is tried."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    if found is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=list(CHROMIUM))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Decoded images go into a folder of this session, not into the user's."""
    os.environ["REPROGRAM_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def lite0():
    """The bundled ImageNet model, loaded once. It is frozen, so no test can spoil it for another."""
    return load_frozen("bundled:efficientnet_lite0")


def draw_folder(root, classes=("disc", "square", "stripes"), per_class=12, size=40, seed=0):
    """Write `per_class` drawn PNGs of each shape into root/<class>/."""
    rng = np.random.default_rng(seed)
    for name in classes:
        (root / name).mkdir(parents=True)
        for index in range(per_class):
            picture = Image.new("RGB", (size, size), tuple(int(v) for v in rng.integers(0, 90, 3)))
            pen, colour = ImageDraw.Draw(picture), tuple(int(v) for v in rng.integers(120, 255, 3))
            x, y, r = (int(v) for v in rng.integers((8, 8, 10), (14, 14, 18)))
            if name == "disc":
                pen.ellipse((x, y, x + r, y + r), fill=colour)
            elif name == "square":
                pen.rectangle((x, y, x + r, y + r), fill=colour)
            else:
                for line in range(0, size, 6):
                    pen.line((0, line + x, size, line + y), fill=colour, width=2)
            picture.save(root / name / f"{index:03}.png")
    return root


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A folder with train/ and test/ of three drawn shapes."""
    root = tmp_path_factory.mktemp("shapes")
    draw_folder(root / "train", per_class=32, seed=1)
    draw_folder(root / "test", per_class=10, seed=2)
    return root


@pytest.fixture(scope="session")
def run(shapes, tmp_path_factory):
    """A finished run on the drawn shapes, and what was printed."""
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    done = here("fit", "--data", shapes, "--mapping", "blm", "--epochs", 3, "--out", folder, *PADDING, *SMALL)
    return folder, done.stdout


@pytest.fixture
def processor(monkeypatch):
    """Tells the library whether the processor multiplies bf16 itself; what it really has, decides nothing but the time."""

    def has(bf16):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16, raising=False)

    return has


@pytest.fixture
def passes(monkeypatch):
    """The types of the logits that frozen models give under a program, one after the other."""
    from reprogram.reprogrammed import Reprogrammed

    seen, real = [], Reprogrammed._passed

    def passed(model, images):
        logits = real(model, images)
        seen.append(logits.dtype)
        return logits

    monkeypatch.setattr(Reprogrammed, "_passed", passed)
    return seen
