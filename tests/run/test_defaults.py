"""Every default that depends on the model, the data or the protocol is decided by `resolve`, whoever asks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sealed
from command import here
from conftest import draw_folder
from reprogram.data.paper_sets import PAPER
from reprogram.data.registry import absolute_spec
from reprogram.mappings.registry import MAPPINGS
from reprogram.run.build import known_facts, prepare
from reprogram.run.config import GIVEN, FitConfig
from reprogram.run.defaults import Facts, resolve
from reprogram.sources.registry import SOURCES

CLASSIFIER = Facts(input_size=224, native_size=500)
CLIP = SOURCES["openclip"].kind
CLIP_FACTS = Facts(
    input_size=224,
    default_program=CLIP.default_program,
    frame=CLIP.default_frame,
    paper_training=dict(CLIP.paper_training),
    native_size=500,
)
TINY = {"model": "timm:test_resnet", "pretrained": False, "canvas": 32}


def test_the_defaults_of_a_classifier():
    config = resolve(FitConfig(), CLASSIFIER)
    assert (config.epochs, config.lr, config.batch_size, config.val_fraction) == (20, 0.002, 64, 0.1)
    assert (config.program, config.mapping, config.canvas, config.augment) == ("auto", "auto", 224, "none")
    assert config.schedule == "multistep"  # as patience may end it before a cycle has come to anything
    padded = resolve(FitConfig(program="padding", mapping="blm+"), CLASSIFIER)
    assert (padded.canvas, padded.extras["image_size"], padded.augment, padded.lr) == (224, 128, "none", 0.1)
    assert padded.extras["refresh"] == "reuse"


@pytest.mark.parametrize(
    ("said", "lr", "schedule"),
    [
        ({"program": "padding"}, 0.1, "onecycle"),
        ({"program": "watermark"}, 0.002, "onecycle"),
        ({"program": "watermark", "lr": 0.3, "schedule": "cosine"}, 0.3, "cosine"),
        ({"program": "none", "mapping": "linear"}, 0.05, "multistep"),
        ({"program": "watermark", "protocol": "paper"}, 0.01, "multistep"),
    ],
    ids=str,
)
def test_every_program_has_a_rate_of_its_own_and_the_paper_has_its_schedule(said, lr, schedule):
    config = resolve(FitConfig(**said), CLASSIFIER)
    assert (config.lr, config.schedule) == (lr, schedule)


def test_by_the_clock_there_are_at_most_as_many_epochs_as_in_the_paper():
    assert resolve(FitConfig(program="padding", minutes=5), CLASSIFIER).epochs == 200
    assert resolve(FitConfig(program="padding", minutes=5, epochs=30), CLASSIFIER).epochs == 30


def test_where_nothing_can_be_trained_nothing_is_tried():
    config = resolve(FitConfig(model="onnx:model.onnx"), Facts(input_size=224, default_program="none"))
    assert (config.program, config.mapping) == ("none", "auto")


def test_the_paper_s_protocol_names_the_paper_s_program_and_mapping():
    config = resolve(FitConfig(protocol="paper"), CLASSIFIER)
    assert (config.program, config.mapping, config.extras["image_size"]) == ("padding", "blm+", 128)
    told = resolve(FitConfig(protocol="paper", top_ratio=0.3, image_size=99), CLASSIFIER)
    assert (told.extras["top_ratio"], told.extras["image_size"]) == (0.3, 99)
    chosen = resolve(FitConfig(protocol="paper", mapping="auto", program="auto"), CLASSIFIER)
    assert (chosen.mapping, chosen.program) == ("auto", "auto")


@pytest.mark.parametrize(("published", "batch"), [(None, 256), (64, 64)])
def test_the_paper_s_protocol(published, batch):
    config = resolve(FitConfig(protocol="paper"), Facts(224, native_size=500, published_batch=published))
    assert (config.epochs, config.lr, config.batch_size, config.val_fraction) == (200, 0.01, batch, 0)
    assert (config.optimizer, config.schedule) == ("adam", "multistep")
    assert config.calibration == "none"
    assert resolve(FitConfig(), Facts(224)).calibration == "temperature"


def test_only_two_sets_of_the_paper_have_batches_of_64():
    assert {name for name, entry in PAPER.items() if entry.batch_size == 64} == {"dtd", "oxfordpets"}
    assert {entry.batch_size or 256 for name, entry in PAPER.items() if name not in ("dtd", "oxfordpets")} == {256}


def test_the_paper_trains_clip_otherwise():
    config = resolve(FitConfig(protocol="paper", model="openclip:ViT-B-16/openai"), CLIP_FACTS)
    assert (config.epochs, config.optimizer, config.lr, config.schedule) == (200, "sgd", 40, "cosine")
    assert (config.program, config.extras["frame"], config.augment) == ("watermark", 30, "none")


@pytest.mark.parametrize(
    ("mapping", "given", "expected"),
    [
        ("ilm", {}, "fresh"),
        ("blm", {}, "fresh"),
        ("blm+", {}, "fresh"),
        ("flm", {}, "never"),
        ("rlm", {}, None),
        ("blm+", {"refresh": "reuse"}, "reuse"),
        ("blm", {"refresh": "never"}, "never"),
    ],
)
def test_under_the_paper_s_protocol_a_pass_of_its_own_estimates_the_mapping(mapping, given, expected):
    assert resolve(FitConfig(protocol="paper", mapping=mapping, **given), CLASSIFIER).extras.get("refresh") == expected
    by_default = "reuse" if expected == "fresh" else expected
    assert resolve(FitConfig(mapping=mapping, **given), CLASSIFIER).extras.get("refresh") == by_default


def test_what_is_given_goes_before_the_protocol():
    config = resolve(FitConfig(protocol="paper", epochs=3, lr=0.2, batch_size=7, val_fraction=0.3), CLASSIFIER)
    assert (config.epochs, config.lr, config.batch_size, config.val_fraction) == (3, 0.2, 7, 0.3)


facts = st.builds(
    Facts,
    input_size=st.sampled_from([32, 224, 299]),
    default_program=st.sampled_from(["padding", "watermark", "none"]),
    frame=st.sampled_from([None, 30]),
    paper_training=st.sampled_from([{}, dict(CLIP.paper_training)]),
    native_size=st.integers(1, 600),
    published_size=st.sampled_from([None, 32, 128]),
    published_batch=st.sampled_from([None, 64]),
    flip_safe=st.sampled_from([None, True, False]),
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    facts,
    st.fixed_dictionaries(
        {"mapping": st.sampled_from([*MAPPINGS, "auto"]), "protocol": st.sampled_from(["default", "paper"])},
        optional={
            "program": st.sampled_from(["padding", "watermark", "none"]),
            "epochs": st.integers(1, 9),
            "augment": st.sampled_from(["none", "crop", "flip", "trivial", "trivial-flip"]),
            "loss_temperature": st.sampled_from(["none", "auto", 3.0]),
            "patience": st.integers(1, 5),
            "canvas": st.integers(8, 300),
            "shots": st.sampled_from([None, 3]),
        },
    ),
)
def test_resolve_is_pure_and_what_is_resolved_stays(known, given):
    config = FitConfig(**given)
    before = config.model_dump()
    resolved = resolve(config, known)
    assert config.model_dump() == before
    assert resolve(FitConfig(**given), known) == resolved
    assert resolve(resolved, known) == resolved
    again = FitConfig.read(json.loads(json.dumps(resolved.model_dump())))
    assert resolve(again, known).model_dump() == resolved.model_dump()
    assert all(getattr(resolved, name) == value for name, value in given.items())


# ---- one meaning, whichever way it is said


def paper_set(root, name):
    """A folder in the layout of one of the paper's sets is not needed to know what the paper prescribes for it."""
    return {"data": absolute_spec(str(draw_folder(root / name, per_class=5))), **TINY, "epochs": 1}


