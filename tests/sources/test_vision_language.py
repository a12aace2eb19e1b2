"""CLIP as a source: real architectures with random weights, and a tiny one that was trained and truly sees."""

import json
import logging
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

import oracle
import reprogram
import tiny_clip
from reprogram.cli.main import main
from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.errors import ReprogramError
from reprogram.images.pictures import pil_to_tensor
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.registry import MAPPINGS
from reprogram.programs.base import NoProgram
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.run.build import known_facts
from reprogram.run.config import FitConfig
from reprogram.run.defaults import resolve
from reprogram.sources import openclip_models
from reprogram.sources.load import (
    describe_model,
    explain_sources,
    list_models,
    load_frozen,
    load_text_encoder,
)
from reprogram.sources.openclip_models import import_open_clip
from reprogram.sources.request import Request
from reprogram.sources.settings import TextOptions
from reprogram.sources.texts import Texts
from reprogram.sources.vision_language import TextEncoder, VisionLanguage, label_similarity
from reprogram.statistics.joint import JointStatistics

SHAPES = tiny_clip.SHAPES
TEMPLATES = ("This is a photo of a {}.", "a close-up photo of a {}.", "a drawing of a {}.")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a trained tiny CLIP."""
    return tiny_clip.train(tmp_path_factory.mktemp("clip") / "tiny")


@pytest.fixture(scope="session")
def theirs(tiny):
    """The same model as open_clip itself loads it."""
    logging.getLogger().addHandler(logging.NullHandler())
    return import_open_clip().create_model(f"local-dir:{tiny}").eval()


@pytest.fixture(scope="session")
def frozen(tiny):
    return load_frozen(f"openclip:{tiny}", classes=SHAPES, templates=TEMPLATES)


@pytest.fixture(scope="session")
def data():
    """The same shapes with little contrast, which the tiny CLIP has not seen and reads badly."""
    parts = {"train": (20, 5), "test": (20, 6)}
    splits = {name: ArraySplit(*tiny_clip.drawn(SHAPES, *how, dim=True)) for name, how in parts.items()}
    return DataSet("dim shapes", SHAPES, **splits)


def watermark(frozen, frame=4):
    return Watermark(frozen.input_size, frame, frozen.interpolation)


def reprogrammed(frozen, mapping, classes=SHAPES, program=None):
    mapping = reprogram.make_mapping(mapping, frozen.labels, classes)
    return reprogram.Reprogrammed(program or watermark(frozen), frozen, mapping)


# ---- open_clip's own architectures


@pytest.fixture(scope="module", params=["ViT-B-32/openai", "RN50"])
def real(request):
    name = f"openclip:{request.param}"
    return load_frozen(name, pretrained=False, classes=["Cat", "sea_lion"], templates=["a {}.", "the {} here."])


def test_real_architectures_are_fed_as_open_clip_feeds_them(real):
    open_clip = import_open_clip()
    assert (real.input_size, real.interpolation, real.k_source) == (224, "bicubic-crop", 4)
    assert real.labels == ["a cat.", "a sea lion.", "the cat here.", "the sea lion here."]
    config = open_clip.transform.PreprocessCfg(**real.module.image_tower.preprocess_cfg)
    prepare = open_clip.transform.image_transform_v2(config, is_train=False)
    program = NoProgram(224, real.interpolation).bind(real.mean, real.std)
    rng = np.random.default_rng(0)
    for size in [(300, 401), (224, 224), (90, 57), (225, 224)]:
        picture = Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8))
        ours = program(pil_to_tensor(picture, 224, real.interpolation)[None])
        torch.testing.assert_close(ours[0], prepare(picture), atol=1e-6, rtol=1e-6)


def test_real_architectures_train_a_frame_and_stay_as_they_are(real, monkeypatch):
    before, fused = real.fingerprint, []
    classes = ("cat", "sea lion")
    model = reprogrammed(real, "none", classes, watermark(real, frame=30))
    assert model.program.free_parameters == 69840
    split = ArraySplit(torch.randint(256, (2, 3, 224, 224), dtype=torch.uint8), torch.tensor([0, 1]))
    attention = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **b: fused.append(1) or attention(*a, **b))
    result = reprogram.fit(model, DataSet("noise", classes, split, split), epochs=1, batch_size=2)
    assert np.isfinite(result.records[0]["loss"])
    assert model.program.theta.abs().max() > 0
    assert real.fingerprint == before
    assert not any(parameter.requires_grad for parameter in real.module.parameters())
    assert fused, "attention goes through the fused kernel"


def test_openai_weights_get_the_activation_that_they_were_trained_with(real, monkeypatch):
    """open_clip itself only warns that `ViT-B-32` with the tag `openai` is not OpenAI's model."""
    activations = {type(part).__name__ for part in real.module.modules()} & {"GELU", "QuickGELU"}
    assert activations == ({"QuickGELU"} if "ViT" in real.name else set())
    quick = []
    monkeypatch.setattr(import_open_clip(), "create_model", lambda _, **settings: quick.append(settings["force_quick_gelu"]))
    for tag in ("openai", "laion2b_s34b_b79k"):
        request = Request("openclip", f"ViT-B-32/{tag}", TextOptions(), pretrained=False)
        openclip_models._Source(request).build()
    assert quick == [True, False]


