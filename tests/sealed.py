"""Files that carry a SHA-256: what they hold, and how somebody who knows the format would forge one."""

import json

from reprogram.files import write_sealed


def content(path):
    """What a sealed file holds, without the seal."""
    return without_seal(json.loads(path.read_text()))


def without_seal(values):
    return {name: value for name, value in values.items() if name != "sha256"}


def without_times(path):
    """The epochs of a metrics.jsonl, to be compared with those of another run."""
    lines = path.read_text().splitlines()
    return [{**without_seal(json.loads(line)), "seconds": 0, "images_per_second": 0} for line in lines]


def forge(path, **changes):
    """Change a sealed file and seal it again."""
    write_sealed(path, {**content(path), **changes})
