"""Fuzz targets of binary files: pictures, arrays, published data sets, models."""

import io
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, features

from reprogram import Reprogrammed, make_mapping
from reprogram.data.load import load_data
from reprogram.data.paper_layouts import Cifar, Coop, Gtsrb, Layout, Lmdb, Svhn
from reprogram.data.safe_pickle import read_cifar_pickle
from reprogram.images.pictures import read_image
from reprogram.programs.base import NoProgram
from reprogram.sources.load import import_torchvision, load_frozen
from reprogram.sources.openclip_models import import_open_clip
from soak.mutate import BYTES, TEXT
from soak.structure import JSON, NPY, SAFETENSORS, ZIPS
from soak.targets import BytesTarget, FileTarget, FolderTarget, Target

_FEW = 64


def _picture(mode: str = "RGB", size: tuple[int, int] = (13, 9)) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 4), dtype=np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


def _encoded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    _picture(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def _picture_seeds(kind: str) -> Callable[[Path], list[bytes]]:
    modes = {
        "PNG": ("RGB", "RGBA", "P", "L", "1", "I;16"),
        "GIF": ("P", "L"),
        "BMP": ("RGB", "P", "1"),
        "TIFF": ("RGB", "L", "RGBA", "CMYK"),
        "JPEG": ("RGB", "L", "CMYK"),
        "PPM": ("RGB", "L", "1"),
    }.get(kind, ("RGB",))

    def seeds(folder: Path) -> list[bytes]:
        made = [_encoded(kind, mode) if mode != "I;16" else _sixteen() for mode in modes]
        if kind == "JPEG":
            turned = Image.Exif()
            turned[0x0112] = 6
            made += [_encoded(kind, exif=turned.tobytes()), _encoded(kind, progressive=True)]
        if kind == "GIF":
            made.append(_encoded(kind, "P", save_all=True, append_images=[_picture("P"), _picture("L")]))
        if kind == "TIFF":
            made += [_encoded(kind, compression=how) for how in ("tiff_lzw", "tiff_deflate", "packbits")]
        return made

    return seeds


def _sixteen() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(60, dtype=np.uint16).reshape(6, 10) * 1000).save(buffer, "PNG")
    return buffer.getvalue()


def _picture_target(kind: str) -> Target:
    words = (
        b"Exif\0\0",
        b"IHDR",
        b"IDAT",
        b"tRNS",
        b"PLTE",
        b"eXIf",
        b"acTL",
        b"iCCP",
        b"\xff\xd9",
        b"\xff\xda",
        b"%!PS",
        b"WEBP",
    )
    name = f"image.{kind.lower()}"
    return FileTarget(
        name, _picture_seeds(kind), lambda path: read_image(path, 8), file="photo.jpg", dictionary=words, weight=0.6
    )


def _array_seeds(folder: Path) -> list[bytes]:
    images, labels = np.zeros((10, 6, 5, 3), np.uint8), np.arange(10) % 2
    contents: list[dict[str, Any]] = [
        {"images": images, "labels": labels, "classes": np.array(["cat", "dog"])},
        {
            "images": images[..., 0] / np.float32(255),
            "labels": np.array(["a", "b"] * 5),
            "split": np.array(["train", "test"] * 5),
        },
        {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels},
    ]
    made = []
    for number, content in enumerate(contents):
        buffer = io.BytesIO()
        (np.savez_compressed if number % 2 else np.savez)(buffer, allow_pickle=False, **content)
        made.append(buffer.getvalue())
    return made


def _use_data(spec: str) -> None:
    """Load a data set, and decode a little of it."""
    data = load_data(spec)
    _use_splits(data.splits.values())


def _use_splits(splits: Any) -> None:
    for split in splits:
        if 0 < len(split) <= _FEW:
            split.pixels(8)


def _cifar_batch(count: int = 3, fine: bool = False) -> bytes:
    rows = np.random.default_rng(0).integers(0, 255, (count, 3072), dtype=np.uint8)
    names = {
        "data": rows,
        ("fine_labels" if fine else "labels"): list(range(count)),
        "batch_label": "x",
        "filenames": ["a"] * count,
    }
    return pickle.dumps(names, 2)


