"""Command lines and configuration files that nobody means well with: one sentence, before torch is imported."""

import json
import os

import pytest

from hostile import special_files
from reprogram.cli.arguments import parse, spell
from reprogram.cli.checks import check_fit, check_folder, check_logits, check_map
from reprogram.cli.commands import EvaluateCommand, PredictCommand
from reprogram.cli.run_checks import check_predict, check_run
from reprogram.cli.table import COMMANDS
from reprogram.errors import ReprogramError

CONFIGS = {
    "deep": (b'{"data": ' + b"[" * 100_000, "configuration '.*c.json' is not a readable JSON file"),
    "a number of 5,000 digits": (b'{"epochs": ' + b"9" * 5000 + b"}", "not a readable JSON file"),
    "a text of 5,000 digits": (json.dumps({"epochs": "9" * 5000}).encode(), "--epochs '?999.* was given, but"),
    "more than can be counted": (b'{"epochs": 9223372036854775808}', "--epochs 9223372036854775808 was given, but"),
    "NaN": (b'{"lr": NaN}', "not a readable JSON file"),
    "infinity": (b'{"lr": 1e999}', "not a readable JSON file"),
    "UTF-16": ('{"epochs": 1}'.encode("utf-16"), "not a readable JSON file"),
    "a list": (b"[1]", "holds no table of settings"),
    "a list of what was given": (b'{"given": [1]}', "holds no table of settings"),
    "a long name": (json.dumps({"x" * 5000: 1}).encode(), "setting 'xxx.* is not known"),
    "a name of two lines": (b'{"a\\nb": 1}', r"setting 'a\\nb' is not known"),
    "a long model": (json.dumps({"model": "x" * 5000}).encode(), "model 'xxx.* is not of the form"),
    "a model of two lines": (b'{"model": "a\\nb"}', r"model 'a\\nb' is not of the form"),
    "a model that is no text": (b'{"model": {"a": []}}', r"--model .* was given, but"),
    "half a character": (b'{"data": "\\ud800"}', "data '.ud800' is neither"),
    "a long path": (json.dumps({"data": "x" * 5000}).encode(), "data 'xxx.* is neither"),
    "a long table": (json.dumps({"data": "x" * 5000 + ".csv"}).encode(), "data 'xxx.* does not exist"),
    "weights of a long path": (json.dumps({"weights": "x" * 5000}).encode(), "weights file 'xxx.* does not exist"),
    "an onnx file of a long path": (json.dumps({"model": "onnx:" + "x" * 5000}).encode(), "onnx file 'xxx.* does not"),
    "a zero byte in a path": (b'{"data": "a\\u0000b"}', "zero byte"),
    "a zero byte in weights": (b'{"weights": "a\\u0000b"}', "zero byte"),
    "a zero byte in a folder": (b'{"data_root": "a\\u0000b"}', "zero byte"),
    "nobody's folder": (b'{"data": "~nobody-here/x"}', "a user that is not known"),
    "a canvas without end": (b'{"canvas": 1000000000}', "--canvas 1000000000 was given, but"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_hostile_configuration_is_one_sentence(case, tmp_path):
    content, message = CONFIGS[case]
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(ReprogramError, match=message) as raised:
        check_fit({"config": str(tmp_path / "c.json")})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_a_configuration_that_is_no_plain_file(tmp_path):
    for path in special_files(tmp_path):
        with pytest.raises(ReprogramError, match=r"configuration .* is no plain file"):
            check_fit({"config": str(path)})
    for word, message in (("x" * 5000, "does not exist"), ("a\0b", "zero byte"), ("~nobody-here", "not known here")):
        with pytest.raises(ReprogramError, match=message):
            check_fit({"config": word})


@pytest.mark.parametrize("word", ["x" * 5000, "x/" * 3000, "a\0b", "~nobody-here/x", "a\nb", "\udcff", "\x1b[31m"])
def test_hostile_words_are_one_sentence(word):
    for check in (
        lambda: check_folder(word),
        lambda: check_predict(PredictCommand(run=os.curdir, images=[word])),
        lambda: check_run(EvaluateCommand(run=os.curdir, data=word)),
        lambda: check_fit({"images": word}),
        lambda: check_fit({"out": word, "resume": True}),
        lambda: check_logits({"out": "x", "data": word}),
        lambda: check_logits({"out": "x", "run": word}),
        lambda: check_map({"files": ["x"], "mapping": word}),
        lambda: check_map({"files": ["x"], "mapping": "none of them", "out": word}),
        lambda: check_fit(parse(COMMANDS["fit"].schema, ["--epochs", "3", f"--{word}"], "reprogram fit")),
        lambda: parse(COMMANDS["fit"].schema, ["a", word], "reprogram fit"),
        lambda: parse(COMMANDS["fit"].schema, [f"--download={word}"], "reprogram fit"),
    ):
        with pytest.raises(ReprogramError) as raised:
            check()
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 2500


def test_an_image_that_is_no_plain_file(tmp_path):
    for path in special_files(tmp_path):
        with pytest.raises(ReprogramError, match="is no plain file"):
            check_predict(PredictCommand(run=str(tmp_path), images=[str(path)]))


def test_values_are_spelled_on_one_line():
    assert spell("batch_size", "many") == "--batch-size many"
    assert spell("batch_size", "a\nb") == r"--batch-size 'a\nb'"
    assert len(spell("batch_size", "9" * 5000)) < 250


def test_very_many_flags_are_counted_in_no_time():
    with pytest.raises(ReprogramError, match=r"--flag-7 was given 2 times"):
        parse(COMMANDS["fit"].schema, [*(f"--flag-{number}" for number in range(50_000)), "--flag-7"], "reprogram fit")