# ---- the tiny CLIP


def test_the_tiny_clip_truly_sees(frozen):
    images, labels = tiny_clip.drawn(SHAPES, 40, seed=9)
    for mapping in ("none", "ensemble"):
        prediction = reprogrammed(frozen, mapping, program=NoProgram(32)).predict(images)
        assert (prediction.indices == labels).float().mean() > 0.6, "chance is 1/6"


def test_logits_are_those_of_open_clip(frozen, theirs):
    pixels = torch.randn(5, 3, 32, 32)
    tokens = import_open_clip().SimpleTokenizer(context_length=16)(list(frozen.labels))
    with torch.no_grad():
        expected, _ = theirs.get_logits(pixels, tokens)
        torch.testing.assert_close(frozen(pixels), expected, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(frozen.features(pixels), theirs.encode_image(pixels, normalize=True))
        torch.testing.assert_close(frozen.text, theirs.encode_text(tokens, normalize=True), atol=1e-5, rtol=1e-5)
    assert frozen.scale == pytest.approx(theirs.logit_scale.exp().item())


def test_the_oracle_agrees_on_texts_logits_and_mappings(frozen, theirs, data):
    pixels = (data.train.pixels(32) / 255 - frozen.mean) / frozen.std
    pixels, labels = pixels[::10], data.train.labels[::10]
    tokenize = import_open_clip().SimpleTokenizer(context_length=16)
    texts = oracle.texts_of(SHAPES, TEMPLATES)
    assert frozen.labels == texts
    with torch.no_grad():
        images, words = theirs.encode_image(pixels), theirs.encode_text(tokenize(texts))
        ours = frozen(pixels)
    slow = np.array(oracle.clip_logits(images, words, theirs.logit_scale.item()))
    np.testing.assert_allclose(ours, slow, atol=1e-4)
    counts = JointStatistics.counts(len(texts), 6).update(ours, labels)
    sums = JointStatistics.probabilities(len(texts), 6, 2).update(ours, labels)
    np.testing.assert_allclose(bayes(counts), oracle.blm(slow, labels, 6, 1), atol=1e-6)
    np.testing.assert_allclose(bayes(sums), oracle.blm_plus(slow, labels, 6, 2, 1), atol=1e-5)
    chosen = one_to_one(counts).argmax(0).tolist()
    assert chosen == oracle.greedy(oracle.frequency_matrix(slow.tolist(), labels.tolist(), 6))


@pytest.mark.filterwarnings("ignore::reprogram.errors.EvidenceWarning")
@pytest.mark.parametrize("mapping", list(MAPPINGS))
def test_every_mapping_trains_saves_loads_predicts_and_explains(frozen, data, tmp_path, mapping):
    model, before = reprogrammed(frozen, mapping), frozen.fingerprint
    result = reprogram.fit(model, data, epochs=3, batch_size=60, mapping_lr=0.001)
    losses = [record["loss"] for record in result.records]
    assert losses[-1] < losses[0]
    assert frozen.fingerprint == before
    model.save(tmp_path / "artefact")
    again = reprogram.Reprogrammed.load(tmp_path / "artefact")
    images = data.test.images[:7]
    assert torch.equal(again(images), model(images))
    prediction = again.predict(images, evidence=2)
    assert {reason.source for reasons in prediction.evidence for reason in reasons} <= set(frozen.labels)
    speakers = again.explain(2).classes["circle"]
    assert len(speakers) == min(2, int((again.mapping.weights[:, SHAPES.index("circle")] != 0).sum()))
    assert {speaker.source for speaker in speakers} <= set(frozen.labels)


def test_the_explanation_is_in_texts(frozen):
    lines = str(reprogrammed(frozen, "ensemble").explain()).splitlines()
    assert lines[0] == "circle"
    assert {line.split("  ")[-1] for line in lines[1:4]} == {template.format("circle") for template in TEMPLATES}


def test_padding_works_too(frozen, data):
    program = Padding(32, 24, frozen.interpolation)
    result = reprogram.fit(reprogrammed(frozen, "none", program=program), data, epochs=2, batch_size=60)
    assert result.records[1]["loss"] < result.records[0]["loss"]


def test_the_mean_of_the_texts_is_the_ensemble(frozen):
    pixels = torch.randn(4, 3, 32, 32)
    means = F.normalize(frozen.text.view(len(TEMPLATES), len(SHAPES), -1).mean(0), dim=1)
    mapping = reprogram.make_mapping("ensemble", frozen.labels, SHAPES)
    torch.testing.assert_close(mapping(frozen(pixels)), frozen.scale * frozen.features(pixels) @ means.T)


def test_the_ensemble_needs_texts(lite0):
    with pytest.raises(ReprogramError, match="mapping 'ensemble' averages texts"):
        reprogram.make_mapping("ensemble", lite0.labels, ["cat"])


def test_the_mapping_can_be_taken_through_the_features(frozen):
    pixels, omega = torch.randn(4, 3, 32, 32), torch.rand(18, 6)
    torch.testing.assert_close(frozen.features(pixels) @ frozen.folded(omega), frozen(pixels) @ omega, atol=1e-4, rtol=1e-5)


def test_the_span_holds_all_logits(frozen):
    span, logits = frozen.span.double(), frozen(torch.randn(50, 3, 32, 32)).double()
    assert span.shape[0] == frozen.k_source
    assert span.shape[1] <= min(frozen.text.shape)
    torch.testing.assert_close(span.T @ span, torch.eye(span.shape[1], dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(logits @ span @ span.T, logits, atol=1e-4, rtol=1e-5)
    assert frozen.span is frozen.span


def test_the_span_counts_directions_not_texts():
    texts = Texts(["a", "b", "c"], ["{}", "the {}", "one {}"])
    tower = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 7))
    text = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)) @ torch.eye(7)[:2]
    assert VisionLanguage(tower, text, texts, logit_scale=0.0, input_size=1).span.shape == (9, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cosines_are_float32_under_autocast(frozen, dtype):
    pixels = torch.randn(4, 3, 32, 32)
    with torch.autocast("cpu", dtype):
        logits, features = frozen(pixels), frozen.features(pixels)
    assert logits.dtype == features.dtype == torch.float32
    torch.testing.assert_close(features.norm(dim=1), torch.ones(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(logits, frozen.scale * features @ frozen.text.T, atol=1e-5, rtol=1e-6)


def test_low_precision_trains(frozen, data):
    result = reprogram.fit(reprogrammed(frozen, "none"), data, epochs=2, batch_size=60, precision="bf16")
    assert result.records[1]["loss"] < result.records[0]["loss"]


def test_an_interrupted_training_ends_with_the_same_numbers(frozen, data, tmp_path):
    whole = reprogrammed(frozen, "blm+")
    reprogram.fit(whole, data, epochs=2, batch_size=60)

    def stop(records, _):
        if len(records) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reprogram.fit(reprogrammed(frozen, "blm+"), data, epochs=2, batch_size=60, checkpoint=tmp_path / "c", on_epoch=stop)
    again = reprogrammed(load_frozen(**frozen.spec), "blm+")
    reprogram.fit(again, data, epochs=2, batch_size=60, checkpoint=tmp_path / "c")
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in whole.state_dict().items())


# ---- loading


def test_the_fingerprint_covers_images_texts_and_scale(tiny, frozen, tmp_path):
    name, same = f"openclip:{tiny}", {"classes": SHAPES, "templates": TEMPLATES}
    assert load_frozen(name, **same).fingerprint == load_frozen(**frozen.spec).fingerprint == frozen.fingerprint
    found = {frozen.fingerprint}
    found.add(load_frozen(name, classes=SHAPES[::-1], templates=TEMPLATES).fingerprint)
    found.add(load_frozen(name, classes=SHAPES, templates=TEMPLATES[:2]).fingerprint)
    state = load_file(tiny / "open_clip_model.safetensors")
    for key in ("logit_scale", "visual.proj", "token_embedding.weight"):
        save_file({**state, key: state[key] + 0.01}, tmp_path / f"{key}.safetensors")
        found.add(load_frozen(name, weights=tmp_path / f"{key}.safetensors", **same).fingerprint)
    assert len(found) == 6


def test_the_fingerprint_does_not_depend_on_rounding(frozen):
    """Another processor rounds the text embeddings differently; an artefact must still know its model."""
    tower, labels, key = frozen.module.image_tower, frozen.labels, frozen._text_key
    settings = {"logit_scale": np.log(frozen.scale), "input_size": 32, "text_key": key}
    first, second = (VisionLanguage(tower, frozen.text + noise, labels, **settings) for noise in (0, 1e-7))
    assert first.fingerprint == second.fingerprint
    del settings["text_key"]
    first, second = (VisionLanguage(tower, frozen.text + noise, labels, **settings) for noise in (0, 0.1))
    assert first.fingerprint != second.fingerprint


def test_a_spec_is_plain_json_and_enough(frozen):
    spec = json.loads(json.dumps(frozen.spec))
    assert (spec["classes"], spec["templates"]) == (list(SHAPES), list(TEMPLATES))
    assert load_frozen(**spec).labels == frozen.labels


def test_text_embeddings_are_computed_once(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("REPROGRAM_CACHE", str(tmp_path))
    first = load_frozen(f"openclip:{tiny}", classes=SHAPES)
    (stored,) = (tmp_path / "texts").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(TextEncoder, "_compute", lambda *_: pytest.fail("they are in the cache"))
        assert torch.equal(load_frozen(f"openclip:{tiny}", classes=SHAPES).text, first.text)
    stored.write_bytes(b"damaged")
    assert torch.equal(load_frozen(f"openclip:{tiny}", classes=SHAPES).text, first.text)
    assert stored.stat().st_size > 1000


def test_a_cache_that_cannot_be_written_does_no_harm(tiny, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPROGRAM_CACHE", str(tmp_path / "file"))
    assert load_frozen(f"openclip:{tiny}", classes=SHAPES, templates="default").k_source == 6


def test_the_text_tower_is_let_go(frozen):
    names = [name for name, _ in frozen.module.named_modules()]
    assert not any("token" in name or "ln_final" in name for name in names)
    assert frozen.parameter_count < 150_000
    assert not frozen.state_dict()


@pytest.mark.parametrize("kind", ["CLIP", "CustomTextCLIP"])
def test_short_texts_are_not_padded_to_the_whole_context(kind):
    """Trimming is exact up to rounding, for texts of very different lengths and in the order that they came in."""
    torch.manual_seed(0)
    theirs = getattr(import_open_clip(), kind)(**tiny_clip.CONFIG).eval()
    encoder = TextEncoder(theirs, import_open_clip().SimpleTokenizer(context_length=16))
    texts = ["a", "one two three four five six seven eight nine ten eleven twelve thirteen fourteen", "wow!! a {}", "b " * 5]
    tokens, lengths = encoder.tokens(texts), []
    trimmed = encoder.tower.trimmed
    encoder.tower.trimmed = lambda tokens, length: lengths.append(length) or trimmed(tokens, length)
    with torch.no_grad():
        expected = theirs.encode_text(tokens, normalize=True)
        for count in (1, 3, 4):
            torch.testing.assert_close(encoder(texts[:count]), expected[:count], atol=1e-5, rtol=1e-5)
    assert lengths[0] == 3
    assert max(lengths) == 16


def test_a_configuration_file_and_weights_make_a_model(tiny, frozen, tmp_path):
    config = tiny_clip.write_config(tmp_path)
    texts = {"classes": SHAPES, "templates": TEMPLATES}
    weights = tiny / "open_clip_model.safetensors"
    loaded = load_frozen(f"openclip:{config}", weights=weights, **texts)
    assert loaded.fingerprint == frozen.fingerprint
    torch.save({"state_dict": {f"module.{key}": value for key, value in load_file(weights).items()}}, tmp_path / "own.pt")
    assert load_frozen(f"openclip:{config}", weights=tmp_path / "own.pt", **texts).fingerprint == frozen.fingerprint
    random = [load_frozen(f"openclip:{config}", pretrained=False, seed=seed, **texts).fingerprint for seed in (1, 1, 2)]
    assert random[0] == random[1] != random[2]


def test_a_tag_names_the_weights_and_how_images_are_prepared(tiny, frozen, monkeypatch):
    open_clip = import_open_clip()
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIGS", {"tiny": tiny_clip.CONFIG})
    feeding = {"interpolation": "bilinear", "mean": (0.5,) * 3, "std": (0.25,) * 3, "resize_mode": "squash"}
    tag = {"file": str(tiny / "open_clip_model.safetensors"), **feeding}  # what a download would bring
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda *_: tag)
    loaded = load_frozen("openclip:tiny/own", classes=SHAPES, templates=TEMPLATES)
    assert loaded.fingerprint == frozen.fingerprint
    assert (loaded.interpolation, loaded.std.flatten().tolist()) == ("bilinear", [0.25] * 3)


def test_squashed_images_are_squashed(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "squash")
    config = tmp_path / "squash" / "open_clip_config.json"
    preprocess = {"resize_mode": "squash", "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.25] * 3}
    config.write_text(json.dumps({"model_cfg": tiny_clip.CONFIG, "preprocess_cfg": preprocess}))
    loaded = load_frozen(f"openclip:{config.parent}", classes=SHAPES, templates="default")
    assert (loaded.interpolation, loaded.mean.flatten().tolist()) == ("bilinear", [0.5] * 3)
    config.write_text(json.dumps({"model_cfg": tiny_clip.CONFIG, "preprocess_cfg": {"resize_mode": "longest"}}))
    with pytest.raises(ReprogramError, match="resized by 'longest'"):
        load_frozen(f"openclip:{config.parent}", classes=SHAPES, templates="default")


def test_loading_leaves_the_loggers_and_the_hub_alone(tiny):
    import huggingface_hub.constants

    root = logging.getLogger()
    before = list(root.handlers), list(root.filters), huggingface_hub.constants.HF_HUB_OFFLINE
    load_frozen(f"openclip:{tiny}", classes=SHAPES, templates="default", pretrained=False)
    assert (list(root.handlers), list(root.filters), huggingface_hub.constants.HF_HUB_OFFLINE) == before


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_weights_with_code_in_them_are_refused_and_the_code_does_not_run(tiny, tmp_path):
    torch.save({"logit_scale": torch.ones(()), "bomb": Bomb(tmp_path / "crater")}, tmp_path / "evil.pt")
    with pytest.raises(ReprogramError, match=r"evil\.pt"):
        load_frozen(f"openclip:{tiny}", classes=SHAPES, weights=tmp_path / "evil.pt")
    (tmp_path / "evil.bin").write_bytes(pickle.dumps({"bomb": Bomb(tmp_path / "crater")}))
    with pytest.raises(ReprogramError, match=r"evil\.bin"):
        load_frozen(f"openclip:{tiny}", classes=SHAPES, weights=tmp_path / "evil.bin")
    assert not (tmp_path / "crater").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("openclip:ViT-B-33", {}, "no model 'ViT-B-33'; did you mean 'ViT-B-32'"),
        ("openclip:ViT-B-32/opena", {}, "'opena' is not known; did you mean 'openai'"),
        ("openclip:ViT-B-32", {}, "does not say which weights; name their tag, such as openclip:ViT-B-32/openai"),
        ("openclip:ViT-B-32", {"classes": None}, "has no labels of its own"),
        ("openclip:nothing.json", {}, "'nothing.json' does not exist"),
        ("openclip:ViT-B-32/openai", {"weights": "nowhere.pt"}, "'nowhere.pt' does not exist"),
        ("openclip:ViT-B-16-SigLIP", {"pretrained": False}, "the tokenizer of openclip:ViT-B-16-SigLIP"),
        ("openclip:ViT-B-32", {"templates": "a photo", "pretrained": False}, "set of templates 'a photo'"),
        ("timm:test_resnet", {"pretrained": False, "templates": None}, "classes was given, but timm:test_resnet has labels"),
        (
            "timm:test_resnet",
            {"classes": None},
            "model source 'timm' does not use templates; leave it out, or choose one that does: openclip",
        ),
        ("openclip:", {}, "names no architecture"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(name, options, message):
    with pytest.raises(ReprogramError) as caught:
        load_frozen(name, **{"classes": ["cat"], "templates": "default", **options})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_on_disk_are_answered_in_a_sentence(tiny, tmp_path):
    texts = {"classes": SHAPES, "templates": "default"}
    (tmp_path / "bad.json").write_text('{"embed_dim": 3}')
    with pytest.raises(ReprogramError, match="not a configuration of open_clip"):
        load_frozen(f"openclip:{tmp_path / 'bad.json'}", **texts)
    shutil.copy(tiny / "open_clip_config.json", tmp_path)
    with pytest.raises(ReprogramError, match="holds no weights"):
        load_frozen(f"openclip:{tmp_path}", **texts)
    with pytest.raises(ReprogramError, match="does not say which weights; give a file"):
        load_frozen(f"openclip:{tiny_clip.write_config(tmp_path)}", **texts)
    save_file({"visual.proj": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ReprogramError, match="the weights do not fit"):
        load_frozen(f"openclip:{tmp_path}", weights=tmp_path / "other.safetensors", **texts)


def test_a_folder_that_happens_to_be_called_like_a_model_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ViT-B-32").mkdir()
    (tmp_path / "photos").mkdir()
    with pytest.raises(ReprogramError, match="does not say which weights"):
        load_frozen("openclip:ViT-B-32", classes=["cat"], templates="default")
    with pytest.raises(ReprogramError, match=r"neither a folder with open_clip_config\.json"):
        load_frozen("openclip:photos", classes=["cat"], templates="default")


def test_a_missing_package_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(ReprogramError, match=r"reprogram\[clip\]"):
        load_frozen("openclip:RN50", classes=["cat"])


def test_an_image_tower_of_another_width_is_refused():
    texts = Texts(["a"], ["{}"])
    with pytest.raises(ReprogramError, match=r"but \(N, 7\) is expected"):
        VisionLanguage(torch.nn.Flatten(), torch.randn(1, 7), texts, logit_scale=0.0, input_size=2)


def test_models_are_listed_and_described(tiny, capsys):
    assert {"openclip:ViT-B-32/openai", "openclip:RN50/openai"} < set(list_models("openclip:*"))
    assert list(explain_sources("openclip:*")) == ["openclip:FOLDER or openclip:FILE.json"]
    facts = describe_model(f"openclip:{tiny}")
    assert (facts["classes"], facts["input_size"], facts["interpolation"]) == (81, 32, "bicubic-crop")
    assert main(["models", "show", f"openclip:{tiny}"]) == 0
    assert "This is a photo of a <your class>." in capsys.readouterr().out


# ---- meanings of label names, for any source


def test_names_are_compared_by_their_meaning(tiny, lite0):
    encoder = load_text_encoder(f"openclip:{tiny}")
    alike = label_similarity(encoder, [*SHAPES, "Ring, annulus"], SHAPES)
    assert alike.shape == (7, 6)
    assert alike.argmax(1).tolist() == [0, 1, 2, 3, 4, 5, 4]
    with pytest.raises(ReprogramError, match="has no text encoder"):
        load_text_encoder("timm:resnet18")


def test_an_explanation_tells_whether_weights_and_names_agree(tiny, frozen):
    encoder = load_text_encoder(f"openclip:{tiny}")
    told = reprogrammed(frozen, "ensemble").explain(1, encoder=encoder)
    assert told.agreement > 0.3
    assert told.classes["ring"][0].similarity > 0.8
    assert "(likeness" in str(told)
    assert "agreement of weights and names: +" in str(told)
    assert reprogrammed(frozen, "ensemble").explain(1).agreement is None


# ---- the command line


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of drawings that are not square."""
    root, rng = tmp_path_factory.mktemp("drawings"), np.random.default_rng(3)
    for split in ("train", "test"):
        for shape in SHAPES[:3]:
            (root / split / shape).mkdir(parents=True)
            for index in range(6):
                tiny_clip.draw(shape, rng, size=(60, 40)).save(root / split / shape / f"{index}.png")
    return root


def test_fit_evaluate_and_predict_on_the_command_line(tiny, pictures, tmp_path, capsys):
    run, mine = tmp_path / "run", tmp_path / "mine.txt"
    mine.write_text("a photo of a {}.\na drawing of a {}.\n")
    common = ["fit", "--model", f"openclip:{tiny}", "--data", str(pictures), "--templates", str(mine)]
    assert main([*common, "--epochs", "1", "--program", "watermark", "--mapping", "blm+", "--out", str(run)]) == 0
    config = json.loads((run / "config.json").read_text())
    assert (config["program"], config["optimizer"], config["templates"]) == ("watermark", "adam", str(mine))
    artefact = json.loads((run / "artefact" / "artefact.json").read_text())
    assert artefact["program"]["interpolation"] == "bicubic-crop"
    assert artefact["program"]["frame"] == 4  # 30 of 224
    assert artefact["frozen"]["templates"] == ["a photo of a {}.", "a drawing of a {}."]
    mine.unlink()
    assert main(["evaluate", str(run)]) == 0
    capsys.readouterr()
    assert main(["predict", str(run), str(pictures / "test" / "circle" / "0.png")]) == 0
    assert "of a circle." in capsys.readouterr().out


def test_the_papers_protocol_for_this_kind_of_source(tiny, pictures, tmp_path):
    run = tmp_path / "run"
    common = ["--model", f"openclip:{tiny}", "--data", str(pictures), "--mapping", "ilm", "--out", str(run)]
    assert main(["fit", "--protocol", "paper", "--epochs", "1", *common]) == 0
    config = json.loads((run / "config.json").read_text())
    expected = {"optimizer": "sgd", "lr": 40.0, "schedule": "cosine", "program": "watermark", "templates": "paper81"}
    assert {key: config[key] for key in expected} == expected
    assert (config["batch_size"], config["val_fraction"]) == (256, 0)
    assert json.loads((run / "result.json").read_text())["labels"] == {"source": 243, "target": 3}


def test_images_for_clip_are_not_augmented_unless_asked_for(frozen, data):
    for given, expected in (({}, "none"), ({"augment": "flip"}, "flip")):
        config = FitConfig(model="openclip:RN50/openai", program="watermark", **given)
        assert resolve(config, known_facts(frozen, data)).augment == expected