def _pickle_seeds(folder: Path) -> list[bytes]:
    old = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]}
    return [
        _cifar_batch(),
        _cifar_batch(fine=True),
        pickle.dumps({"label_names": ["a", "b"]}, 2),
        *(pickle.dumps(old, p) for p in (0, 1, 4)),
    ]


def _make_cifar(folder: Path) -> None:
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (place / name).write_bytes(_cifar_batch())
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"name {number}" for number in range(10)]}, 2))


def _make_cifar_binary(folder: Path) -> None:
    place = folder / "cifar-100-binary"
    place.mkdir()
    for name in ("train.bin", "test.bin"):
        (place / name).write_bytes(bytes(3074 * 2))
    (place / "fine_label_names.txt").write_text("\n".join(f"name{number}" for number in range(100)))


def _make_svhn(folder: Path) -> None:
    from scipy.io import savemat

    for part in ("train", "test"):
        content = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [10]])}
        savemat(folder / f"{part}_32x32.mat", content, do_compression=part == "train")


def _make_gtsrb(folder: Path) -> None:
    for name in ("00000", "00001"):
        place = folder / "GTSRB" / "Training" / name
        place.mkdir(parents=True)
        (place / "0.ppm").write_bytes(_encoded("PPM"))
    images = folder / "GTSRB" / "Final_Test" / "Images"
    images.mkdir(parents=True)
    (images / "0.ppm").write_bytes(_encoded("PPM"))
    (folder / "GTSRB" / "GT-final_test.csv").write_text("Filename;Width;ClassId\n0.ppm;9;1\n")


def _make_lmdb(folder: Path) -> None:
    import lmdb

    (folder / "dtd").mkdir()
    for part in ("train", "test"):
        records = [(_encoded("PNG"), 0), (_encoded("JPEG"), 1)]
        opened = lmdb.open(str(folder / "dtd" / f"{part}.lmdb"), subdir=False, map_size=1 << 20, lock=False)
        with opened, opened.begin(write=True) as transaction:
            for number, record in enumerate(records):
                transaction.put(f"{number}".encode(), pickle.dumps(record))
            transaction.put(b"__len__", pickle.dumps(2))
            transaction.put(b"__keys__", pickle.dumps([b"0", b"1"]))


def _make_coop(folder: Path) -> None:
    place = folder / "dtd" / "images"
    place.mkdir(parents=True)
    for number in range(2):
        (place / f"{number}.png").write_bytes(_encoded("PNG"))
    rows = [[f"{number}.png", number, f"name {number}"] for number in range(2)]
    (folder / "dtd" / "split.json").write_text(json.dumps({"train": rows, "val": rows, "test": rows}))


def _layout_target(
    name: str, make: Callable[[Path], None], layout: Layout, files: tuple[str, ...], **options: Any
) -> Target:
    def run(folder: Path) -> None:
        place = layout.find(folder)
        assert place is not None
        _use_splits(layout.load(place).splits.values())

    return FolderTarget(f"layout.{name}", make, run, files=files, **options)


def _make_mnist(folder: Path) -> None:
    place = folder / "MNIST" / "raw"
    place.mkdir(parents=True)
    for part in ("train", "t10k"):
        (place / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, 2, 28, 28) + bytes(2 * 784))
        (place / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 2) + bytes([0, 1]))


def _use_mnist(folder: Path) -> None:
    _use_splits(load_data("torchvision:MNIST", root=folder).splits.values())


def _make_hub_data(folder: Path) -> None:
    import datasets

    pictures = [{"bytes": _encoded("PNG"), "path": None}] * 4
    form = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    part = datasets.Dataset.from_dict({"img": pictures, "label": [0, 1, 0, 1]}, features=form)
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(folder))


def _use_model(spec: str, **options: Any) -> None:
    frozen = load_frozen(spec, **options)
    if frozen.input_size <= 64:
        Reprogrammed(NoProgram(frozen.input_size), frozen, make_mapping("blm", frozen.labels, ["a", "b"])).check_canvas()


def _make_hub_model(folder: Path) -> None:
    import transformers

    library: Any = transformers
    torch.manual_seed(0)
    config = library.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=16,
        patch_size=8,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    library.AutoModelForImageClassification.from_config(config).save_pretrained(folder)
    processor = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 16, "width": 16}, "resample": 3,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def _make_clip(folder: Path) -> None:
    from safetensors.torch import save_file

    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1},
    }
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    torch.manual_seed(0)
    clip = import_open_clip().CLIP(**config)
    save_file({key: value.contiguous() for key, value in clip.state_dict().items()}, folder / "open_clip_model.safetensors")


