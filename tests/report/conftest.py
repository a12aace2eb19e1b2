"""Runs to look at."""

import json

import numpy as np
import pytest

from command import here

HOSTILE = (
    "<script>alert(1)</script>",
    "[red]bold[/red] {{data}}",
    "שלום \u202egnp.exe",
    "two\nlines </script><img src=x onerror=alert(1)>",
    "x" * 300,
    "&lt; ' \" ` \u2028 =1+1",
)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A mapping blm+ whose class names and source labels mean no good, and a file of its answers."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    labels = np.arange(120) % len(HOSTILE)
    logits = rng.normal(size=(120, 9)) + 2 * np.eye(9)[labels + 2]
    np.savez(folder / "answers.npz", logits=logits.astype(np.float32), labels=np.array(HOSTILE)[labels])
    (folder / "labels.json").write_text(json.dumps([*HOSTILE, "plain", "cat, tom, mouser, tabby", "=2"]))
    words = ("map", "answers.npz", "--mapping", "blm+", "--source-labels", "labels.json", "--out", "mapping")
    here(*words, "--top-k", 3, cwd=folder)
    return folder / "mapping"
