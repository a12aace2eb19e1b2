import numpy as np
import pytest
import torch

from reprogram import ReprogramError, Reprogrammed, fit, make_mapping
from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.errors import EvidenceWarning
from reprogram.programs.base import make_program
from reprogram.sources.black_box import BlackBox

COLOURS = ["red", "green", "blue"]


def colours(pixels):
    """The means of the three channels: a classifier that a test can foresee."""
    return pixels.mean((2, 3))


def box(call=colours, **options):
    return BlackBox(call, **{"input_size": 8, **options})


def test_it_answers_images_like_any_frozen_model():
    frozen = box(labels=COLOURS, mean=(0.5,) * 3, std=(0.25,) * 3)
    images = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(frozen.logits(images), (images.mean((2, 3)) - 0.5) / 0.25)
    assert (frozen.k_source, frozen.labels, frozen.name) == (3, COLOURS, "colours")
    assert not frozen.differentiable
    assert list(frozen.parameters()) == []
    assert frozen.state_dict() == {}


@pytest.mark.parametrize(
    "kind", [np.asarray, np.ndarray.tolist, torch.from_numpy, np.float64], ids=["array", "list", "tensor", "double"]
)
def test_answers_may_be_arrays_tensors_and_lists(kind):
    frozen = box(lambda pixels: kind(colours(pixels)), k_source=3)
    answer = frozen.logits(torch.ones(2, 3, 8, 8))
    assert answer.dtype == torch.float32
    assert torch.equal(answer, torch.ones(2, 3))


def test_it_is_asked_only_when_nobody_says_how_many_labels_there_are():
    asked = []

    def counting(pixels):
        asked.append(pixels.shape)
        return colours(pixels)

    assert box(counting, labels=COLOURS).k_source == box(counting, k_source=3).k_source == 3
    assert asked == []
    assert box(counting).labels == ["label 0", "label 1", "label 2"]
    assert asked == [(1, 3, 8, 8)]


def test_what_it_does_to_its_array_stays_with_it():
    def careless(pixels):
        pixels *= 0
        return colours(pixels)

    images = torch.ones(1, 3, 8, 8)
    box(careless, k_source=3)(images)
    assert torch.equal(images, torch.ones(1, 3, 8, 8))


def test_probabilities_come_back_from_the_softmax():
    table = np.array([[0.7, 0.3, 0.0], [0.2, 0.5, 0.3]], dtype=np.float32)
    logits = box(lambda pixels: table, k_source=3, outputs="probabilities").logits(torch.ones(2, 3, 8, 8))
    assert logits.isfinite().all()
    torch.testing.assert_close(logits.softmax(1), torch.from_numpy(table))


def test_the_best_labels_of_a_service_are_enough():
    logits = box(lambda pixels: [[0.6, 0.0, 0.1]], k_source=3, outputs="probabilities").logits(torch.ones(1, 3, 8, 8))
    assert logits.argsort(descending=True).tolist() == [[0, 2, 1]]


def test_probabilities_below_one_are_not_stretched():
    """Eq. 8 adds up the model's own probabilities; these logits say that they are logarithms of them."""
    table = [[0.6, 0.0, 0.1], [0.0, 0.0, 0.0], [0.3, 1e-20, 0.0]]
    frozen = box(lambda pixels: table, k_source=3, outputs="probabilities")
    logits = frozen.logits(torch.ones(3, 3, 8, 8))
    assert frozen.log_probabilities
    assert not box(k_source=3).log_probabilities
    torch.testing.assert_close(logits.exp(), torch.tensor(table), atol=1e-11, rtol=1e-6)


