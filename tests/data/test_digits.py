import torch

from reprogram import load_data


def test_the_digits_are_always_split_the_same_way():
    data, again = load_data("digits", split_seed=0), load_data("digits", split_seed=5)
    assert data.classes == tuple("0123456789")
    assert len(data.train) + len(data.test) == 1797
    assert data.test.names == again.test.names
    assert not set(data.train.names) & set(data.test.names)
    shares = data.test.labels.bincount() / (data.train.labels.bincount() + data.test.labels.bincount())
    assert torch.all((shares - 0.3).abs() < 0.01)


def test_pixels_keep_the_full_range():
    pixels = load_data("digits").test.pixels(8)
    assert pixels.shape[1:] == (3, 8, 8)
    assert (pixels.min(), pixels.max()) == (0, 255)
