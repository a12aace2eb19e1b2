import pytest
import torch

from hostile import special_files
from reprogram.errors import ReprogramError
from reprogram.sources.openclip_models import import_open_clip, named_templates
from reprogram.sources.texts import DEFAULT_TEMPLATE, Texts, checked_templates, plain_name, read_templates


def test_names_become_plain():
    assert plain_name("Annual_Crop-Land ") == "annual crop land"


def test_the_text_of_a_template_and_a_class_stands_at_template_times_classes_plus_class():
    classes, templates = ["A_b", "c", "D-e"], ["one {}", "two {}.", "three {}!", "four {}"]
    texts = Texts(classes, templates)
    for t, template in enumerate(templates):
        for c, name in enumerate(["a b", "c", "d e"]):
            assert texts[t * 3 + c] == template.format(name)
    assert texts.rows(["d_E", "c"]).tolist() == [[2, 1], [5, 4], [8, 7], [11, 10]]


def test_zero_shot_takes_the_default_template_or_else_the_first():
    classes = ["cat", "dog"]
    assert Texts(classes, ["a {}", DEFAULT_TEMPLATE]).zero_shot(classes).argmax(0).tolist() == [2, 3]
    assert Texts(classes, ["a {}", "the {}"]).zero_shot(["dog", "cat"]).argmax(0).tolist() == [1, 0]


def test_the_ensemble_is_the_cosine_with_the_mean_of_the_texts():
    torch.manual_seed(0)
    classes, templates = ["a", "b", "c"], ["1 {}", "2 {}", "3 {}", "4 {}"]
    text = torch.nn.functional.normalize(torch.randn(12, 5, dtype=torch.float64), dim=1)
    images = torch.nn.functional.normalize(torch.randn(7, 5, dtype=torch.float64), dim=1)
    omega = Texts(classes, templates, text).ensemble(["c", "a"])
    means = text.view(4, 3, 5).mean(0)[[2, 0]]
    expected = images @ torch.nn.functional.normalize(means, dim=1).T
    torch.testing.assert_close(images @ text.T @ omega.double(), expected, atol=1e-6, rtol=1e-6)


def test_a_class_without_a_text_is_named():
    with pytest.raises(ReprogramError, match="no text was made for class 'cow'"):
        Texts(["cat"], ["a {}"]).zero_shot(["cat", "cow"])


def test_the_ensemble_needs_embeddings():
    with pytest.raises(ReprogramError, match="no embeddings"):
        Texts(["cat"], ["a {}"]).ensemble(["cat"])


@pytest.mark.parametrize("bad", [["no place"], ["{} and {}"], [], ["a {}", "a {}"], [3]])
def test_templates_that_are_none_are_refused(bad):
    with pytest.raises(ReprogramError, match="template"):
        checked_templates(bad)


@pytest.mark.parametrize("bad", [[], "cat"])
def test_classes_must_be_a_list(bad):
    with pytest.raises(ReprogramError, match="class name"):
        Texts(bad, ["a {}"])


def test_templates_come_from_a_file(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("a drawing of a {}.\n\n  the {}  \n")
    assert read_templates(path) == named_templates(str(path)) == ("a drawing of a {}.", "the {}")
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ReprogramError, match=r"mine\.txt"):
        named_templates(str(path))


def test_templates_have_names():
    default, eighty, all_of_them = (named_templates(name) for name in ("default", "imagenet80", "paper81"))
    assert default == ("This is a photo of a {}.",)
    assert all_of_them == default + eighty
    assert len(eighty) == 80
    for template, made in zip(eighty, import_open_clip().OPENAI_IMAGENET_TEMPLATES, strict=True):
        assert template.format("sea lion") == made("sea lion")
    assert named_templates("a {} by night") == ("a {} by night",)
    with pytest.raises(ReprogramError, match="'paper81'"):
        named_templates("paper80")


def test_a_file_of_templates_is_read_with_care(tmp_path):
    path = tmp_path / "templates.txt"
    path.write_bytes(b"\xef\xbb\xbfa {}\n\nb {}\n")
    assert read_templates(path) == ("a {}", "b {}")
    for content, message in (
        (b"a {}\n\xff", "not UTF-8"),
        ("a {}".encode("utf-16"), "UTF-16"),
        (b"a {}\n" + b"b" * 5000, "template 'bbb"),
        (b"a {} " + b"b" * 5000, "5005 letters"),
        (b"", "0 templates"),
    ):
        path.write_bytes(content)
        with pytest.raises(ReprogramError, match=message) as raised:
            read_templates(path)
        assert len(str(raised.value)) < 400
    for special in special_files(tmp_path):
        with pytest.raises(ReprogramError, match=r"no plain file|cannot be read"):
            read_templates(special)


def test_very_many_classes_are_compared_in_no_time():
    classes = [f"class {number}" for number in range(100_000)]
    assert len(Texts(classes, ["a {}"])) == 100_000
    with pytest.raises(ReprogramError, match="two classes are both 'class 5'"):
        Texts([*classes, "Class_5"], ["a {}"])