def test_flag_file_and_python_mean_the_same_protocol(tmp_path):
    """The flag, the same word in a file, a file under the flag, and Python: one stored configuration."""
    values = {**paper_set(tmp_path, "set"), "mapping": "blm", "program": "none"}
    del values["epochs"]  # without a program there is one epoch, whatever is written
    flags = ["--data", values["data"], "--model", values["model"], "--no-pretrained", "--canvas", 32]
    flags += ["--mapping", "blm", "--program", "none"]
    (tmp_path / "all.json").write_text(json.dumps({**values, "protocol": "paper"}))
    (tmp_path / "some.json").write_text(json.dumps(values))
    ways = {
        "flags": [*flags, "--protocol", "paper"],
        "file": ["--config", tmp_path / "all.json"],
        "file and flag": ["--config", tmp_path / "some.json", "--protocol", "paper"],
    }
    for name, arguments in ways.items():
        here("fit", *arguments, "--out", tmp_path / "runs" / name, cwd=tmp_path)
    stored = {name: sealed.content(tmp_path / "runs" / name / "config.json") for name in ways}
    assert stored["flags"] == stored["file"] == stored["file and flag"]
    found = stored["flags"]
    assert (found["epochs"], found["lr"], found["batch_size"], found["val_fraction"]) == (200, 0.01, 256, 0)
    assert found["refresh"] == "fresh"
    python = prepare(FitConfig(**values, protocol="paper")).config.model_dump()
    assert {**python, "data_root": found["data_root"], GIVEN: found[GIVEN]} == found


