"""Whatever a person hands over becomes batches."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from reprogram import ReprogramError
from reprogram.data import ArraySplit
from reprogram.images.batches import batches_of, channels_first
from reprogram.images.pictures import as_rgb, read_image, resize


@pytest.fixture
def photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def one(images, size=8, **options):
    (batch,) = batches_of(images, size, **options)
    return batch


def as_float(batch):
    return as_rgb(batch)


def test_encoded_images_are_what_the_file_is(photo):
    expected = read_image(photo, 8, "bicubic")
    content = photo.read_bytes()
    with photo.open("rb") as file, Image.open(photo) as picture:
        for image in (
            photo,
            str(photo),
            picture,
            content,
            bytearray(content),
            memoryview(content),
            file,
            io.BytesIO(content),
        ):
            batch = one(image, interpolation="bicubic")
            assert batch.shape == (1, 3, 8, 8)
            assert torch.equal(batch[0], expected), type(image)


def test_arrays_and_tensors_of_every_layout_are_the_same_image(photo):
    pixels = np.asarray(Image.open(photo))
    expected = resize(as_rgb(torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]), 8)
    first = pixels.transpose(2, 0, 1)
    for image in (
        pixels,
        pixels[None],
        first,
        first[None],
        pixels.astype(np.int64),
        pixels.astype(np.uint16) * 257,
        pixels.astype(np.float64) / 255,
        pixels.astype(">f4") / 255,
        torch.from_numpy(first.copy()),
        torch.from_numpy(first.copy())[None],
        torch.from_numpy(first.copy()).double() / 255,
    ):
        torch.testing.assert_close(as_float(one(image)), expected, rtol=0, atol=1e-6)
    grey = pixels[..., 0]
    torch.testing.assert_close(one(grey)[0, 2], one(pixels)[0, 0], rtol=0, atol=1e-6)
    assert one(np.stack([grey] * 5)).shape == (5, 3, 8, 8)
    assert one(torch.from_numpy(grey.copy())).shape == (1, 3, 8, 8)
    assert one(grey > 100).shape == (1, 3, 8, 8)
    assert one(pixels[..., :1]).shape == (1, 3, 8, 8)


@pytest.mark.parametrize("shape", [(2, 9, 12), (4, 9, 12), (3, 9, 3), (3, 3, 9, 3), (2, 5, 9, 12), (9,), (1, 2, 3, 4, 5)])
def test_shapes_that_can_be_read_in_two_ways_or_in_none_are_refused(shape):
    with pytest.raises(ReprogramError, match="images have shape"):
        one(np.zeros(shape, np.uint8))


def test_a_list_a_generator_and_a_mixture(photo):
    pixels = np.array(Image.open(photo))
    mixed = [photo, pixels, torch.from_numpy(pixels).permute(2, 0, 1), photo.read_bytes(), np.stack([pixels, pixels])]
    whole = as_float(one(mixed))
    assert whole.shape == (6, 3, 8, 8)
    assert (whole - whole[:1]).abs().max() <= 1.5 / 255, "PIL and torch differ by their rounding"
    batches = list(batches_of((image for image in mixed), 8, batch_size=4))
    assert [len(batch) for batch in batches] == [4, 2]
    torch.testing.assert_close(torch.cat([as_float(batch) for batch in batches]), whole)
    assert torch.equal(one([photo, photo]), torch.stack([read_image(photo, 8)] * 2))
    assert one([photo, photo]).dtype == torch.uint8
    assert list(batches_of([], 8)) == []
    assert list(batches_of(torch.zeros(0, 3, 4, 4), 8)) == []


def test_a_generator_is_read_no_further_than_needed(photo):
    read = []

    def endless():
        while True:
            read.append(1)
            yield photo

    next(batches_of(endless(), 8, batch_size=3))
    assert len(read) == 3


def test_a_batch_is_cut_into_batches():
    images = torch.rand(10, 3, 5, 5)
    batches = list(batches_of(images, 5, batch_size=4))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert torch.equal(torch.cat(batches), images)


def test_a_split_gives_its_pixels():
    split = ArraySplit(torch.rand(5, 1, 6, 6), [0, 1, 0, 1, 0])
    batches = list(batches_of(split, 8, "bicubic", batch_size=3))
    assert torch.equal(torch.cat(batches), split.pixels(8, "bicubic"))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (None, "images are a NoneType"),
        (7, "images are a int"),
        ({"a": 1}, "images are a dict"),
        ([None], "images are a NoneType"),
        ([[1, 2], [3, 4]], "image 1 is a list"),
        (b"no picture", "of 10 bytes' cannot be decoded"),
        ("nowhere.jpg", r"nowhere\.jpg' does not exist"),
        (io.StringIO("text"), "opened as text"),
        (np.array(["a.png"]), "images have shape|numbers are expected"),
        (np.full((8, 8, 3), 300), "0 to 255 is expected"),
        (np.full((8, 8, 3), 7.0), r"\[0, 1\]"),
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(images, message):
    with pytest.raises(ReprogramError, match=message) as caught:
        list(batches_of(images, 8))
    assert "\n" not in str(caught.value)


def test_the_place_of_the_channels_can_be_told():
    images = np.zeros((5, 3, 7, 3), np.uint8)
    assert channels_first(images, "last").shape == (5, 3, 3, 7)
    assert channels_first(images, "first").shape == (5, 3, 7, 3)
