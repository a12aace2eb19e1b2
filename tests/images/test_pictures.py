import io
import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from reprogram.errors import ReprogramError
from reprogram.images.decoding import begins_like_an_image, large_images_allowed
from reprogram.images.pictures import as_rgb, pil_to_tensor, read_image, resize

fast = settings(deadline=None, derandomize=True, max_examples=40)
NAN = float("nan")


@pytest.fixture
def folder(tmp_path):
    """A function that saves a PIL image under a name and returns the path."""

    def save(picture, name, **options):
        picture.save(tmp_path / name, **options)
        return tmp_path / name

    return save


def colours(height=6, width=8, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def as_pixels(tensor):
    """(3, H, W) back to an (H, W, 3) array."""
    assert tensor.dtype == torch.uint8
    assert tensor.is_contiguous()
    return tensor.permute(1, 2, 0).numpy()


# ---- tensors


def test_grey_becomes_three_equal_channels():
    grey = torch.rand(2, 1, 3, 4)
    assert torch.equal(as_rgb(grey), grey.repeat(1, 3, 1, 1))


def test_transparent_pixels_lie_over_white():
    rgba = torch.tensor([0.2, 0.4, 0.6, 0.25]).view(1, 4, 1, 1)
    torch.testing.assert_close(as_rgb(rgba).flatten(), torch.tensor([0.8, 0.85, 0.9]))
    grey_alpha = torch.tensor([0.2, 0.0]).view(1, 2, 1, 1)
    assert as_rgb(grey_alpha).flatten().tolist() == [1, 1, 1]


@fast
@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 5), st.integers(1, 5))
def test_every_batch_becomes_float32_rgb_in_the_unit_interval(channels, count, height, width):
    pixels = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8)
    out = as_rgb(pixels)
    assert out.dtype == torch.float32
    assert out.shape == (count, 3, height, width)
    assert ((out >= 0) & (out <= 1)).all()
    torch.testing.assert_close(as_rgb(pixels.double() / 255), out)


def test_all_256_levels_of_uint8_are_kept_apart():
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal((as_rgb(levels)[:, :1] * 255).round().to(torch.uint8), levels)


def test_rgb_floats_pass_through_unchanged():
    images = torch.rand(2, 3, 4, 4)
    assert torch.equal(as_rgb(images), images)
    assert as_rgb(images.half()).dtype == torch.float32


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(3, 8, 8), r"\(3, 8, 8\).*\(N, C, H, W\)"),
        (torch.zeros(8, 8), r"\(8, 8\)"),
        (torch.zeros(2, 8, 8, 3), r"\(2, 8, 8, 3\).*channels to the second place"),
        (torch.zeros(2, 5, 8, 8), r"\(2, 5, 8, 8\).*1 to 4 channels"),
        (torch.zeros(2, 0, 8, 8), r"\(2, 0, 8, 8\).*1 to 4 channels"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.int64), r"torch\.int64.*uint8 or floating point"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.bool), r"torch\.bool"),
        (255 * torch.rand(1, 3, 8, 8).clamp(min=0.1), r"values from .*\[0, 1\].*scale them"),
        (torch.rand(1, 3, 8, 8) - 2, r"values from -"),
        (torch.tensor([0.1, NAN, 0.2]).view(1, 3, 1, 1), "NaN"),
        (torch.tensor([0.1, float("inf"), 0.2]).view(1, 3, 1, 1), "inf"),
    ],
)
def test_what_is_no_batch_of_pixels_is_refused(images, message):
    with pytest.raises(ReprogramError, match=message):
        as_rgb(images)


def test_a_resize_of_white_by_torch_itself_is_white():
    """Its antialiased resize returns 1 + 2.4e-7 for some sizes, and half precision has 1.00098 next to 1."""
    excess = torch.tensor([1 + 2.4e-7, 1.0, 0.5, -3e-8, 1.0009, -0.0009]).view(1, 1, 2, 3)
    out = as_rgb(excess)
    assert out[0, 0].flatten().tolist() == [1, 1, 0.5, 0, 1, 0]
    assert as_rgb(excess.half()).max() == 1
    for outside in (1.002, -0.002):
        with pytest.raises(ReprogramError, match="values from"):
            as_rgb(torch.tensor([0.5, outside, 0.5, 0.5]).view(1, 1, 2, 2))


