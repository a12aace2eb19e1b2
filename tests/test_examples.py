"""The example plugin works as its README says: installed by its metadata alone, all five things, from the command line."""

import os
import tomllib
from pathlib import Path

import pytest

from command import reprogram

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"
PAINTS = """train warm #ff8800
train warm #ee2200
train warm #ffdd00
train cold #0000ff
train cold #2200dd
train cold #00aa44
val warm #ff7711
val cold #1111ee
test warm #ff9911
test cold #0011ff
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with the files that the README names, and an environment in which the plugin counts as installed."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    site, root = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("desk")
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [f"{name} = {where}" for name, where in project["entry-points"]["reprogram"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[reprogram]", *points]))
    (root / "paints.colours").write_text(PAINTS)
    lines = ["warm: orange 0.9, red 0.4", "cold: blue 0.8, violet 0.7", "warm: red 0.9", "cold: blue 0.9"] * 4
    (root / "names.answers").write_text("\n".join(lines))
    path = os.pathsep.join([str(PLUGIN), str(site), os.environ.get("PYTHONPATH", "")])
    return root, {**os.environ, "PYTHONPATH": path}


def commands():
    return [line.strip().split()[1:] for line in (PLUGIN / "README.md").read_text().splitlines() if line.startswith("    ")]


def test_fit_takes_its_data_its_model_its_program_and_its_mapping(desk):
    root, environment = desk
    done = reprogram(*commands()[0], "--epochs", 1, cwd=root, env=environment)
    assert "colours:eight (8 labels) -> paints (2 classes, 6 train / 2 val / 2 test images)" in done.stdout
    assert "program corner (24 px image on a 32 px canvas), mapping share" in done.stdout
    said = reprogram("evaluate", "run", cwd=root, env=environment).stdout  # the artefact is read with them, too
    assert "accuracy on paints (test): 100.0 %" in said


def test_map_reads_its_shards(desk):
    root, environment = desk
    said = reprogram(*commands()[1], cwd=root, env=environment).stdout
    assert "16 rows: 4 source labels -> 2 classes by share" in said


def test_without_the_plugin_its_names_are_not_known(desk):
    root, _ = desk
    done = reprogram("fit", "--mapping", "share", cwd=root, check=False)
    assert done.returncode == 2
    assert "mapping 'share' is not known" in done.stderr