def _onnx_seeds(folder: Path) -> list[bytes]:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.ones((3, 5), np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["images", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "weight"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ("n", 3, 8, 8))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(np.array([2, 3]), "axes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, folder / "good.onnx")
    return [(folder / "good.onnx").read_bytes()]


def _weights(name: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        from safetensors.torch import save_file

        model = load_frozen("timm:test_resnet", pretrained=False).module
        state = {key: value.clone().contiguous() for key, value in model.state_dict().items()}
        path = folder / name
        if name.endswith(".safetensors"):
            save_file(state, path)
        else:
            torch.save(state, path)
        return [path.read_bytes()]

    return seeds


def _use_weights(path: Path) -> None:
    load_frozen("timm:test_resnet", weights=path)


def warm_timm() -> None:
    """Import timm, and torchvision below it."""
    import_torchvision()
    import timm  # noqa: F401


def _warm_hub() -> None:
    warm_timm()
    import datasets  # noqa: F401
    from transformers import AutoModelForImageClassification, ViTConfig, ViTImageProcessor  # noqa: F401


def _warm_clip() -> None:
    _warm_hub()
    import_open_clip()


_KINDS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM", *(kind for kind in ("WEBP", "AVIF") if features.check(kind.lower())))
TARGETS: list[Target] = [
    *(_picture_target(kind) for kind in _KINDS),
    FileTarget("data.npz", _array_seeds, lambda path: _use_data(str(path)), file="data.npz", mutators=(*ZIPS, *NPY[:1])),
    BytesTarget(
        "pickle",
        _pickle_seeds,
        lambda data: read_cifar_pickle(data, "file"),
        dictionary=(b"c__builtin__\neval\n", b"R.", b"\x80\x04", b"cos\nsystem\n"),
    ),
    _layout_target("cifar10", _make_cifar, Cifar((), fine=False), ("*/data_batch_1", "*/test_batch", "*/batches.meta")),
    _layout_target("cifar100", _make_cifar_binary, Cifar((), fine=True), ("*",)),
    _layout_target("svhn", _make_svhn, Svhn(), ("*.mat",), slow=True, weight=3.0),
    _layout_target("gtsrb", _make_gtsrb, Gtsrb(("a", "b", "c")), ("*.csv", "*/Final_Test/*"), mutators=TEXT),
    _layout_target("lmdb", _make_lmdb, Lmdb(("dtd",), 2), ("*.lmdb",), slow=True, weight=3.0),
    _layout_target("coop", _make_coop, Coop(("dtd",), "images", "split.json"), ("*.json",), mutators=JSON),
    FolderTarget("data.idx", _make_mnist, _use_mnist, slow=True, warm=warm_timm),
    FolderTarget(
        "data.hf",
        _make_hub_data,
        lambda folder: _use_data(f"hf:{folder}"),
        mutators=(*BYTES, *JSON),
        slow=True,
        weight=3.0,
        warm=_warm_hub,
    ),
    FolderTarget(
        "model.hf",
        _make_hub_model,
        lambda folder: _use_model(f"hf:{folder}"),
        files=("*.json",),
        mutators=JSON,
        slow=True,
        warm=_warm_hub,
    ),
    FolderTarget(
        "model.openclip",
        _make_clip,
        lambda folder: _use_model(f"openclip:{folder}", classes=["cat", "dog"]),
        files=("*.json",),
        mutators=JSON,
        slow=True,
        warm=_warm_clip,
    ),
    FileTarget("model.onnx", _onnx_seeds, lambda path: _use_model(f"onnx:{path}"), file="model.onnx", slow=True),
    FileTarget(
        "weights.safetensors",
        _weights("w.safetensors"),
        _use_weights,
        file="w.safetensors",
        mutators=SAFETENSORS,
        slow=True,
        warm=warm_timm,
    ),
    FileTarget("weights.pth", _weights("w.pth"), _use_weights, file="w.pth", mutators=ZIPS, slow=True, warm=warm_timm),
]