def test_resize_lets_the_right_size_through_and_keeps_the_range():
    images = torch.rand(2, 3, 8, 8)
    assert resize(images, 8) is images
    edges = (torch.arange(64) % 2).float().view(1, 1, 8, 8).repeat(1, 3, 1, 1)
    for interpolation in ("bilinear", "bicubic"):
        out = resize(edges.repeat_interleave(4, 2).repeat_interleave(4, 3), 45, interpolation)
        assert out.shape == (1, 3, 45, 45)
        assert out.min() >= 0
        assert out.max() <= 1
    assert resize(torch.rand(0, 3, 5, 5), 8).shape == (0, 3, 8, 8)


def test_resize_averages_when_it_shrinks():
    stripes = (torch.arange(64) % 2).float().expand(1, 3, 64, 64)
    torch.testing.assert_close(resize(stripes, 8), torch.full((1, 3, 8, 8), 0.5), rtol=0, atol=0.02)


# ---- files


def test_rgb_png_is_read_to_the_bit(folder):
    pixels = colours()
    assert np.array_equal(as_pixels(read_image(folder(Image.fromarray(pixels), "a.png"))), pixels)
    assert np.array_equal(as_pixels(read_image(str(folder(Image.fromarray(pixels), "b.bmp")))), pixels)


def test_greyscale(folder):
    levels = colours(channels=1)[:, :, 0]
    out = as_pixels(read_image(folder(Image.fromarray(levels), "grey.png")))
    assert np.array_equal(out, np.repeat(levels[:, :, None], 3, 2))


def test_one_bit(folder):
    bits = Image.fromarray(colours(channels=1)[:, :, 0]).convert("1")
    out = as_pixels(read_image(folder(bits, "bits.png")))
    assert np.array_equal(out[:, :, 0], np.asarray(bits) * np.uint8(255))


def test_rgba_lies_over_white(folder):
    pixels = colours(channels=4)
    pixels[0, 0], pixels[0, 1] = (10, 20, 30, 0), (10, 20, 30, 255)
    out = as_pixels(read_image(folder(Image.fromarray(pixels), "rgba.png"))).astype(int)
    alpha = pixels[:, :, 3:] / 255
    assert np.abs(out - (pixels[:, :, :3] * alpha + 255 * (1 - alpha))).max() <= 1
    assert out[0, 0].tolist() == [255] * 3
    assert out[0, 1].tolist() == [10, 20, 30]


def test_grey_with_alpha_lies_over_white(folder):
    pixels = np.array([[[100, 255], [100, 0]]], dtype=np.uint8)
    out = as_pixels(read_image(folder(grey_alpha(pixels), "la.png")))
    assert out.tolist() == [[[100] * 3, [255] * 3]]


def grey_alpha(pixels):
    return Image.merge("LA", [Image.fromarray(np.ascontiguousarray(pixels[:, :, place])) for place in (0, 1)])


def palette():
    picture = Image.new("P", (3, 1))
    picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    picture.putdata([0, 1, 2])
    return picture


def test_palette(folder):
    out = as_pixels(read_image(folder(palette(), "p.png")))
    assert out.tolist() == [[[255, 0, 0], [0, 255, 0], [0, 0, 255]]]


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])])
def test_palette_with_transparency_lies_over_white(folder, transparency):
    out = as_pixels(read_image(folder(palette(), "p.png", transparency=transparency)))
    assert out.tolist() == [[[255, 0, 0], [255, 255, 255], [0, 0, 255]]]


def test_transparent_colour_of_an_rgb_or_grey_png_lies_over_white(folder):
    pixels = np.array([[[200, 30, 60], [1, 2, 3]]], dtype=np.uint8)
    out = as_pixels(read_image(folder(Image.fromarray(pixels), "key.png", transparency=(200, 30, 60))))
    assert out.tolist() == [[[255] * 3, [1, 2, 3]]]
    grey = as_pixels(read_image(folder(Image.fromarray(pixels[:, :, 0]), "grey.png", transparency=200)))
    assert grey.tolist() == [[[255] * 3, [1] * 3]]


def test_cmyk_jpeg(folder):
    picture = Image.new("RGB", (16, 16), (180, 60, 90)).convert("CMYK")
    path = folder(picture, "cmyk.jpg", quality=95)
    with Image.open(path) as opened:
        assert opened.mode == "CMYK"
    assert np.abs(as_pixels(read_image(path)).astype(int) - [180, 60, 90]).max() <= 6


