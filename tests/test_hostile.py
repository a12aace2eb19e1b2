"""What a stranger may hand over, made on the spot: files that would run code, crash the reader, or fill the memory.

Each is given to the command line as a person would give it. It must end with one sentence and exit code 2, in bounded
memory, without running anything that the file asks for.
"""

import io
import json
import pickle
import resource
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.torch import save_file

import tiny_clip
from command import reprogram
from reprogram.data.load import load_data
from reprogram.data.safe_pickle import read_cifar_pickle, read_plain_pickle
from reprogram.errors import ReprogramError
from reprogram.images.decoding import large_images_allowed
from reprogram.images.pictures import read_image
from reprogram.sources.load import load_frozen
from reprogram.sources.openclip_models import import_open_clip
from reprogram.sources.torchvision_import import import_torchvision
from reprogram.sources.weights import read_weights

GIB = 2**30
TEXTS = {"classes": ["cat", "dog"], "templates": "default"}


@pytest.fixture(autouse=True)
def little_memory():
    """No test here may take more than 3 GiB beyond what the process has; where it would, it fails instead."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (taken + 3 * GIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


def refused(action, *arguments, **options):
    with pytest.raises(ReprogramError) as caught:
        action(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def sentence(action, *arguments, **options):
    """What the refusal says, or nothing where all is well; anything else that is raised is a fault."""
    try:
        action(*arguments, **options)
    except ReprogramError as error:
        return str(error)
    return ""


def refused_by_command(*arguments, **options):
    done = reprogram(*arguments, check=False, **options)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


# ---- pictures


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, depth=8, colour=0):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """A `gs` that leaves a mark when it runs."""
    mark, folder = tmp_path / "gs-has-run", tmp_path / "bin"
    folder.mkdir()
    (folder / "gs").write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    (folder / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return mark


def write_pictures(root, classes=("cat", "dog"), count=4):
    for place, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8), (90 * place, 10 * number, 0)).save(root / name / f"{number}.png")
    return root


def test_the_ghostscript_of_these_tests_would_leave_its_mark(tmp_path, ghostscript, monkeypatch):
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    (tmp_path / "photo.jpg").write_bytes(POSTSCRIPT)
    with Image.open(tmp_path / "photo.jpg") as picture, suppress(OSError):  # it draws nothing
        picture.load()
    assert ghostscript.exists()


@pytest.mark.parametrize("data", ["{}", "torchvision:ImageFolder"])
def test_a_postscript_picture_starts_no_program(tmp_path, ghostscript, data):
    folder = write_pictures(tmp_path / "pictures")
    (folder / "cat" / "photo.jpg").write_bytes(POSTSCRIPT)
    flags = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "32", "--epochs", "1", "--no-cache")
    words = refused_by_command(
        "fit", "--data", data.format(folder), "--data-root", folder, *flags, "--out", tmp_path / "run"
    )
    assert "cannot be decoded" in words
    assert not ghostscript.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (png(13_000, 13_000, 16), "13,000 x 13,000 pixels"),
        (png(1, 130_000_000, 1), "sides of 65,535 are the most"),
        (png(2**31 - 1, 2**31 - 1), "too large to decode"),
        (b"P5 70000 70 65535\n", "70,000 x 70 pixels"),
        (b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0,", "too large|cannot be decoded"),
    ],
)
def test_a_small_file_that_claims_many_pixels_is_refused(tmp_path, content, words):
    (tmp_path / "photo.png").write_bytes(content)
    with large_images_allowed():
        said = refused(read_image, tmp_path / "photo.png", 224)
    assert any(word in said for word in words.split("|")), said
    assert "photo.png" in said


def test_large_pictures_are_converted_as_small_ones_are(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    exif = Image.Exif()
    exif[0x0112] = 6
    pictures = {
        "deep.png": Image.fromarray(rng.integers(0, 65536, (40, 30), dtype=np.uint16)),
        "clear.png": Image.fromarray(rng.integers(0, 256, (40, 30, 4), dtype=np.uint8)),
        "unit.tiff": Image.fromarray(rng.random((40, 30), dtype=np.float32)),
        "bits.png": Image.fromarray(rng.integers(0, 256, (40, 30), dtype=np.uint8)).convert("1"),
        "palette.png": Image.fromarray(rng.integers(0, 256, (40, 30, 3), dtype=np.uint8)).convert("P"),
    }
    for name, picture in pictures.items():
        picture.save(tmp_path / name, **({"exif": exif} if name == "clear.png" else {}))
    small = {name: read_image(tmp_path / name) for name in pictures}
    monkeypatch.setattr("reprogram.images.decoding.LARGE", 100)
    monkeypatch.setattr("reprogram.images.decoding._STRIP", 70)
    for name, pixels in small.items():
        assert torch.equal(read_image(tmp_path / name), pixels), name
    assert small["clear.png"].shape == (3, 30, 40)


def test_a_line_is_not_blown_up_without_end(tmp_path):
    Image.new("RGB", (60_000, 1), "red").save(tmp_path / "line.png")
    assert read_image(tmp_path / "line.png", 224, "bicubic-crop")[:, 100, 100].tolist() == [255, 0, 0]


@pytest.mark.parametrize("where", ["pipe", "/dev/zero"])
def test_a_pipe_or_a_device_is_no_picture_and_keeps_nobody_waiting(tmp_path, where):
    import os

    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in refused(read_image, tmp_path / where)


# ---- arrays and pickles


def npy(kind, shape, content=b""):
    text = str({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + content


LABELS = npy("<i8", (4,), struct.pack("<4q", 0, 1, 0, 1))


def write_npz(path, **arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": npy("|u1", (4, 10**9, 1))}, "claims shape"),
        ({"images": npy("<U1000000000", (4,))}, "cannot be read"),
        ({"images": npy("<U0", (10**9,))}, "claims shape"),
        ({"images": npy("|V0", (10**12,))}, "instead of numbers or text"),
        ({"images": npy("|O", (4,))}, "instead of numbers or text"),
        ({"images": npy("|u1", (-4, 8, 8))}, "no shape"),
        ({"images": b"\x93NUMPY\x03\0" + struct.pack("<I", 2**32 - 1)}, "bytes of description"),
        ({"images": b"hello"}, "something else than arrays"),
        ({"images": npy("|u1", (), b"a")}, "images have shape ()"),
        ({"images": npy("<f16", (4, 1, 1), bytes(64))}, "numbers are expected"),
        ({"classes": npy("<U1", (), b"a\0\0\0")}, "a list of names is expected"),
        ({"split": npy("<U1", (), b"a\0\0\0")}, "a list of names is expected"),
        ({"labels": npy("<U1", (4,), b"\xff" * 16)}, "no Unicode"),
        ({"split": npy("<U1", (4,), b"\xff" * 16)}, "no Unicode"),
        ({"classes": npy(">U1", (2,), b"\0\0\0a\0\x11\0\0")}, "no Unicode"),
    ],
)
def test_an_array_file_that_claims_what_it_does_not_hold_is_refused(tmp_path, arrays, words):
    whole = {"images": npy("|u1", (4, 8, 8), bytes(256)), "labels": LABELS, **arrays}
    assert words in refused(load_data, write_npz(tmp_path / "data.npz", **whole))


def test_an_array_file_of_bad_zip_parts_is_refused(tmp_path):
    path = write_npz(tmp_path / "data.npz", images=npy("|u1", (4, 8, 8), bytes(range(256))), labels=LABELS)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert "\n" not in sentence(load_data, path)


def test_a_zip_bomb_of_arrays_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("reprogram.files.safe_npz._UNPACKED", 2**20)
    path = write_npz(tmp_path / "data.npz", images=npy("|u1", (4, 2**12, 2**12), bytes(2**26)), labels=LABELS)
    assert "unpacks to 0.1 GiB" in refused(load_data, path)


def test_sixteen_bits_in_the_other_byte_order_are_the_same_pixels(tmp_path):
    values = np.arange(4 * 64).reshape(4, 8, 8) * 257
    for kind in ("<u2", ">u2"):
        np.savez(tmp_path / f"{kind[0] == '<'}.npz", images=values.astype(kind), labels=np.array([0, 1, 0, 1]))
    first, second = (load_data(tmp_path / f"{name}.npz", split_seed=None).train.pixels(8) for name in (True, False))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "content",
    [
        b"\x8e" + struct.pack("<Q", 2**33) + b".",
        b"X" + struct.pack("<I", 2**32 - 1) + b".",
        b"\x8b" + struct.pack("<I", 2**31 - 1) + b".",
        b"L" + b"9" * 10_000 + b"L\n.",
        b"(" * 100_000,
        b")" + b"\x85" * 100_000 + b".",
        b"})" + b"\x85" * 1000 + b"Ns.",  # the hash of a deep tuple takes the whole stack
        b"})q\0" + b"h\0h\0\x86q\0" * 60 + b"Ns.",  # the hash of a tuple of twins takes for ever
        b"\x8f(K\x01\x90.",
        b"\x82\x01.",
        b"(ios\nsystem\n.",
        b"}}b.",
        b"a.",
        b".",
    ],
)
def test_no_pickle_takes_more_than_it_has(content):
    for read in (read_plain_pickle, read_cifar_pickle):
        refused(read, content, "record")


def test_seven_bytes_of_pickle_take_no_memory():
    assert read_plain_pickle(b"Nr" + struct.pack("<I", 2**30) + b".", "record") is None
    assert read_plain_pickle(b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.", "record") is None


# ---- data whose readers can crash


def write_lmdb(path, count=40):
    lmdb = pytest.importorskip("lmdb")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    with lmdb.open(str(path), subdir=False, map_size=2**22) as opened, opened.begin(write=True) as transaction:
        for number in range(count):
            transaction.put(str(number).encode(), pickle.dumps((picture.getvalue() + bytes(3000), number % 10)))
    return path


def test_an_lmdb_file_that_is_cut_short_is_refused(tmp_path):
    for part in ("train", "test"):
        write_lmdb(tmp_path / "eurosat" / f"{part}.lmdb")
    path = tmp_path / "eurosat" / "train.lmdb"
    data = load_data("paper:eurosat", root=tmp_path)
    path.write_bytes(path.read_bytes()[:20_000])
    assert "have changed since they were opened" in refused(data.train.read, 3)
    assert "train.lmdb" in refused(load_data, "paper:eurosat", root=tmp_path)
    assert "train.lmdb" in refused_by_command("datasets", "check", "paper:eurosat", "--data-root", tmp_path)


def test_an_empty_lmdb_file_is_refused(tmp_path):
    for part in ("train", "test"):
        write_lmdb(tmp_path / "eurosat" / f"{part}.lmdb", count=0)
    assert "holds no record" in refused(load_data, "paper:eurosat", root=tmp_path)


def test_an_svhn_file_that_leads_anywhere_is_refused(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    whole = io.BytesIO()
    scipy_io.savemat(whole, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)})
    content = whole.getvalue()
    (tmp_path / "test_32x32.mat").write_bytes(content)
    said = []
    for place in range(135, 200, 9):  # the sizes and kinds of the first array
        (tmp_path / "train_32x32.mat").write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        said += filter(None, [sentence(load_data, "paper:svhn", root=tmp_path)])
    assert len(said) >= 3
    assert all("train_32x32.mat" in words for words in said)


def saved_table(folder):
    datasets = pytest.importorskip("datasets")
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = {"image": [{"bytes": picture.getvalue(), "path": None}] * 10, "label": [0, 1] * 5}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(folder)
    return folder


def test_a_saved_table_that_is_damaged_or_elsewhere_is_refused(tmp_path):
    folder = saved_table(tmp_path / "table")
    (table,) = folder.glob("*.arrow")
    assert len(load_data(f"hf:{folder}").train) == 8
    state, whole = json.loads((folder / "state.json").read_text()), table.read_bytes()
    for named in ("../elsewhere.arrow", str(tmp_path / "elsewhere.arrow"), 7, "state.json"):
        (folder / "state.json").write_text(json.dumps({**state, "_data_files": [{"filename": named}]}))
        assert "names no table beside it" in refused(load_data, f"hf:{folder}")
    (folder / "state.json").write_text(json.dumps(state))
    table.write_bytes(whole[: len(whole) // 2])
    assert "table" in refused(load_data, f"hf:{folder}")
    for place in range(0, len(whole), 97):  # offsets that lead anywhere
        table.write_bytes(whole[:place] + b"\xff\xff\xff\x7f" + whole[place + 4 :])
        assert "\n" not in sentence(lambda: load_data(f"hf:{folder}").train.pixels(8))


def test_an_idx_file_that_claims_much_is_refused(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">HBB3I", 0, 8, 3, 2**31 - 1, 2**15, 2**15))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 4) + bytes(4))
    assert "cannot be loaded" in refused(load_data, "torchvision:MNIST", root=tmp_path)
    (raw / "train-images-idx3-ubyte").write_bytes(b"\xff" * 100)
    assert "cannot be loaded" in refused(load_data, "torchvision:MNIST", root=tmp_path)


def test_the_cache_of_lsun_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "was-run"

    class Bomb:
        def __reduce__(self):
            return Path.touch, (mark,)

    for name in ("_cache_bedroom_train_lmdb", "_cache_lsun"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    words = refused_by_command(
        "fit", "--data", "torchvision:LSUN", "--data-root", tmp_path, "--out", tmp_path / "run", cwd=tmp_path
    )
    assert "torchvision:LSUN" in words
    assert not mark.exists()


# ---- models


def write_clip(folder, vision=None, text=None, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    save_file(import_open_clip().CLIP(**tiny_clip.CONFIG).state_dict(), folder / "open_clip_model.safetensors")
    config = {**tiny_clip.CONFIG, **changes}
    config["vision_cfg"] = {**tiny_clip.CONFIG["vision_cfg"], **(vision or {})}
    config["text_cfg"] = {**tiny_clip.CONFIG["text_cfg"], **(text or {})}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vision": {"layers": 10**6}}, "layers = 1000000, but at most 400"),
        ({"vision": {"width": 48_000}}, "which its weights of"),
        ({"vision": {"image_size": 10**6}}, "image_size = 1000000, but at most 8,192"),
        ({"vision": {"timm_model_name": "vit_giant_patch14_dinov2"}}, "which its weights of"),
        ({"text": {"context_length": 40_000}}, "at most 8,192"),
        ({"text": {"vocab_size": 10**9}}, "vocab_size"),
        ({"embed_dim": 10**9}, "embed_dim"),
        ({"vision": {"mlp_ratio": 1e300}}, "mlp_ratio"),
    ],
)
def test_a_clip_folder_that_claims_any_size_is_refused(tmp_path, changes, words):
    assert words in refused(load_frozen, f"openclip:{write_clip(tmp_path / 'clip', **changes)}", **TEXTS)


def test_a_clip_folder_with_code_is_refused_by_the_command_line(tmp_path):
    asks = {"hf_tokenizer_name": "any", "tokenizer_kwargs": {"trust_remote_code": True}}
    folder, mark = write_clip(tmp_path / "clip", text=asks), tmp_path / "code-has-run"
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass Tokenizer: pass\n")
    tokenizer = {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    for command in (
        ("models", "show", f"openclip:{folder}"),
        ("fit", "--data", "digits", "--model", f"openclip:{folder}", "--out", tmp_path / "run"),
    ):
        assert "trust_remote_code" in refused_by_command(*command, input="y\ny\n")
    assert not mark.exists()
    assert not (tmp_path / "run").exists()


def write_vit(folder, config=None, processor=None):
    import_torchvision()  # as the library does, before transformers imports it
    transformers = pytest.importorskip("transformers")
    made = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    transformers.ViTForImageClassification(made).save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **(config or {})}))
    plain = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps({**plain, **(processor or {})}))
    return folder


@pytest.mark.parametrize(
    ("config", "processor", "words"),
    [
        ({"hidden_size": 10**9}, {}, "hidden_size = 1000000000"),
        ({"hidden_size": 2**16}, {}, "which its weights of"),
        ({"num_hidden_layers": 10**6}, {}, "num_hidden_layers = 1000000, but at most 400"),
        ({"image_size": 10**5}, {}, "image_size = 100000, but at most 8,192"),
        ({}, {"size": {"height": 10**5, "width": 10**5}}, "at most 8,192"),
        ({}, {"size": {"height": "x", "width": 3}}, "cannot be loaded"),
        ({}, {"image_mean": "x"}, "cannot be loaded"),
        ({}, {"image_std": [1, 2]}, "cannot be loaded"),
        ({}, {"resample": {}}, "cannot be loaded"),
        ({}, {"size": {"height": 64, "width": 64}}, "does not take the images that its processor makes"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, {}, "quantized"),
    ],
)
def test_a_folder_of_transformers_that_claims_anything_is_refused(tmp_path, config, processor, words):
    assert words in refused(load_frozen, f"hf:{write_vit(tmp_path / 'model', config, processor)}")


def test_a_folder_of_transformers_with_code_is_refused_by_the_command_line(tmp_path):
    folder, mark = tmp_path / "model", tmp_path / "code-has-run"
    folder.mkdir()
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass Config: pass\n")
    names = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Config"}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": names}))
    assert "code of its own" in refused_by_command("models", "show", f"hf:{folder}", input="y\ny\n")
    assert not mark.exists()


def torch_file(path, content):
    torch.save(content, path)
    return path


def test_weights_that_are_not_in_their_file_are_refused(tmp_path):
    path = tmp_path / "weights.pth"
    nothing = torch.sparse_coo_tensor(
        torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0), (10**9, 512), check_invariants=True
    )
    for odd in (torch.zeros(1).expand(10**9, 512), nothing, torch.zeros(10**6, 10**6, device="meta")):
        assert "sparse, quantized or repeated" in refused(read_weights, torch_file(path, {"fc.weight": odd}))
        assert "weights.pth" in refused(load_frozen, "timm:resnet18", weights=path)
    assert "do not fit" in refused(load_frozen, "timm:resnet18", weights=torch_file(path, {"fc.weight": torch.tensor(1.0)}))


def test_a_zip_bomb_of_weights_is_refused(tmp_path):
    whole = zipfile.ZipFile(torch_file(tmp_path / "whole.pth", {"a": torch.zeros(2**26)}))
    with zipfile.ZipFile(tmp_path / "packed.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    assert "unpacks to" in refused(read_weights, tmp_path / "packed.pth")


def test_a_header_of_safetensors_without_end_is_refused(tmp_path):
    names = json.dumps({f"a{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(260_000)}).encode()
    (tmp_path / "many.safetensors").write_bytes(struct.pack("<Q", len(names)) + names)
    assert "bytes of names" in refused(read_weights, tmp_path / "many.safetensors")
    (tmp_path / "many.safetensors").write_bytes(struct.pack("<Q", 2**60))
    assert "not valid safetensors" in refused(read_weights, tmp_path / "many.safetensors")


AXES = numpy_helper.from_array(np.array([2, 3]), "axes")
WEIGHT = numpy_helper.from_array(np.zeros((3, 5), np.float32), "weight")
MEANS = helper.make_node("ReduceMean", ["images", "axes"], ["means"], keepdims=0)
LINEAR = helper.make_node("MatMul", ["means", "weight"], ["logits"])


def write_onnx(path, nodes=(MEANS, LINEAR), weights=(WEIGHT, AXES), shape=("n", 3, 8, 8), outputs=("n", 5), **metadata):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, outputs)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, metadata)
    path.write_bytes(model.SerializeToString())
    return path


def elsewhere(location):
    tensor = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[3, 5], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def test_constants_of_an_onnx_file_are_not_read_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "weights.bin").write_bytes(bytes(60))
    monkeypatch.chdir(tmp_path)
    constant = helper.make_node("Constant", [], ["weight"], value=elsewhere("weights.bin"))
    path = write_onnx(tmp_path / "model.onnx", (constant, MEANS, LINEAR), (AXES,))
    assert "keeps a constant in another file" in refused(load_frozen, f"onnx:{path}")
    assert "keeps a constant in another file" in refused_by_command("models", "show", f"onnx:{path}", cwd=tmp_path)
    inner = helper.make_graph([constant], "inner", [], [helper.make_tensor_value_info("weight", TensorProto.FLOAT, [3, 5])])
    choice = helper.make_node("If", ["yes"], ["weight"], then_branch=inner, else_branch=inner)
    weights = (AXES, numpy_helper.from_array(np.array(True), "yes"))
    path = write_onnx(tmp_path / "inner.onnx", (choice, MEANS, LINEAR), weights)
    assert "keeps a constant in another file" in refused(load_frozen, f"onnx:{path}")


@pytest.mark.parametrize("location", ["/etc/passwd", "../weights.bin", "a/../../weights.bin", "C:\\weights.bin", "pipe"])
def test_weights_of_an_onnx_file_lie_beside_it(tmp_path, location):
    import os

    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (tmp_path / "weights.bin").write_bytes(bytes(60))
    path = write_onnx(folder / "model.onnx", weights=(elsewhere(location), AXES))
    assert "keeps weights in" in refused(load_frozen, f"onnx:{path}")


def test_an_onnx_file_that_doubles_its_numbers_without_end_is_refused(tmp_path):
    value = helper.make_tensor_value_info("v", TensorProto.FLOAT, [None])
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Concat", ["v", "v"], ["v2"], axis=0)],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            value,
        ],
        [
            helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v2", TensorProto.FLOAT, [None]),
        ],
    )
    nodes = (
        MEANS,
        helper.make_node("Loop", ["times", "", "start"], ["many"], body=body),
        helper.make_node("ReduceSum", ["many"], ["sum"]),
        helper.make_node("MatMul", ["means", "weight"], ["plain"]),
        helper.make_node("Add", ["plain", "sum"], ["logits"]),
    )
    times, start = numpy_helper.from_array(np.array(100), "times"), numpy_helper.from_array(np.zeros(4, np.float32), "start")
    path = write_onnx(tmp_path / "model.onnx", nodes, (WEIGHT, AXES, times, start))
    assert "of memory to read" in refused(load_frozen, f"onnx:{path}")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"shape": (10**9, 3, 8, 8), "outputs": (10**9, 5)}, "of memory to read"),
        ({"shape": ("n", 3, 10**6, 10**6)}, "of memory to read"),
        ({"shape": (5000, 3, 8, 8), "outputs": (5000, 5)}, "4096 at a time"),
        ({"shape": ("n", 3, 9000, 9000)}, "at most 8192 pixels"),
        ({"labels": "[" * 100_000}, "give labels as"),
        ({"mean": f"[{'9' * 5000}, 1, 1]"}, "give mean as"),
        ({"mean": f"[{'9' * 400}, 1, 1]"}, "give mean as"),
        ({"mean": "[NaN, 1, 1]"}, "give mean as"),
        ({"input_size": "10000000000", "shape": ("n", 3, "h", "w")}, "give input_size as"),
    ],
)
def test_an_onnx_file_that_claims_anything_is_refused(tmp_path, made, words):
    said = refused(load_frozen, f"onnx:{write_onnx(tmp_path / 'model.onnx', **made)}")
    assert any(word in said for word in words.split("|")), said


def test_an_onnx_file_of_any_wrong_byte_is_read_or_refused(tmp_path):
    path = write_onnx(tmp_path / "model.onnx")
    whole = path.read_bytes()
    onnx.load_model_from_string(whole)
    for place in range(0, len(whole), 23):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
        assert "\n" not in sentence(load_frozen, f"onnx:{path}")


def test_an_onnx_file_whose_names_are_no_unicode_is_refused(tmp_path):
    path = write_onnx(tmp_path / "model.onnx", shape=("some", 3, 8, 8))
    path.write_bytes(path.read_bytes().replace(b"some", b"\xffome"))
    assert "cannot be read as ONNX" in refused(load_frozen, f"onnx:{path}")
