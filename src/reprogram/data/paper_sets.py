"""The twelve data sets of the paper: their sizes and settings, known before anything heavy is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError, unknown

_COOP_HELP = "follow DATASETS.md of github.com/KaiyangZhou/CoOp for the images and {split}, and lay them out as {place}"
_GTSRB_CLASSES = (
    "speed limit 20",
    "speed limit 30",
    "speed limit 50",
    "speed limit 60",
    "speed limit 70",
    "speed limit 80",
    "end of speed limit 80",
    "speed limit 100",
    "speed limit 120",
    "no passing",
    "no passing for heavy vehicles",
    "right of way at the next intersection",
    "priority road",
    "yield",
    "stop",
    "no vehicles",
    "heavy vehicles prohibited",
    "no entry",
    "general caution",
    "dangerous curve to the left",
    "dangerous curve to the right",
    "double curve",
    "bumpy road",
    "slippery road",
    "road narrows on the right",
    "road work",
    "traffic signals",
    "pedestrians",
    "children crossing",
    "bicycles crossing",
    "beware of ice or snow",
    "wild animals crossing",
    "end of all speed and passing limits",
    "turn right ahead",
    "turn left ahead",
    "ahead only",
    "go straight or right",
    "go straight or left",
    "keep right",
    "keep left",
    "roundabout mandatory",
    "end of no passing",
    "end of no passing for heavy vehicles",
)


@dataclass(frozen=True)
class PaperSet:
    """What the paper's protocol says of one data set.

    Attributes:
        name: as in `paper:<name>`.
        title: as in the paper.
        classes: k_T.
        train: number of training images.
        val: number of validation images that the split brings; None where there are none, or their number is not published.
        test: number of test images.
        image_size: side of the image on the padded canvas of 224.
        layouts: where it is looked for, in this order: the name of a class of `paper_layouts`, and its arguments.
        how_to_get: where it comes from and how it has to lie under the data root.
        batch_size: of the training.
        flip_safe: whether a mirrored image keeps its class.
        archives: accepted numbers of training images, where several archives are in use, with the archive in words.
    """

    name: str
    title: str
    classes: int
    train: int
    val: int | None
    test: int
    image_size: int
    layouts: tuple[tuple[str, Mapping[str, Any]], ...]
    how_to_get: str
    batch_size: int = 256
    flip_safe: bool = True
    archives: Mapping[int, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int | None]:
        """The expected number of images in each split."""
        return {"train": self.train, "val": self.val, "test": self.test}


def _lmdb(folders: tuple[str, ...], classes: int) -> tuple[str, dict[str, Any]]:
    return "Lmdb", {"folders": folders, "classes": classes}


def _coop(
    name: str,
    title: str,
    numbers: tuple[int, int, int | None, int],
    folder: str,
    images: str,
    split: str,
    batch_size: int = 256,
) -> PaperSet:
    classes, train, val, test = numbers
    split_file, folders = f"split_zhou_{split}.json", (folder,) if folder == name else (folder, name)
    place = (
        f"{folder}/{images}/ and {folder}/{split_file}"
        if images != "."
        else f"{folder}/cars_train/, {folder}/cars_test/ and {folder}/{split_file}"
    )
    return PaperSet(
        name,
        title,
        classes,
        train,
        val,
        test,
        image_size=128,
        layouts=(
            ("Coop", {"folders": folders, "images": images, "split_file": split_file}),
            _lmdb(folders, classes),
        ),
        how_to_get=_COOP_HELP.format(split=split_file, place=place)
        + f"; or put the ILM-VP authors' LMDB files into {name}/",
        batch_size=batch_size,
    )


def _cifar(name: str, title: str, classes: int, python: str, binary: str) -> PaperSet:
    return PaperSet(
        name,
        title,
        classes,
        50_000,
        None,
        10_000,
        image_size=32,
        layouts=(("Cifar", {"folders": (name,), "fine": classes == 100}), _lmdb((name,), classes)),
        how_to_get=f"unpack the python or binary version of www.cs.toronto.edu/~kriz/cifar.html as {python}/ or {binary}/",
    )


PAPER: dict[str, PaperSet] = {
    entry.name: entry
    for entry in (
        _coop("flowers102", "Flowers102", (102, 4_093, 1_633, 2_463), "oxford_flowers", "jpg", "OxfordFlowers"),
        _coop("dtd", "DTD", (47, 2_820, 1_128, 1_692), "dtd", "images", "DescribableTextures", batch_size=64),
        _coop("ucf101", "UCF101", (101, 7_639, 1_898, 3_783), "ucf101", "UCF-101-midframes", "UCF101"),
        _coop("food101", "Food101", (101, 50_500, 20_200, 30_300), "food-101", "images", "Food101"),
        PaperSet(
            "gtsrb",
            "GTSRB",
            43,
            39_209,
            None,
            12_630,
            image_size=32,
            layouts=(("Gtsrb", {"names": _GTSRB_CLASSES}), _lmdb(("gtsrb",), 43)),
            how_to_get=(
                "unpack GTSRB_Final_Training_Images.zip, GTSRB_Final_Test_Images.zip and GTSRB_Final_Test_GT.zip from "
                "benchmark.ini.rub.de into gtsrb/, so that gtsrb/GTSRB/ and gtsrb/GT-final_test.csv are there"
            ),
            flip_safe=False,  # left and right are different signs
            archives={
                39_209: "GTSRB_Final_Training_Images.zip, the archive that the paper used",
                26_640: "GTSRB-Training_fixed.zip, the archive that torchvision downloads",
            },
        ),
        _coop("eurosat", "EuroSAT", (10, 13_500, 5_400, 8_100), "eurosat", "2750", "EuroSAT"),
        _coop("oxfordpets", "OxfordPets", (37, 2_944, 736, 3_669), "oxford_pets", "images", "OxfordPets", batch_size=64),
        _coop("stanfordcars", "StanfordCars", (196, 6_509, 1_635, 8_041), "stanford_cars", ".", "StanfordCars"),
        _coop("sun397", "SUN397", (397, 15_888, None, 19_850), "sun397", "SUN397", "SUN397"),
        _cifar("cifar10", "CIFAR10", 10, "cifar-10-batches-py", "cifar-10-batches-bin"),
        _cifar("cifar100", "CIFAR100", 100, "cifar-100-python", "cifar-100-binary"),
        PaperSet(
            "svhn",
            "SVHN",
            10,
            73_257,
            None,
            26_032,
            image_size=32,
            layouts=(("Svhn", {}), _lmdb(("svhn",), 10)),
            how_to_get="put train_32x32.mat and test_32x32.mat from ufldl.stanford.edu/housenumbers into svhn/",
            flip_safe=False,  # a mirrored digit is no digit, or another one
        ),
    )
}


def paper_set(name: str) -> PaperSet:
    """The entry of a name, or an error that proposes the nearest one."""
    if name not in PAPER:
        raise unknown("data set of the paper", name, PAPER)
    return PAPER[name]


def paper_missing(entry: PaperSet, root: Path) -> ReprogramError:
    """The error for a set that is not under the data root."""
    return ReprogramError(f"data 'paper:{entry.name}' is not under the data root {str(root)!r}; {entry.how_to_get}")