def test_a_run_s_own_file_under_another_protocol_is_decided_anew(tmp_path):
    """What was given stays; what had been decided for it does not."""
    data = draw_folder(tmp_path / "set", per_class=5)
    flags = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", 32, "--program", "none", "--mapping", "blm")
    here("fit", data, *flags, "--lr", 0.3, "--out", tmp_path / "run")
    here("fit", "--config", tmp_path / "run" / "config.json", "--protocol", "paper", "--out", tmp_path / "paper")
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("run", "paper"))
    names = ("epochs", "lr", "batch_size", "val_fraction", "refresh")
    assert [before[name] for name in names] == [20, 0.3, 64, 0.1, "reuse"]
    assert [after[name] for name in names] == [200, 0.3, 256, 0, "fresh"]


def test_a_file_that_names_a_clip_gets_the_program_of_a_clip(tmp_path):
    import tiny_clip

    clip = tiny_clip.train(tmp_path / "clip", steps=0)
    data = draw_folder(tmp_path / "set", per_class=5)
    (tmp_path / "c.json").write_text(json.dumps({"model": f"openclip:{clip}", "data": str(data)}))
    common = ("--epochs", 1, "--batch-size", 16, "--templates", "default", "--mapping", "blm")
    here("fit", "--config", tmp_path / "c.json", *common, "--out", tmp_path / "file")
    here("fit", "--model", f"openclip:{clip}", "--data", data, *common, "--out", tmp_path / "flag")
    stored = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("file", "flag")]
    assert stored[0] == stored[1]
    assert (stored[0]["program"], stored[0]["canvas"], stored[0]["frame"]) == ("auto", 32, 4)


def test_facts_are_those_of_the_model_and_the_data(tmp_path):
    prepared = prepare(FitConfig(**paper_set(tmp_path, "set"), program="none"))
    found = known_facts(prepared.model.frozen, prepared.data)
    assert (found.native_size, found.default_program, found.frame, found.published_batch) == (40, "padding", None, None)
    assert found.input_size == prepared.model.frozen.input_size


@pytest.mark.parametrize(("canvas", "frame"), [(448, 60), (224, 30), (32, 4), (8, 1)])
def test_the_frame_of_a_clip_follows_the_canvas(canvas, frame):
    facts = Facts(input_size=canvas, default_program="watermark", frame=30)
    assert resolve(FitConfig(mapping="blm"), facts).extras["frame"] == frame
