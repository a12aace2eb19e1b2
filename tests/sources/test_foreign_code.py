"""Folders that bring code of their own, made on the spot: whatever they ask for, it does not run and nobody is asked."""

import io
import json
import pickle
import sys

import pytest
import torch
from safetensors.torch import save_file

import tiny_clip
from reprogram import ReprogramError, Reprogrammed, make_mapping
from reprogram.programs import NoProgram
from reprogram.sources.load import describe_model, load_frozen, load_text_encoder
from reprogram.sources.openclip_models import import_open_clip
from reprogram.sources.torchvision_import import import_torchvision

import_torchvision()
transformers = pytest.importorskip("transformers")

TEXTS = {"classes": ["cat", "dog"], "templates": "default"}


class Prompt(io.StringIO):
    """A user who says yes to everything, and remembers having been asked."""

    asked = 0

    def readline(self, *_):
        self.asked += 1
        return "y\n"


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """The file that hostile code writes. It must not be there afterwards, and nobody may have been asked."""
    prompt, path = Prompt(), tmp_path / "code-has-run"
    monkeypatch.setattr(sys, "stdin", prompt)
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield path
    assert not path.exists()
    assert not prompt.asked


def write_code(folder, marker):
    """A Python file that tells on itself, with all the classes that a configuration may ask for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
        "from transformers import PreTrainedConfig, PreTrainedTokenizer\n"
        "class Config(PreTrainedConfig):\n    model_type = 'evil'\n"
        "class Tokenizer(PreTrainedTokenizer):\n    vocab_size = 3\n    def get_vocab(self): return {}\n"
        "class Processor: pass\nclass Model: pass\n"
    )
    return folder


def write_json(path, content):
    path.write_text(json.dumps(content))


def hostile_transformer(folder, marker):
    write_code(folder, marker)
    names = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoModelForImageClassification": "evil.Model"}
    write_json(folder / "config.json", {"model_type": "evil", "auto_map": names})
    return folder


def hostile_tokenizer(folder, marker):
    write_code(folder, marker)
    tokenizer = {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}
    write_json(folder / "tokenizer_config.json", tokenizer)
    return folder


def write_clip(folder, text=None, **changes):
    """A CLIP with random weights, as open_clip lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    save_file(import_open_clip().CLIP(**tiny_clip.CONFIG).state_dict(), folder / "open_clip_model.safetensors")
    config = {**tiny_clip.CONFIG, "text_cfg": {**tiny_clip.CONFIG["text_cfg"], **(text or {})}, **changes}
    write_json(folder / "open_clip_config.json", {"model_cfg": config, "preprocess_cfg": {}})
    return folder


