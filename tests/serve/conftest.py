"""Tasks and servers that the tests of the service share."""

import shutil

import pytest

from reprogram.sources.load import load_frozen
from serving import Running, make_task

PADDED = {"name": "padding", "canvas": 64, "image_size": 40}


@pytest.fixture(scope="session")
def small():
    return load_frozen("timm:test_resnet", pretrained=False)


@pytest.fixture(scope="session")
def made_tasks(small, tmp_path_factory):
    """Five artefacts: two without a program, two with the same one, one with another."""
    root = tmp_path_factory.mktemp("tasks")
    make_task(root / "birds", small, ["crane", "wren", "owl"], mapping="gaussian", samples=90)
    make_task(root / "boats", small, ["ship", "canoe"], seed=1)
    make_task(root / "padded", small, ["a", "b"], program=PADDED, seed=2)
    make_task(root / "padded-too", small, ["x", "y", "z"], program=PADDED, seed=2)
    make_task(root / "padded-other", small, ["p", "q"], program=PADDED, seed=3)
    return root


@pytest.fixture
def folder(made_tasks, tmp_path):
    """A copy of them."""
    return shutil.copytree(made_tasks, tmp_path / "tasks")


@pytest.fixture(scope="session")
def server(made_tasks, tmp_path_factory):
    """A server for them that nobody changes."""
    copy = shutil.copytree(made_tasks, tmp_path_factory.mktemp("served") / "tasks")
    with Running(copy, watch=False) as client:
        yield client