def test_lab_tiff(folder):
    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    path = folder(ImageCms.applyTransform(Image.new("RGB", (4, 4), (180, 60, 90)), to_lab), "lab.tif")
    assert np.abs(as_pixels(read_image(path)).astype(int) - [180, 60, 90]).max() <= 3


def test_sixteen_bits_are_scaled_not_clipped(folder):
    levels = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    out = as_pixels(read_image(folder(Image.fromarray(levels), "deep.png")))
    assert out[0, :, 0].tolist() == [0, 1, 128, 255]


def test_a_dark_sixteen_bit_picture_stays_dark(folder):
    """The brightness of a pixel must not depend on whether a bright one happens to be in the same picture."""
    levels = np.array([[0, 100, 200]], dtype=np.uint16)
    assert as_pixels(read_image(folder(Image.fromarray(levels), "dark.png"))).max() <= 1


def test_thirty_two_bit_integers_and_floats(folder):
    integers = Image.fromarray(np.array([[0, 128, 255]], dtype=np.int32))
    assert as_pixels(pil_to_tensor(integers))[0, :, 0].tolist() == [0, 128, 255]
    unit = folder(Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)), "unit.tiff")
    assert as_pixels(read_image(unit))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))])
def test_exif_rotation_is_applied(folder, orientation, corner):
    """The white corner of the stored pixels must land where a viewer that turns the picture shows it."""
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = as_pixels(read_image(folder(Image.fromarray(pixels), "turned.jpg", exif=exif, quality=95)))
    assert out.shape == ((16, 32, 3) if orientation in (1, 3) else (32, 16, 3))
    assert out[corner].min() > 200
    assert (out > 128).all(2).mean() == pytest.approx(1 / 8, abs=0.03)


def test_animated_gif_gives_its_first_frame(folder):
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "lime", "blue")]
    path = folder(frames[0], "moving.gif", save_all=True, append_images=frames[1:], duration=50)
    with Image.open(path) as opened:
        assert opened.n_frames == 3
    assert as_pixels(read_image(path)).reshape(-1, 3).tolist() == [[255, 0, 0]] * 20


def test_the_size_is_given_to_both_sides(folder):
    path = folder(Image.fromarray(colours(20, 30)), "wide.png")
    assert read_image(path).shape == (3, 20, 30)
    for interpolation in ("bilinear", "bicubic"):
        assert read_image(path, 12, interpolation).shape == (3, 12, 12)
    assert not torch.equal(read_image(path, 12), read_image(path, 12, "bicubic"))


def test_a_picture_of_the_right_size_is_not_resampled(folder):
    pixels = colours(12, 12)
    assert np.array_equal(as_pixels(read_image(folder(Image.fromarray(pixels), "a.png"), 12)), pixels)


def test_the_tensor_is_its_own_and_may_be_written(folder):
    tensor = read_image(folder(Image.fromarray(colours()), "a.png"))
    tensor.zero_()
    assert pil_to_tensor(Image.fromarray(colours())).sum() > 0


# ---- broken files


def encoded(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("truncated.jpg", encoded(Image.fromarray(colours(64, 64)), "JPEG")[:700]),
        ("truncated.png", encoded(Image.fromarray(colours(64, 64)), "PNG")[:700]),
        ("header_only.png", encoded(Image.fromarray(colours(64, 64)), "PNG")[:20]),
        ("text.jpg", b"this is not a picture"),
        ("page.png", b"<html><body>404</body></html>"),
        ("nothing.jpg", b""),
    ],
)
def test_broken_files_are_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ReprogramError, match=f"{name}' cannot be decoded .*replace it or take it out") as caught:
        read_image(path)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(ReprogramError, match=r"nowhere\.jpg' does not exist"):
        read_image(tmp_path / "nowhere.jpg")
    with pytest.raises(ReprogramError, match="is a folder, but an image file is expected"):
        read_image(tmp_path)


def test_only_decoders_for_photographs_run(tmp_path, monkeypatch):
    """A file is decoded by what it is, not by its name: PostScript would start another program."""
    asked = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: asked.append(1))
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with pytest.raises(ReprogramError, match=r"photo\.jpg' cannot be decoded"):
        read_image(path)
    Image.fromarray(colours(8, 8)).save(tmp_path / "old.tga")
    with pytest.raises(ReprogramError, match=r"old\.tga' cannot be decoded"):
        read_image(tmp_path / "old.tga")
    assert asked == []


