"""The one policy of decoding: with a cache or without, what becomes of bad images, by how many processes."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import torch

from reprogram.data.cache import Decoded, decode_in_memory, decode_through
from reprogram.data.dataset import DataSet, Split, bad_images
from reprogram.errors import ReprogramError, first_line
from reprogram.files import cache_folder
from reprogram.images.pictures import Interpolation
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Decoding:
    """How images become pixels: whoever needs pixels asks this object, so that all treat the same data alike.

    Attributes:
        cache: keep decoded images in the user's cache folder (`REPROGRAM_CACHE`); or a folder to keep them in.
        skip_bad: leave images out that cannot be decoded, instead of raising an error that names them.
        processes: how many processes decode a large split into the cache; None uses threads. A script that asks for
            processes must start its work under `if __name__ == "__main__"`.
        ranks: the processes that all decode the same, of a run on many: on each machine one fills the cache.

    >>> from reprogram.data.dataset import ArraySplit
    >>> split = ArraySplit(torch.rand(4, 1, 8, 8), [0, 1, 0, 1])
    >>> decoded, skipped = Decoding(cache=False).decode(split, 16)
    >>> decoded.pixels(16).shape, skipped
    (torch.Size([4, 3, 16, 16]), [])
    """

    cache: bool | Path = True
    skip_bad: bool = False
    processes: int | None = None
    ranks: Ranks = ALONE

    @overload
    def decode(
        self,
        data: DataSet,
        sizes: Mapping[str, int],
        interpolation: Interpolation = "bilinear",
        progress: Progress | None = None,
    ) -> tuple[DataSet, list[str]]: ...

    @overload
    def decode(
        self, data: Split, sizes: int, interpolation: Interpolation = "bilinear", progress: Progress | None = None
    ) -> tuple[Split, list[str]]: ...

    def decode(
        self,
        data: DataSet | Split,
        sizes: Mapping[str, int] | int,
        interpolation: Interpolation = "bilinear",
        progress: Progress | None = None,
    ) -> tuple[DataSet | Split, list[str]]:
        """Decode images and keep the pixels, so that `Split.pixels` and `Split.fingerprints` give them without work.

        What is decoded already is left as it is. A cache folder that cannot be written to, or has no room, is done
        without, and `progress` is told so once.

        Args:
            data: a data set, or one split.
            sizes: the side that the images are brought to: for a data set by split (`train`, `val`, `test`; a split that
                is not named is not decoded), for a split one number.
            interpolation: how they are resized.
            progress: where to show progress.

        Returns:
            The data without the bad images, and what was wrong with each of those.

        Raises:
            ReprogramError: there are bad images and `skip_bad` is off, or a split has no other images.
        """
        progress = progress or Progress()
        if isinstance(data, Split):
            assert isinstance(sizes, int)
            parts, skipped = self._decode_parts({"": data}, {"": sizes}, interpolation, progress)
            return parts[""], skipped
        assert not isinstance(sizes, int)
        parts, skipped = self._decode_parts(data.splits, sizes, interpolation, progress)
        return replace(data, **parts), skipped  # type: ignore[arg-type]

    def _decode_parts(
        self, splits: Mapping[str, Split], sizes: Mapping[str, int], interpolation: Interpolation, progress: Progress
    ) -> tuple[dict[str, Split], list[str]]:
        """Decode all splits before anything is said about the bad images, so that one error names all of them."""
        parts = dict(splits)
        failures: list[str] = []
        names: list[str] = []
        folder = cache_folder() if self.cache is True else self.cache or None
        with self.ranks.in_turn() if folder is not None else nullcontext():
            for name, split in splits.items():
                size = sizes.get(name)
                if size is None or split.is_decoded(size, interpolation):
                    continue
                decoded, folder = self._decode_split(split, size, interpolation, folder, progress)
                failures += decoded.failures.values()
                names += [split.names[place] for place in decoded.failures]
                parts[name] = _without_bad(split, size, interpolation, decoded, name)
        if failures and not self.skip_bad:
            raise bad_images(failures, names)
        return parts, failures

    def _decode_split(
        self, split: Split, size: int, interpolation: Interpolation, folder: Path | None, progress: Progress
    ) -> tuple[Decoded, Path | None]:
        """The decoded split, and the cache folder if it is still of use."""
        if folder is not None:
            try:
                return decode_through(folder, split, size, interpolation, self.processes or 0, progress), folder
            except OSError as error:
                progress.say(
                    f"note: the cache folder {str(folder)!r} cannot be used ({error.strerror or first_line(error)}), so "
                    "images are decoded into memory; name another folder with REPROGRAM_CACHE, or use --no-cache"
                )
        return decode_in_memory(split, size, interpolation, progress), None


def _without_bad(split: Split, size: int, interpolation: Interpolation, decoded: Decoded, name: str) -> Split:
    """A split that has its pixels at hand, without those that could not be decoded."""
    split.keep_fingerprints(decoded.fingerprints)
    if not decoded.failures:
        split.keep(size, interpolation, decoded.pixels)
        return split
    good = torch.tensor([place for place in range(len(split)) if place not in decoded.failures])
    if not len(good):
        which = f"of the {name} split " if name else ""
        raise ReprogramError(f"no image {which}can be decoded; the first: {next(iter(decoded.failures.values()))}")
    rest = split.subset(good)
    rest.keep(size, interpolation, decoded.pixels[good])
    rest.keep_fingerprints([decoded.fingerprints[place] for place in good.tolist()])
    return rest
