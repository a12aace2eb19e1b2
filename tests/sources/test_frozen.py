import copy

import pytest
import torch
from torch import nn

from reprogram.errors import ReprogramError
from reprogram.sources.black_box import BlackBox
from reprogram.sources.frozen import Frozen
from reprogram.sources.registry import CLASSIFIER, SOURCES
from reprogram.sources.texts import Texts
from reprogram.sources.vision_language import VisionLanguage

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def small_net(seed=0, outputs=5):
    """Convolution, batch norm with running statistics, dropout: all that `train()` could spoil."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, outputs),
    )
    net[1].running_mean.normal_()
    return net


def snapshot(module):
    return {key: value.clone() for key, value in module.state_dict().items()}


def assert_identical(module, before):
    after = module.state_dict()
    assert list(after) == list(before)
    for key, value in after.items():
        assert value.dtype == before[key].dtype
        assert value.contiguous().numpy().tobytes() == before[key].contiguous().numpy().tobytes(), key


class Parent(nn.Module):
    def __init__(self, frozen, size):
        super().__init__()
        self.frozen = frozen
        self.pattern = nn.Parameter(torch.zeros(3, size, size))

    def forward(self, images):
        return self.frozen(images + self.pattern)


@pytest.fixture(params=["small", "lite0"])
def frozen(request):
    if request.param == "lite0":
        return request.getfixturevalue("lite0")
    return Frozen(small_net(), mean=MEAN, std=STD, input_size=16)


# ---- frozen means frozen


def test_no_weight_and_no_buffer_changes_by_a_bit(frozen):
    before = snapshot(frozen.module)
    parent = Parent(frozen, 64)
    parent.train()
    frozen.train()
    frozen.train(True)
    optimizer = torch.optim.AdamW(parent.parameters(), lr=0.1, weight_decay=0.5)
    for seed in range(2):
        images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
        loss = parent(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert parent.pattern.abs().sum() > 0
    assert_identical(frozen.module, before)
    assert all(parameter.grad is None for parameter in frozen.module.parameters())


def test_train_never_reaches_the_module(frozen):
    parent = Parent(frozen, 64)
    for mode in (parent.train, frozen.train, parent.eval):
        mode()
        assert not frozen.training
        assert not any(part.training for part in frozen.module.modules())
    assert parent.train().training


def test_dropout_and_batch_statistics_stay_off():
    frozen = Frozen(small_net(), input_size=16).train()
    images = torch.rand(4, 3, 16, 16)
    assert torch.equal(frozen(images), frozen(images))
    torch.testing.assert_close(frozen(images)[:1], frozen(images[:1]))  # an image's logits do not depend on its batch


def test_nothing_of_it_can_be_trained_or_saved(frozen):
    assert list(frozen.parameters()) == []
    assert dict(frozen.state_dict()) == {}
    parent = Parent(frozen, 8)
    assert [name for name, _ in parent.named_parameters()] == ["pattern"]
    assert list(parent.state_dict()) == ["pattern"]
    assert not any(parameter.requires_grad for parameter in frozen.module.parameters())
    assert frozen.parameter_count == sum(parameter.numel() for parameter in frozen.module.parameters()) > 0


def test_gradient_flows_to_the_input(frozen):
    images = torch.rand(1, 3, 64, 64, requires_grad=True)
    frozen(images)[0, 0].backward()
    assert images.grad.abs().sum() > 0


def test_a_module_that_was_in_training_is_switched_once_and_for_all():
    module = small_net().train()
    before = snapshot(module)
    Frozen(module, input_size=16).logits(torch.rand(3, 3, 16, 16))
    assert not module.training
    assert_identical(module, before)


def test_it_moves_with_its_parent_all_the_same():
    frozen = Frozen(small_net(), input_size=16)
    Parent(frozen, 16).double()
    assert frozen.module[0].weight.dtype == torch.float64
    assert frozen.mean.dtype == torch.float64


# ---- images to logits


def test_logits_resize_normalise_and_run():
    frozen = Frozen(small_net(), mean=MEAN, std=STD, input_size=16)
    images = torch.rand(2, 3, 16, 16)
    expected = frozen.module((images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1))
    torch.testing.assert_close(frozen.logits(images), expected)
    torch.testing.assert_close(frozen.logits((images * 255).round().to(torch.uint8)), expected, rtol=0, atol=0.05)
    assert not frozen.logits(images.requires_grad_()).requires_grad
    for shape in ((1, 3, 40, 20), (2, 1, 9, 9), (1, 4, 16, 16)):
        assert frozen.logits(torch.rand(shape)).shape == (shape[0], 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_answers_images_too(dtype):
    images = torch.rand(2, 3, 16, 16)
    expected = Frozen(small_net(), input_size=16).logits(images)
    found = Frozen(small_net().to(dtype), input_size=16).logits(images)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)


def test_pixels_out_of_range_are_refused():
    with pytest.raises(ReprogramError, match=r"\[0, 1\]"):
        Frozen(small_net(), input_size=16).logits(255 * torch.ones(1, 3, 16, 16))


# ---- labels and outputs


def test_the_number_of_source_labels_is_the_model_s():
    for outputs in (1, 5, 1000):
        frozen = Frozen(small_net(outputs=outputs), input_size=16)
        assert frozen.k_source == len(frozen.labels) == outputs
    assert Frozen(small_net(), input_size=16).labels == [f"label {index}" for index in range(5)]
    assert Frozen(small_net(), input_size=16, labels=list("abcde")).labels == list("abcde")


@pytest.mark.parametrize("labels", [["a", "b", "c"], [], list("abcdef")])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(ReprogramError, match=f"{len(labels)} source labels were given for a model with 5 outputs"):
        Frozen(small_net(), input_size=16, labels=labels)


class Answers(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: x, r"shape \(1, 3, 16, 16\)"),
        (lambda x: x.flatten(), r"shape \(768,\)"),
        (lambda x: (x.flatten(1), x), "a tuple"),
        (lambda x: {"logits": x.flatten(1)}, "a dict"),
    ],
)
def test_a_model_that_does_not_answer_with_logits_is_refused(answer, message):
    with pytest.raises(ReprogramError, match=f"{message}, but logits .* are expected; wrap it"):
        Frozen(Answers(answer), input_size=16)


def test_its_name_is_the_spec_s_or_the_class_s():
    assert Frozen(small_net(), input_size=16).name == "Sequential"
    assert Frozen(small_net(), input_size=16, spec={"name": "timm:resnet18"}).name == "timm:resnet18"


# ---- fingerprint


def fingerprint(net):
    return Frozen(net, input_size=16).fingerprint


def flip_one_bit(tensor):
    with torch.no_grad():
        tensor.view(torch.int32).view(-1)[0] ^= 1


CHANGES = {
    "one bit of a weight": lambda net: flip_one_bit(net[0].weight),
    "one bit of a bias": lambda net: flip_one_bit(net[6].bias),
    "one bit of a buffer": lambda net: flip_one_bit(net[1].running_var),
    "an integer buffer": lambda net: net[1].num_batches_tracked.add_(1),
    "a precision": lambda net: net.double(),
}


def test_equal_models_share_a_fingerprint_of_sha_256():
    assert fingerprint(small_net()) == fingerprint(small_net()) == fingerprint(copy.deepcopy(small_net()))
    assert len(fingerprint(small_net())) == 64


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_has_another_fingerprint(change):
    net = small_net()
    before = fingerprint(net)
    CHANGES[change](net)
    assert fingerprint(net) != before


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_tells_when_somebody_changed_the_very_model(change):
    """Compared before and after a run, it is the proof that nothing changed; a remembered one would prove nothing."""
    frozen = Frozen(small_net(), input_size=16)
    before = frozen.fingerprint
    assert frozen.fingerprint == before
    CHANGES[change](frozen.module)
    assert frozen.fingerprint != before


def test_the_fingerprint_covers_buffers_that_are_not_saved():
    def with_buffer(value):
        net = small_net()
        net.register_buffer("mask", torch.full((3,), value), persistent=False)
        return net

    assert fingerprint(with_buffer(1.0)) == fingerprint(with_buffer(1.0))
    assert fingerprint(with_buffer(1.0)) != fingerprint(with_buffer(2.0))


def test_names_and_shapes_are_part_of_the_fingerprint():
    def net(first, second):
        torch.manual_seed(0)
        flat = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return flat.append(nn.Linear(3, first)).append(nn.Linear(first, second)).requires_grad_(False)

    one, other = net(2, 3), net(3, 2)
    for module in (one, other):
        for parameter in module.parameters():
            parameter.zero_()
    assert fingerprint(one) != fingerprint(other)


def test_the_fingerprint_does_not_depend_on_the_memory_format():
    plain, channels_last = small_net(), small_net().to(memory_format=torch.channels_last)
    assert not channels_last[0].weight.is_contiguous()
    assert fingerprint(plain) == fingerprint(channels_last)


# ---- what it says of itself


def test_it_says_where_its_label_names_come_from():
    assert Frozen(small_net(), input_size=16).label_source == "numbered: the file carries no names"
    assert Frozen(small_net(), input_size=16, labels=list("abcde")).label_source == "given by the caller"
    named = Frozen(small_net(), input_size=16, labels=list("abcde"), label_source="config.id2label")
    assert named.label_source == "config.id2label"


def test_a_module_gives_gradients():
    assert Frozen(small_net(), input_size=16).differentiable


# ---- what goes with a kind of model, asked of the model instead of its class


def small(kind=Frozen, **options):
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if kind is VisionLanguage:
        texts = Texts(["a", "b"], ["{}", "the {}"])
        return VisionLanguage(module, torch.eye(4)[:, :3], texts, logit_scale=0.0, input_size=8, **options)
    if kind is BlackBox:
        return BlackBox(lambda pixels: pixels.mean((2, 3)), k_source=3, input_size=8, **options)
    return Frozen(module, input_size=8, **options)


@pytest.mark.parametrize(
    ("kind", "program", "frame", "needs_classes", "training"),
    [
        (Frozen, "padding", None, False, {}),
        (BlackBox, "none", None, False, {}),
        (VisionLanguage, "watermark", 30, True, {"optimizer": "sgd", "lr": 40.0, "schedule": "cosine"}),
    ],
)
def test_a_model_says_what_goes_with_it(kind, program, frame, needs_classes, training):
    frozen = small(kind)
    assert (frozen.default_program, frozen.kind.default_frame, frozen.kind.needs_classes) == (program, frame, needs_classes)
    assert frozen.paper_training == training
    frozen.paper_training["lr"] = 1  # a copy: nobody can change it for others
    assert small(kind).paper_training == training


def test_a_program_resizes_bilinearly_except_for_clip():
    assert small(interpolation="bicubic").program_interpolation == "bilinear"
    assert small(VisionLanguage, interpolation="bicubic").program_interpolation == "bicubic"
    assert small(VisionLanguage).program_interpolation == "bicubic-crop"


def test_only_clip_knows_a_span_and_has_short_features():
    assert (small().span, small().short_features) == (None, False)
    assert (small(BlackBox).span, small(BlackBox).short_features) == (None, False)
    assert small(VisionLanguage).short_features
    assert small(VisionLanguage).span.shape == (4, 3)


def test_sources_and_their_models_agree(lite0):
    assert SOURCES["bundled"].kind is lite0.kind is CLASSIFIER
    assert SOURCES["onnx"].kind is BlackBox.kind
    assert SOURCES["openclip"].kind is VisionLanguage.kind


def test_normalisation_is_in_one_place():
    frozen, images = small(mean=(0.5, 0.4, 0.3), std=(0.2, 0.5, 1.0)), torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(frozen.normalised(images)[:, 1], (images[:, 1] - 0.4) / 0.5)
    assert torch.equal(frozen.logits(images), frozen(frozen.normalised(images)))


@pytest.mark.parametrize(
    "wrong", [{"std": (1.0, 0.0, 1.0)}, {"mean": (0.0, torch.nan, 0.0)}, {"std": (1.0, 1.0, torch.inf)}]
)
def test_a_normalisation_that_cannot_be_is_refused(wrong):
    with pytest.raises(ReprogramError, match="finite numbers are expected, and no deviation of 0"):
        small(**wrong)


def test_equal_names_stay_two_labels():
    """ImageNet has a crane that flies and a crane that lifts."""
    assert small(labels=["crane", "crane", "tench"]).labels == ["crane", "crane", "tench"]


def test_the_bundled_model_keeps_both_cranes(lite0):
    assert [index for index, label in enumerate(lite0.labels) if label.split(",")[0] == "crane"] == [134, 517]