def test_labels_that_an_answer_leaves_out_are_last_but_no_outliers():
    table = [[0.6, 0.0, 0.1], [1.0, 0.0, 0.0], [0.3, 1e-20, 0.0]]
    logits = box(lambda pixels: table, k_source=3, outputs="probabilities").logits(torch.ones(3, 3, 8, 8))
    assert logits[0, 1] == logits[1, 2] == pytest.approx(np.log(1e-12))
    assert logits[2, 2] == logits[2, 1] == pytest.approx(np.log(1e-20))
    assert logits.argmin(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("answer", "outputs", "message"),
    [
        ([[1.0, 2.0]], "logits", r"answers 1 images with shape \(1, 2\), but \(1, 3\) is expected"),
        ([1.0, 2.0, 3.0], "logits", r"shape \(3,\), but \(1, 3\)"),
        ([[1.0, 2.0, 3.0]] * 2, "logits", r"shape \(2, 3\), but \(1, 3\)"),
        ([[1.0, 2.0, float("nan")]], "logits", "NaN or infinity"),
        ([[1.0, 2.0], [3.0]], "logits", "a list that is no table of numbers"),
        ({"cat": 0.3}, "logits", "a dict that is no table of numbers"),
        (None, "logits", r"shape \(\), but \(1, 3\)"),
        ([[1.0, 2.0, -3.0]], "probabilities", r"down to -3 .*outputs='logits'"),
        ([[0.9, 0.9, 0.9]], "probabilities", r"add up to 2\.7"),
    ],
)
def test_answers_that_make_no_sense_are_named(answer, outputs, message):
    with pytest.raises(ReprogramError, match=message):
        box(lambda pixels: answer, k_source=3, outputs=outputs, name="oracle").logits(torch.ones(1, 3, 8, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"call": 7}, "a int was given as a black box"),
        ({"outputs": "logit"}, "'logit' is not known; did you mean 'logits'"),
        ({"labels": COLOURS, "k_source": 5}, "3 source labels were given for a model with 5 outputs"),
        ({"call": lambda pixels: pixels}, r"answers 1 images with shape \(1, 3, 8, 8\), but \(1, k_S\) is expected"),
    ],
)
def test_mistakes_of_the_caller_are_named(options, message):
    with pytest.raises(ReprogramError, match=message):
        box(**{"call": colours, **options})


def test_nothing_can_be_trained_through_it():
    images = torch.rand(1, 3, 8, 8, requires_grad=True)
    with pytest.raises(ReprogramError, match=r"colours gives no gradients, so only --program none"):
        box(k_source=3)(images)
    with torch.no_grad():
        assert box(k_source=3)(images).shape == (1, 3)


def test_the_fingerprint_is_of_the_name_and_says_no_more():
    assert box(k_source=3).fingerprint == box(k_source=3).fingerprint != box(k_source=3, name="other").fingerprint
    assert box(k_source=3, fingerprint="ab").fingerprint == "ab"


def test_an_artefact_needs_the_callable_again(tmp_path):
    frozen = box(labels=COLOURS)
    program = make_program("none", canvas=8)
    model = Reprogrammed(program, frozen, make_mapping("rlm", frozen.labels, ["warm", "cold"]))
    model.save(tmp_path / "artefact")
    with pytest.raises(ReprogramError, match="a model of your own"):
        Reprogrammed.load(tmp_path / "artefact")
    again = Reprogrammed.load(tmp_path / "artefact", frozen=box(labels=COLOURS))
    images = torch.rand(3, 3, 8, 8)
    assert torch.equal(again(images), model(images))


def test_a_learned_mapping_can_be_trained_behind_it():
    frozen = box(labels=COLOURS)
    program = make_program("none", canvas=8)
    model = Reprogrammed(program, frozen, make_mapping("linear", frozen.labels, ["warm", "cold"]))
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    assert any(parameter.grad is not None and parameter.numel() for parameter in model.mapping.parameters())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 10**400, 1j, "nan", None])
def test_answers_that_are_no_finite_numbers_are_one_sentence(value):
    frozen = box(lambda pixels: [[value, 0, 0]] * len(pixels), k_source=3)
    with pytest.raises(ReprogramError, match=r"NaN or infinity|no table of numbers"):
        frozen.logits(torch.ones(2, 3, 8, 8))
    tensors = box(lambda pixels: torch.full((len(pixels), 3), 1j), k_source=3)
    with pytest.raises(ReprogramError, match="no table of numbers"):
        tensors.logits(torch.ones(2, 3, 8, 8))


@pytest.mark.parametrize("mapping", ["flm", "blm", "blm+"])
@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_a_box_that_answers_nothing_but_zeros_is_told(mapping, outputs):
    """Of equal logits the first is the largest, so that ω would be that of a model that says `red` to everything."""
    frozen = box(lambda pixels: np.zeros((len(pixels), 3)), labels=COLOURS, outputs=outputs)
    model = Reprogrammed(make_program("none", canvas=8), frozen, make_mapping(mapping, COLOURS, ["a", "b"]))
    split = ArraySplit(torch.rand(8, 3, 8, 8), torch.arange(8) % 2)
    with pytest.warns(EvidenceWarning) as told:
        fit(model, DataSet("noise", ("a", "b"), train=split, test=split), batch_size=4)
    assert any("the same logit for all 3 source labels, which says nothing" in str(warning.message) for warning in told)
