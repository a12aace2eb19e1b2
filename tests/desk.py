"""A desk on which everything lies that the commands and the Python of README and docs/ name."""

import json
import pickle

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image
from safetensors.torch import save_file

import tiny_clip
import written
from reprogram.sources.load import import_torchvision


def make_desk(root, shapes):
    """Fill a folder; `shapes` is a folder of images with train/ and test/, of which every third is taken."""
    files = [(split, path) for split in ("train", "test") for path in sorted((shapes / split).rglob("*.png"))[::3]]
    for split, path in files:
        (root / "photos" / split / path.parent.name).mkdir(parents=True, exist_ok=True)
        (root / "photos" / split / path.parent.name / path.name).symlink_to(path)
    (root / "new.jpg").symlink_to(next(path for split, path in files if split == "test"))
    write_image_files(root, files)
    write_cifar10(root / "sets")
    write_eurosat(root / "sets")
    write_answers(root / "answers.npz")
    answers = [
        {"image": name, "label": name[0], "labels": [{"name": "Tabby"}]} for name in ("a1", "b1", "a2", "b2", "a3", "b3")
    ]
    (root / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    write_answer_files(root)
    import_torchvision()
    import timm

    save_file(timm.create_model("test_resnet", num_classes=9).state_dict(), root / "my-weights.safetensors")
    write_hf_classifier(root / "my-classifier")
    write_onnx_classifier(root / "my-model.onnx")
    tiny_clip.train(root / "my-clip", steps=0)
    (root / "my-clip.safetensors").symlink_to(root / "my-clip" / "open_clip_model.safetensors")
    return root


def write_answers(path):
    """Logits over 20 source labels for 300 animals of four kinds, some labels louder than others."""
    rng = np.random.default_rng(0)
    kinds = np.array(["ant", "bee", "cat", "dog"])
    place = rng.integers(0, 4, 300)
    logits = rng.normal(size=(4, 20))[place] + 1.6 * rng.normal(size=(300, 20)) + 2 * rng.normal(size=20)
    np.savez(path, logits=logits.astype(np.float32), labels=kinds[place], names=np.array([f"thing {i}" for i in range(20)]))


def write_answer_files(root):
    """The same twelve answers as each tool and service writes them, and tables of their labels."""
    taxa = {
        "fox": f"{written.UUID};mammalia;carnivora;canidae;vulpes;vulpes;red fox",
        "elk": "94f2c05d-b817-4e63-a9d2-71c8e40b6f35;mammalia;cetartiodactyla;cervidae;cervus;canadensis;elk",
        "blank": "3c08e5f7-1b62-4a9d-97e4-d20f6b81c53a;;;;;;blank",
    }
    kinds = ["fox", "elk", "blank"] * 4
    photos, sounds = [], []
    for place, kind in enumerate(kinds):
        pairs = [(kind, 0.75), ("elk" if kind == "fox" else "fox", 0.125)]
        photos.append((f"site{place % 2}/IMG_{place}.JPG", pairs))
        sounds.append((f"dawn.wav#{3 * place}-{3 * place + 3}", pairs))
    named = [(image, [(taxa[name], score) for name, score in pairs]) for image, pairs in photos]
    (root / "speciesnet.json").write_text(written.speciesnet(named))
    (root / "megadetector.json").write_text(written.megadetector(photos, images_first=True))
    (root / "dawn.BirdNET.results.csv").write_text(written.birdnet_csv(sounds))
    (root / "dawn.BirdNET.selection.table.txt").write_text(written.birdnet_raven(sounds))
    (root / "vision.json").write_text(written.vision(photos))
    (root / "pipeline.json").write_text(written.hugging_face(photos))
    (root / "rekognition").mkdir()
    for image, pairs in photos:
        name = image.rpartition("/")[2].replace("JPG", "json")
        (root / "rekognition" / name).write_text(json.dumps(written.rekognition_response(pairs)))
    labels = ["deer" if kind == "elk" else kind for kind in kinds]
    for file, names in (("verified.csv", photos), ("birds.csv", sounds)):
        rows = [f"{image},{label}" for (image, _), label in zip(names, labels, strict=True)]
        (root / file).write_text("\n".join(["image,label", *rows]))
    (root / "in-order.csv").write_text("\n".join(["label", *labels]))


def write_image_files(root, files):
    """The images, pairs of split and path, as a table, as arrays and as a data set on disk."""
    columns = {
        "path": [str(path) for _, path in files],
        "label": [path.parent.name for _, path in files],
        "split": [split for split, _ in files],
    }
    rows = [",".join(row) for row in zip(*columns.values(), strict=True)]
    (root / "photos.csv").write_text("\n".join(["path,label,split", *rows]))
    pyarrow.parquet.write_table(pyarrow.table(columns), root / "photos.parquet")
    images = [Image.open(path).convert("RGB") for _, path in files]
    np.savez(root / "photos.npz", images=np.stack([np.array(image) for image in images]), labels=columns["label"])
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["disc", "square", "stripes"])}
    )
    parts = {
        split: datasets.Dataset.from_dict(
            {
                "image": [image for image, (of, _) in zip(images, files, strict=True) if of == split],
                "label": [label for label, of in zip(columns["label"], columns["split"], strict=True) if of == split],
            },
            features=features,
        )
        for split in ("train", "test")
    }
    datasets.DatasetDict(parts).save_to_disk(root / "photos-on-disk")


def write_cifar10(root):
    """CIFAR-10's own archive layout, with ten images per file and torchvision's checksums made to fit in the child."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        batch = {"data": rng.integers(0, 255, (10, 3072), dtype=np.uint8), "labels": list(range(10))}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {index}" for index in range(10)]}))


def write_eurosat(root):
    """CoOp's layout of EuroSAT with three images per class and split."""
    folder = root / "eurosat" / "2750"
    entries = {"train": [], "val": [], "test": []}
    rng = np.random.default_rng(0)
    for label in range(10):
        for number, split in enumerate(["train", "val", "test"] * 3):
            path = f"Class{label}/Class{label}_{number}.jpg"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / path)
            entries[split].append([path, label, f"Class{label}"])
    (root / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(entries))


def write_hf_classifier(folder):
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8,
        id2label={index: f"thing {index}" for index in range(6)},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def write_onnx_classifier(path):
    """Mean colours of the image times a matrix: a classifier with seven labels."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 7])],
        [numpy_helper.from_array(weights, "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