@pytest.mark.parametrize("what", ["config", "tokenizer"])
def test_the_hostile_folders_do_run_code_where_they_are_allowed_to(tmp_path, monkeypatch, what):
    """Otherwise the other tests here would prove nothing."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    marker, folder = tmp_path / "code-has-run", tmp_path / "folder"
    if what == "config":
        hostile_transformer(folder, marker)
        transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    else:
        hostile_tokenizer(folder, marker)
        transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    assert marker.exists()


# ---- CLIP folders


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"hf_tokenizer_name": "any", "tokenizer_kwargs": {"trust_remote_code": True}}, "trust_remote_code"),
        ({"tokenizer_kwargs": {"trust_remote_code": True}}, "trust_remote_code"),
        ({"tokenizer_kwargs": {"bpe_path": "/etc/hostname"}}, "bpe_path"),
        ({"hf_tokenizer_name": "any"}, "code of its own"),
        ({"hf_tokenizer_name": "any", "tokenizer_kwargs": {"clean": "canonicalize"}}, "code of its own"),
        ({"hf_tokenizer_name": "../.."}, "hf_tokenizer_name"),
        ({"hf_tokenizer_name": ["any"]}, "hf_tokenizer_name"),
        ({"tokenizer_kwargs": "trust_remote_code"}, "tokenizer_kwargs"),
        ({"act_kwargs": {"inplace": True}}, "inplace"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"layers": {"a": 1}}, "layers"),
    ],
)
def test_the_texts_of_a_clip_folder_ask_for_code(tmp_path, marker, text, message):
    folder = write_clip(hostile_tokenizer(tmp_path / "clip", marker), text)
    with pytest.raises(ReprogramError, match=message) as caught:
        load_frozen(f"openclip:{folder}", **TEXTS)
    assert "\n" not in str(caught.value)


def test_a_text_tower_of_transformers_asks_for_code(tmp_path, marker):
    hostile = hostile_transformer(tmp_path / "hostile", marker)
    folder = write_clip(tmp_path / "clip", {"hf_model_name": str(hostile)})
    with pytest.raises(ReprogramError, match="hf_model_name"):
        load_frozen(f"openclip:{folder}", **TEXTS)


def test_a_text_tower_that_looks_like_a_name_asks_for_code(tmp_path, marker, monkeypatch):
    hostile_transformer(tmp_path / "owner" / "model", marker)
    folder = write_clip(tmp_path / "clip", {"hf_model_name": "owner/model"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReprogramError, match="code of its own"):
        load_frozen(f"openclip:{folder}", **TEXTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision_cfg": {"timm_model_name": "local-dir:/nowhere", "image_size": 32}}, "timm_model_name"),
        ({"vision_cfg": {"timm_model_name": "hf-hub:owner/model", "image_size": 32}}, "timm_model_name"),
        ({"vision_cfg": {**tiny_clip.CONFIG["vision_cfg"], "checkpoint_path": "x"}}, "checkpoint_path"),
        ({"vision_cfg": [1]}, "vision_cfg"),
        ({"embed_dim": "many"}, "embed_dim"),
        ({"cast_dtype": "x"}, "cast_dtype"),
        ({"multimodal_cfg": {"hf_model_name": "owner/model"}}, "hf_model_name"),
    ],
)
def test_the_architecture_of_a_clip_folder_is_read_by_a_list_of_settings(tmp_path, marker, changes, message):
    with pytest.raises(ReprogramError, match=message) as caught:
        load_frozen(f"openclip:{write_clip(tmp_path / 'clip', **changes)}", **TEXTS)
    assert "\n" not in str(caught.value)


def test_a_single_configuration_file_asks_for_code(tmp_path, marker):
    text = {**tiny_clip.CONFIG["text_cfg"], "hf_tokenizer_name": "any", "tokenizer_kwargs": {"trust_remote_code": True}}
    write_json(tmp_path / "own.json", {**tiny_clip.CONFIG, "text_cfg": text})
    with pytest.raises(ReprogramError, match="trust_remote_code"):
        load_frozen(f"openclip:{tmp_path / 'own.json'}", pretrained=False, **TEXTS)


def test_a_received_artefact_leads_to_a_hostile_folder(tmp_path, marker):
    folder = write_clip(tmp_path / "clip")
    frozen = load_frozen(f"openclip:{folder}", **TEXTS)
    program = NoProgram(frozen.input_size, frozen.interpolation)
    mapping = make_mapping("none", frozen.labels, TEXTS["classes"])
    Reprogrammed(program, frozen, mapping).save(tmp_path / "artefact")
    asks = {"hf_tokenizer_name": "any", "tokenizer_kwargs": {"trust_remote_code": True}}
    write_clip(hostile_tokenizer(folder, marker), asks)
    with pytest.raises(ReprogramError, match="trust_remote_code"):
        Reprogrammed.load(tmp_path / "artefact")


def test_settings_of_open_clips_own_models_are_all_on_the_lists(tmp_path):
    """What open_clip itself ships must stay loadable from a folder."""
    from reprogram.sources.openclip_config import checked_config

    open_clip = import_open_clip()
    for name in open_clip.list_models():
        config = open_clip.get_model_config(name)
        assert checked_config(config, name) == config


# ---- folders of transformers


def write_vit(folder, **changes):
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**written, **changes})
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    write_json(folder / "preprocessor_config.json", processor)
    return folder


def test_a_folder_of_transformers_asks_for_code(tmp_path, marker):
    with pytest.raises(ReprogramError, match="code of its own"):
        load_frozen(f"hf:{hostile_transformer(tmp_path / 'model', marker)}")


def test_an_image_processor_asks_for_code(tmp_path, marker):
    folder = write_code(write_vit(tmp_path / "model"), marker)
    processor = {"image_processor_type": "Processor", "auto_map": {"AutoImageProcessor": "evil.Processor"}}
    write_json(folder / "preprocessor_config.json", processor)
    with pytest.raises(ReprogramError, match="code of its own"):
        load_frozen(f"hf:{folder}")


def test_code_beside_a_known_architecture_is_left_alone(tmp_path, marker):
    folder = write_vit(tmp_path / "model", auto_map={"AutoModelForImageClassification": "evil.Model"})
    write_code(folder, marker)
    assert load_frozen(f"hf:{folder}").k_source == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": "owner/kernel"},
        {"_attn_implementation": "owner/kernel@main:name"},
        {"attn_implementation": {"": "sdpa", "encoder_config": "owner/kernel"}},
        {"backbone_config": {"model_type": "vit", "attn_implementation": "paged|owner/kernel"}},
    ],
)
def test_a_folder_asks_for_compiled_code_from_the_hub(tmp_path, changes):
    with pytest.raises(ReprogramError, match=r"attn_implementation = .*owner/kernel.* never run"):
        load_frozen(f"hf:{write_vit(tmp_path / 'model', **changes)}")


def test_ways_of_attention_that_torch_has_may_be_named(tmp_path):
    assert load_frozen(f"hf:{write_vit(tmp_path / 'model', attn_implementation='eager')}").k_source == 2


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_args": {"checkpoint_path": "PATH"}}, "checkpoint_path"),
        ({"model_args": {"pretrained_cfg": {"file": "PATH"}}}, "pretrained_cfg"),
        ({"model_args": {"pretrained_cfg_overlay": {"file": "PATH"}}}, "pretrained_cfg_overlay"),
        ({"model_args": {"img_size": {"a": "PATH"}}}, "img_size"),
        ({"model_args": ["PATH"]}, "model_args"),
        ({"architecture": "local-dir:PATH"}, "local-dir"),
        ({"architecture": 7}, "architecture"),
    ],
)
def test_a_wrapper_of_timm_asks_for_a_pickled_file(tmp_path, marker, changes, message):
    path, folder = tmp_path / "pickled.pt", tmp_path / "model"
    path.write_bytes(pickle.dumps({"state_dict": Bomb(marker)}))
    folder.mkdir()
    config = {"model_type": "timm_wrapper", "architecture": "test_resnet", "num_classes": 5}
    config |= json.loads(json.dumps(changes).replace("PATH", str(path)))
    write_json(folder / "config.json", config)
    with pytest.raises(ReprogramError, match=message):
        load_frozen(f"hf:{folder}", pretrained=False)


def test_a_wrapper_of_timm_without_such_wishes_is_loaded(tmp_path, marker):
    config = transformers.TimmWrapperConfig(architecture="test_resnet", num_labels=5, model_args={"drop_rate": 0.1})
    transformers.TimmWrapperForImageClassification(config).save_pretrained(tmp_path / "model")
    pretrained = {
        "input_size": [3, 32, 32],
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "crop_pct": 1.0,
        "interpolation": "bicubic",
    }
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    write_json(tmp_path / "model" / "config.json", {**written, "pretrained_cfg": pretrained})
    assert load_frozen(f"hf:{tmp_path / 'model'}").k_source == 5


def test_code_stays_unread_also_where_a_package_forgets_to_say_so(tmp_path, marker):
    from reprogram.sources.foreign_code import no_foreign_code

    folder = hostile_transformer(tmp_path / "model", marker)
    before = vars(transformers.dynamic_module_utils).copy()
    for options in ({}, {"trust_remote_code": True}):
        with pytest.raises(ReprogramError, match="code of its own"), no_foreign_code("hf:model"):
            transformers.AutoConfig.from_pretrained(folder, **options)
    assert vars(transformers.dynamic_module_utils) == before


# ---- and what is harmless works


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, "[SEP]": 2, "cat": 3, "dog": 4, "a": 5}
    rust = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=rust, pad_token="[PAD]", sep_token="[SEP]").save_pretrained(folder)
    return folder


def test_a_tokenizer_in_the_folder_is_used(tmp_path, marker):
    text = {"hf_tokenizer_name": "any", "tokenizer_kwargs": {"strip_sep_token": True}, "no_causal_mask": True}
    folder = write_clip(write_tokenizer(tmp_path / "clip"), text)
    encoder = load_text_encoder(f"openclip:{folder}")
    assert encoder.tokens(["a cat", "[SEP] bird"])[:, :3].tolist() == [[5, 3, 0], [0, 1, 0]]
    assert encoder.tokens(["a"]).shape == (1, 16)
    assert load_frozen(f"openclip:{folder}", **TEXTS).k_source == 2


@pytest.mark.parametrize(
    "preprocessing",
    [{"mean": 5}, {"mean": ["a"] * 3}, {"std": [0, 0, 0]}, {"std": [1, 2]}, {"resize_mode": 3}, {"mode": "L"}, [1]],
)
@pytest.mark.parametrize("offline", [False, True])
def test_odd_preprocessing_is_answered_in_a_sentence(tmp_path, preprocessing, offline):
    folder = write_clip(tmp_path / "clip")
    write_json(folder / "open_clip_config.json", {"model_cfg": tiny_clip.CONFIG, "preprocess_cfg": preprocessing})
    with pytest.raises(ReprogramError):
        describe_model(f"openclip:{folder}") if offline else load_frozen(f"openclip:{folder}", **TEXTS)


@pytest.mark.parametrize(
    "text",
    [{"context_length": -1}, {"context_length": "x"}, {"vocab_size": 0}, {"heads": 0}, {"width": None}, {"layers": [1]}],
)
def test_odd_sizes_are_answered_in_a_sentence(tmp_path, text):
    with pytest.raises(ReprogramError):
        load_frozen(f"openclip:{write_clip(tmp_path / 'clip', text)}", **TEXTS)
