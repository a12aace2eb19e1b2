"""The short version of the flips: bits of every file that is written, for every reader."""

import json
import os
import shutil

import pytest

from soak.faults import scratch
from soak.flips import Reader, Tally, bits_of, flip, merged, try_flips

_FLIPS = 200


@pytest.fixture(scope="module")
def tallies():
    base, cache = scratch("flips"), os.environ.get("REPROGRAM_CACHE")
    yield merged([try_flips(str(base / "material"), str(_FLIPS), "600", "0")])
    shutil.rmtree(base)
    assert os.environ.get("REPROGRAM_CACHE") == cache


def test_every_flipped_bit_is_refused_or_mended(tallies):
    assert [problem for tally in tallies for problem in tally.problems] == []
    assert all(tally.refused == tally.tried > 0 for tally in tallies)


def test_every_kind_of_file_is_tried(tallies):
    assert {tally.file for tally in tallies} >= {
        "artefact/artefact.json",
        "artefact/artefact.safetensors",
        "artefact/labels.csv",
        "cache *.json",
        "cache *.npy",
        "checkpoint/state.safetensors",
        "chosen/selection.json",
        "mapping/artefact.json",
        "mapping/artefact.safetensors",
        "mapping/labels.csv",
        "run/config.json",
        "run/environment.json",
        "run/images.txt",
        "run/metrics.jsonl",
        "run/predictions.csv",
        "run/program.safetensors",
        "run/result.json",
        "shard *.npz",
        "shard *.parquet",
        "shards/manifest.json",
        "tables/manifest.json",
    }


def test_a_reader_that_does_not_look_is_noticed(tmp_path):
    path = tmp_path / "numbers.json"
    path.write_text('{"a": 1234567}')
    whole = path.read_bytes()
    tally = flip(path, Reader("careless", ("*",), lambda path: json.loads(path.read_bytes())), bits_of(path, 500, 0))
    assert tally.tried == 8 * len(whole)
    assert tally.refused == 0
    assert any("it was not noticed" in problem for problem in tally.problems) or len(tally.problems) == 5
    assert path.read_bytes() == whole


def test_a_refusal_must_name_the_file_and_say_what_to_do(tmp_path):
    from reprogram.errors import ReprogramError

    def vague(path):
        raise ReprogramError("something is damaged; make it again")

    def curt(path):
        raise ReprogramError(f"{path.name} is damaged")

    def clear(path):
        raise ReprogramError(f"{path.name} is damaged; make it again")

    path = tmp_path / "some.json"
    path.write_bytes(b"{}")
    counts = [flip(path, Reader("", ("*",), read), range(4)).refused for read in (vague, curt, clear)]
    assert counts == [0, 0, 4]


def test_bits_are_all_of_a_small_file_and_random_ones_of_a_large_one(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    assert sorted(bits_of(path, 100, 0)) == list(range(80))
    path.write_bytes(bytes(100_000))
    bits = bits_of(path, 400, 0)
    assert len(set(bits)) == 400
    assert bits == bits_of(path, 400, 0) != bits_of(path, 400, 1)
    assert min(bits) < 512
    assert max(bits) >= 800_000 - 512


def test_tallies_of_several_processes_are_added():
    first, second = Tally("load", "a", 3, 2, ["x"]), Tally("load", "a", 5, 5)
    (both,) = merged([[vars(first)], [vars(second)]])
    assert (both.tried, both.refused, both.problems) == (8, 7, ["x"])
