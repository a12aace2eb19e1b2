"""scikit-learn's handwritten digits: real data that needs no download."""

import torch

from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.data.splits import stratified_split
from reprogram.errors import ReprogramError


def load_digits() -> DataSet:
    """1,797 greyscale digits of 8×8 pixels; 1,258 for training and 539 for testing, always the same ones."""
    try:
        from sklearn.datasets import load_digits as load
    except ModuleNotFoundError:
        raise ReprogramError("the digits need scikit-learn; run: pip install 'reprogram[sklearn]'") from None
    bunch = load()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(bunch.target).long()
    names = [f"digits/{index}" for index in range(len(labels))]
    everything = ArraySplit(images, labels, names)
    train, test = stratified_split(labels, 0.3, 0, "test")
    return DataSet("digits", tuple("0123456789"), train=everything.subset(train), test=everything.subset(test))
