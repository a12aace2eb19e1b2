"""A model that compares images with texts (CLIP), and a set of texts, as a frozen source whose labels are the texts."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from typing_extensions import override

from reprogram.errors import ReprogramError
from reprogram.files import cache_folder, read_tensors, write_tensors
from reprogram.images.pictures import ChannelValues, Interpolation
from reprogram.names import plain_name
from reprogram.progress import Progress
from reprogram.sources.frozen import Frozen, module_fingerprint
from reprogram.sources.registry import VISION_LANGUAGE
from reprogram.sources.texts import DEFAULT_TEMPLATE, Texts

_BATCH = 256


class VisionLanguage(Frozen):
    """An image tower and the embeddings of k_S texts: logit = exp(logit_scale) · cosine(image, text), in float32.

    The text tower is not part of it: the embeddings are all that is needed of it, and they never change.

    Args:
        image_tower: any `nn.Module` that maps (N, 3, S, S) to image embeddings (N, d).
        text: (k_S, d) text embeddings, scaled to length 1 here.
        texts: the texts themselves; they become the source labels.
        logit_scale: the logarithm of what the cosines are multiplied by.
        mean: see `Frozen`.
        std: see `Frozen`.
        input_size: see `Frozen`.
        interpolation: see `Frozen`; CLIP's own is `bicubic-crop`.
        text_key: what identifies the embeddings. Where they come from a text tower, this is the fingerprint of that tower
            and its input, so that another processor's rounding does not make it another model; by default, their bytes.
        label_source: see `Frozen`.
        spec: see `Frozen`.

    >>> tower = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> texts = Texts(["red", "blue"], ["a {} wall", "a {} car"])
    >>> clip = VisionLanguage(tower, torch.tensor([[1.0, 0, 0], [0, 0, 1]] * 2), texts, logit_scale=0.0, input_size=8)
    >>> clip.labels[2], clip(torch.tensor([3.0, 0, 4]).view(1, 3, 1, 1).expand(1, 3, 8, 8)).tolist()
    ('a red car', [[0.6000000238418579, 0.800000011920929, 0.6000000238418579, 0.800000011920929]])
    """

    module: "_Cosines"
    kind = VISION_LANGUAGE
    short_features = True

    def __init__(
        self,
        image_tower: nn.Module,
        text: Tensor,
        texts: Texts,
        *,
        logit_scale: float | Tensor,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        input_size: int = 224,
        interpolation: Interpolation = "bicubic-crop",
        text_key: str | None = None,
        label_source: str | None = None,
        spec: dict[str, Any] | None = None,
    ) -> None:
        text = F.normalize(text.detach().float(), dim=1)
        super().__init__(
            _Cosines(image_tower, text, torch.as_tensor(logit_scale).detach().float().reshape(()).exp()),
            mean=mean,
            std=std,
            input_size=input_size,
            labels=texts,
            interpolation=interpolation,
            label_source=label_source or f"texts: {len(texts.templates)} templates x {len(texts.classes)} classes",
            spec=spec,
        )
        self.labels = Texts(texts.classes, texts.templates, text)
        self._text_key = text_key or hashlib.sha256(text.cpu().contiguous().numpy().data).hexdigest()
        self._span: Tensor | None = None

    @override
    def features(self, x: Tensor) -> Tensor:
        """Map what a program returns, (N, 3, S, S) and already normalised, to image embeddings (N, d) of length 1."""
        weight = next(self.module.parameters(), x)
        return self.module.features(x.to(weight.dtype))

    @property
    @override
    def trunk(self) -> nn.Module:
        return self.module.image_tower

    @override
    def head(self, output: Tensor) -> Tensor:
        return self.from_features(self.features_of(output))

    @override
    def features_of(self, output: Tensor) -> Tensor:
        return self.module.normalised(output)

    @override
    def from_features(self, features: Tensor) -> Tensor:
        return self.module.cosines(features)

    @property
    def text(self) -> Tensor:
        """The text embeddings (k_S, d), of length 1 each."""
        return self.module.text

    @property
    def scale(self) -> float:
        """What the cosines are multiplied by, exp(logit_scale)."""
        return float(self.module.scale)

    @property
    @override
    def program_interpolation(self) -> Interpolation:
        """As it was trained: a program changes a frame, the rest of the picture is to look familiar."""
        return self.interpolation

    @property
    @override
    def span(self) -> Tensor:
        """An orthonormal basis (k_S, r) of all logit vectors that this model can give; r ≤ d, the rank of `text`.

        Whatever is a function of the logits is a function of their r coordinates, logits @ span.
        """
        if self._span is None:
            basis, sizes, _ = torch.linalg.svd(self.text.double().cpu(), full_matrices=False)
            # the embeddings are float32: what is below their rounding is not a direction that they span
            rank = int((sizes > 16 * torch.finfo(torch.float32).eps * sizes[0]).sum())
            basis = basis[:, :rank]
            # a basis has no sign of its own: the largest number of each column is positive, wherever it is computed
            signs = basis.gather(0, basis.abs().argmax(0, keepdim=True)).sign()
            self._span = (basis * signs).float()
        self._span = self._span.to(self.text.device)
        return self._span

    def folded(self, weights: Tensor) -> Tensor:
        """The (d, k_T) matrix F that takes features straight to target logits: features @ F = logits @ ω.

        For whoever needs target logits alone. Training needs the source logits as well, for the statistics, and what comes
        behind the image tower is below 1 % of its step (benchmarks/clip_scale.py).
        """
        return self.module.scale * (self.text.float().T @ weights.float())

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the image tower, the scale, and what identifies the text embeddings."""
        tower, scale = module_fingerprint(self.module.image_tower), self.module.scale.cpu().numpy().tobytes().hex()
        return hashlib.sha256(f"{tower} {scale} {self._text_key}".encode()).hexdigest()