def test_whatever_a_decoder_raises_is_about_the_image(folder, monkeypatch):
    path = folder(Image.fromarray(colours(8, 8)), "a.png")

    def raw(*_, **__):
        raise KeyError("exif")

    monkeypatch.setattr("reprogram.images.decoding.ImageOps.exif_transpose", raw)
    with pytest.raises(ReprogramError, match=r"a\.png' cannot be decoded"):
        read_image(path)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP", "AVIF"])
def test_images_are_known_by_their_first_bytes(tmp_path, kind):
    (tmp_path / "picture").write_bytes(encoded(Image.fromarray(colours(16, 16)), kind))
    assert begins_like_an_image(tmp_path / "picture")
    assert read_image(tmp_path / "picture").shape == (3, 16, 16)
    (tmp_path / "text").write_text("Make: a note")
    assert not begins_like_an_image(tmp_path / "text")
    assert not begins_like_an_image(tmp_path / "nowhere")


def test_a_decompression_bomb_is_refused(folder, monkeypatch):
    path = folder(Image.fromarray(colours(20, 20)), "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ReprogramError, match=r"bomb\.png' is too large to decode"):
        read_image(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with large_images_allowed():
        assert read_image(path).shape == (3, 20, 20), "a large picture, below twice the limit, is no reason to warn"


def channels_or_refusal(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Pillow says about a broken file is not the point here
        try:
            return len(read_image(path))
        except ReprogramError as error:
            return str(error)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM"])
def test_a_file_with_any_bytes_wrong_is_read_or_refused_in_one_sentence(tmp_path, kind):
    """Cut and garbled files: whatever the decoder throws, the caller sees a ReprogramError."""
    dice = random.Random(0)
    whole = encoded(Image.fromarray(colours(24, 20)), kind)
    wrong = [whole[:end] for end in range(0, len(whole), max(1, len(whole) // 40))]
    for _ in range(80):
        garbled = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            garbled[dice.randrange(min(len(whole), 200))] = dice.randrange(256)
        wrong.append(bytes(garbled))
    path = tmp_path / f"picture.{kind.lower()}"
    for content in wrong:
        path.write_bytes(content)
        outcome = channels_or_refusal(path)
        assert outcome == 3 or path.name in outcome


# ---- CLIP's way: the shorter side resized, the middle cut out


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(40, 60), (61, 40), (40, 40), (7, 90), (31, 30)])
def test_a_crop_keeps_the_aspect_and_the_middle(shape, interpolation):
    """Cut to the middle square first, then resized: the same picture, but for the edges that see what was cut off."""
    ramp = np.linspace(0, 255, shape[0] * shape[1] * 3).reshape(*shape, 3).astype(np.uint8)
    picture = Image.fromarray(ramp)
    cropped = pil_to_tensor(picture, 20, f"{interpolation}-crop")
    assert cropped.shape == (3, 20, 20)
    side = min(shape)
    top, left = ((length - side) / 2 for length in shape)
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    middle = picture.resize((20, 20), filters[interpolation], box=(left, top, left + side, top + side))
    difference = np.abs(as_pixels(cropped).astype(int) - np.asarray(middle).astype(int))
    assert np.median(difference) <= 3


@pytest.mark.parametrize("shape", [(40, 60), (61, 40), (20, 20), (33, 20)])
def test_tensors_are_cropped_like_pictures(shape):
    pixels = colours(*shape)
    from_picture = pil_to_tensor(Image.fromarray(pixels), 20, "bicubic-crop")
    from_tensor = resize(as_rgb(torch.from_numpy(pixels).permute(2, 0, 1)[None]), 20, "bicubic-crop")[0]
    assert from_tensor.shape == (3, 20, 20)
    assert (from_tensor * 255 - from_picture).abs().max() <= 2  # PIL rounds to whole levels in between


def test_a_square_is_cropped_nowhere():
    batch = as_rgb(torch.from_numpy(colours(30, 30)).permute(2, 0, 1)[None])
    for how in ("bilinear", "bicubic"):
        assert torch.equal(resize(batch, 20, f"{how}-crop"), resize(batch, 20, how))