class _Cosines(nn.Module):
    """Image tower, text embeddings and scale as one module: normalised pixels in, scaled cosines out."""

    text: Tensor
    scale: Tensor

    def __init__(self, image_tower: nn.Module, text: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.image_tower = image_tower
        self.register_buffer("text", text)
        self.register_buffer("scale", scale)

    def features(self, x: Tensor) -> Tensor:
        return self.normalised(self.image_tower(x))

    def normalised(self, found: Any) -> Tensor:
        found = found[0] if isinstance(found, tuple) else found  # CoCa's tower also returns its tokens
        if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] != self.text.shape[1]:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ReprogramError(
                f"the image tower answers with {shape}, but (N, {self.text.shape[1]}) is expected, as wide as the texts; "
                "take both from the same model"
            )
        with torch.autocast(found.device.type, enabled=False):
            return F.normalize(found.float(), dim=1)

    def cosines(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            return (self.scale.float() * features) @ self.text.float().T

    def forward(self, x: Tensor) -> Tensor:
        return self.cosines(self.features(x))


class TextEncoder:
    """The text tower of a CLIP model: texts in, embeddings of length 1 out, each computed once and then kept on disk.

    Args:
        clip: an object of open_clip's classes; of its modules only those of the text tower are used.
        tokenize: maps a list of N texts to token numbers (N, context length).
    """

    def __init__(self, clip: nn.Module, tokenize: Callable[[list[str]], Tensor]) -> None:
        self.tower, self.tokenize = _TextTower(clip).eval().requires_grad_(False), tokenize
        self._fingerprint: str | None = None

    def tokens(self, texts: Sequence[str]) -> Tensor:
        """The token numbers (N, context length) that the tower reads."""
        return self.tokenize(list(texts))

    def key(self, tokens: Tensor) -> str:
        """SHA-256 over the text tower and what it reads, so over all that decides the embeddings."""
        if self._fingerprint is None:
            self._fingerprint = module_fingerprint(self.tower)
        digest = hashlib.sha256(f"{self._fingerprint} {tokens.dtype} {tuple(tokens.shape)}\n".encode())
        digest.update(tokens.contiguous().numpy().data)
        return digest.hexdigest()

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tensor:
        """Embed N texts as (N, d) float32, from the cache folder if they are there."""
        return self.embed(self.tokens(texts), progress)

    def embed(self, tokens: Tensor, progress: Progress | None = None) -> Tensor:
        """The same for texts that are tokens already."""
        key = self.key(tokens)
        path = cache_folder() / "texts" / f"{key[:40]}.safetensors"
        with suppress(ReprogramError):  # not there, or damaged: computed again
            tensors, header = read_tensors(path, "text embeddings")
            if header == key and len(tensors["text"]) == len(tokens):
                return tensors["text"]
        text = self._compute(tokens, progress or Progress())
        with suppress(OSError):  # a cache that cannot be written costs time in the next run, nothing else
            write_tensors(path, {"text": text}, key)
        return text

    @torch.no_grad()
    def _compute(self, tokens: Tensor, progress: Progress) -> Tensor:
        lengths = self.tower.lengths(tokens)
        order = lengths.argsort(stable=True)  # texts of like length together, so that short ones are not padded to long ones
        embeddings: list[Tensor] = []
        for places in progress.track(order.split(_BATCH), "embedding the texts"):
            embeddings.append(self.tower.trimmed(tokens[places], int(lengths[places].max())).float().cpu())
        return F.normalize(torch.cat(embeddings)[order.argsort()], dim=1)


class _TextTower(nn.Module):
    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, tokens: Tensor) -> Tensor:
        return self.clip.encode_text(tokens)  # type: ignore[operator, no-any-return]

    def lengths(self, tokens: Tensor) -> Tensor:
        """How many tokens of each text decide its embedding: all, or those up to the end mark, the highest number."""
        if self._causal() is None:
            return torch.full((len(tokens),), tokens.shape[1])
        return tokens.argmax(1) + 1

    def trimmed(self, tokens: Tensor, length: int) -> Tensor:
        """Encode without what comes behind `length`: an eighth of the work for texts of ten tokens in a context of 77."""
        causal = self._causal()
        if causal is None or length == tokens.shape[1]:
            return self(tokens)  # type: ignore[no-any-return]
        prefix, places, mask = causal
        shortened = {f"{prefix}.positional_embedding": places[:length], f"{prefix}.attn_mask": mask[:length, :length]}
        return functional_call(self, shortened, (tokens[:, :length],))  # type: ignore[no-any-return]

    def _causal(self) -> tuple[str, Tensor, Tensor] | None:
        """Name prefix, positions and mask of a tower in which no token sees a later one and the end mark is read out."""
        for prefix, part in (("clip", self.clip), ("clip.text", getattr(self.clip, "text", None))):
            places, mask = getattr(part, "positional_embedding", None), getattr(part, "attn_mask", None)
            pooling = getattr(part, "text_pool_type", getattr(part, "pool_type", None))
            if places is not None and mask is not None and pooling == "argmax" and getattr(part, "cls_emb", None) is None:
                return prefix, places, mask
        return None


def label_similarity(encoder: TextEncoder, source_labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Cosines (k_S, k_T) between the meanings of source labels and class names, for the labels of any frozen model.

    Names stand in the default template; of a comma-separated source label the first synonym counts. Texts stay as they are.
    """
    ready = isinstance(source_labels, Texts)
    sources = [label if ready else _in_template(label.split(",")[0]) for label in source_labels]
    return encoder(sources) @ encoder([_in_template(name) for name in classes]).T


def _in_template(name: str) -> str:
    return DEFAULT_TEMPLATE.replace("{}", plain_name(name))
