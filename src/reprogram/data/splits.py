"""Train, val, test: how they are called, how labels are numbered, and how samples are drawn for them."""

import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from reprogram.data.groups import drawn_from_groups, grouped_folds, grouped_split, has_groups
from reprogram.errors import ReprogramError, shown
from reprogram.names import plain_name
from reprogram.randomness import generator

PARTS = ("train", "val", "test")
TEST_FRACTION = 0.2
_LONGEST_NUMBER = 100  # digits: what is longer is a name, and Python refuses to read numbers of more than 4,300
#: Every accepted spelling, in lower case, of the three splits.
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
_LIKE_A_SPLIT = re.compile(
    r"(train(ing)?|test(ing)?|val(id|idation)?|eval(uation)?|dev(elopment)?|hold[ _-]?out)"
    r"([ _.-]?(set|data|images?|split))?\d*"
)


def split_of(word: str) -> str | None:
    """The split that a word means, in any capitals, or None.

    >>> split_of("Training"), split_of(" VALID"), split_of("dev")
    ('train', 'val', None)
    """
    return SPLIT_WORDS.get(word.strip().lower())


def resembles_split(word: str) -> bool:
    """Whether a name was probably meant as a split, although it is no accepted spelling of one.

    >>> [resembles_split(word) for word in ("Evaluation", "train_set", "dev", "trainers", "testament")]
    [True, True, True, False, False]
    """
    return _LIKE_A_SPLIT.fullmatch(word.strip().lower()) is not None


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """The distinct names in order: by value where all are whole numbers, by spelling otherwise.

    >>> sorted_classes(["10", "9", "10"]), sorted_classes(["10", "9", "cat"])
    (('9', '10'), ('10', '9', 'cat'))
    """
    distinct = set(names)
    if all(_is_number(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def stratified_split(
    labels: Tensor, fraction: float, seed: int, purpose: str, groups: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw `fraction` of each class, rounded, but never all of it; return (the rest, the drawn), both ascending.

    Of samples in groups (N,), whole groups are drawn: see `grouped_split`.
    """
    if groups is not None and has_groups(groups):
        return grouped_split(labels, groups, fraction, seed, purpose)
    draw = generator(seed, "split", purpose)
    taken: list[Tensor] = []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        count = min(round(fraction * len(members)), len(members) - 1)
        taken.append(members[torch.randperm(len(members), generator=draw)[:count]])
    chosen = torch.cat(taken).sort().values
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return rest.nonzero().flatten(), chosen


def fewer_places(
    labels: Tensor,
    classes: Sequence[str],
    *,
    shots: int | None,
    fraction: float | None,
    seed: int,
    groups: Tensor | None = None,
) -> Tensor:
    """The places of `shots` samples of each class, or of a `fraction` of each, at least one: see `DataSet.with_fewer`."""
    draw = generator(seed, "split", "fewer")
    grouped = has_groups(groups)
    kept: list[Tensor] = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        count = shots if shots is not None else max(1, round((fraction or 1) * len(members)))
        if count > len(members):
            raise ReprogramError(
                f"class {classes[label]!r} has {len(members)} training images, but {count} shots were asked for; "
                "ask for fewer"
            )
        if groups is not None and grouped:
            kept.append(members[drawn_from_groups(groups[members], shots, fraction, draw)])
        else:  # one permutation per class: a smaller draw is a part of a larger one, so learning curves are nested
            kept.append(members[torch.randperm(len(members), generator=draw)[:count]])
    return torch.cat(kept).sort().values


def stratified_folds(labels: Tensor, folds: int, seed: int, groups: Tensor | None = None) -> Tensor | None:
    """A fold for each sample, (N,), every class spread over all of them; None for less than two folds.

    Samples of a group (N,) are in one fold: see `grouped_folds`.

    >>> stratified_folds(torch.tensor([0, 0, 0, 1, 1, 1]), 3, seed=0).view(2, 3).sort().values.tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    folds = min(folds, len(labels) if groups is None else len(groups.unique()))
    if folds < 2:
        return None
    if groups is not None and has_groups(groups):
        return grouped_folds(labels, groups, folds, seed)
    shuffled = torch.randperm(len(labels), generator=generator(seed, "folds"))
    order = shuffled[labels[shuffled].argsort(stable=True)]
    return torch.empty(len(labels), dtype=torch.int64).index_put_((order,), torch.arange(len(labels)) % folds)


def drawn_test(labels: Tensor, seed: int | None, source: str, groups: Tensor | None = None) -> dict[str, Tensor]:
    """Places of `train` and `test` among samples that have no splits: a stratified fifth is for testing.

    Args:
        labels: (N,) class numbers.
        seed: decides which fifth; None sets nothing aside, and all samples are in both.
        source: what an error calls the data, such as "folder 'photos'".
        groups: (N,) group numbers, where samples have groups.
    """
    if seed is None:
        return {"train": torch.arange(len(labels)), "test": torch.arange(len(labels))}
    train, test = stratified_split(labels, TEST_FRACTION, seed, "test", groups)
    if not len(test) and has_groups(groups):
        raise ReprogramError(
            f"{source} has no class with two groups that could be divided for a test split; check --group, or name the "
            "splits"
        )
    if not len(test):
        raise ReprogramError(f"{source} has too few images to set a test split aside; give 3 or more per class")
    return {"train": train, "test": test}


def places_by_word(words: Sequence[str], source: str) -> dict[str, Tensor]:
    """Places of each split among samples that are marked train, val or test, in any accepted spelling."""
    members: dict[str, list[int]] = {part: [] for part in PARTS}
    for index, word in enumerate(words):
        part = split_of(word)
        if part is None:
            raise ReprogramError(
                f"{source} has the split {shown(word)} in row {index + 1}, but one of {', '.join(SPLIT_WORDS)} is expected"
            )
        members[part].append(index)
    for part in ("train", "test"):
        if not members[part]:
            raise ReprogramError(
                f"{source} has a split for each image but no image for {part}; name some {part}, or leave the splits out "
                "to have them drawn"
            )
    return {part: torch.tensor(places) for part, places in members.items() if places}


def checked_classes(classes: Sequence[str], labels: Mapping[str, Tensor], source: str) -> tuple[str, ...]:
    """Compare the classes that the splits hold; return notes about those that one of them lacks.

    Args:
        classes: the class names, in the order of their numbers.
        labels: class numbers (N,) for each split.
        source: what an error calls the data.

    Raises:
        ReprogramError: a class is not among the training samples, but one that differs from it in capitals, spaces,
            `_` or `-` alone is: the same class, written in two ways.
    """
    present = {part: set(numbers.unique().tolist()) for part, numbers in labels.items()}
    trained = {plain_name(classes[number]): number for number in present["train"] if not _is_number(classes[number])}
    for part, numbers in present.items():
        for number in sorted(numbers - present["train"]):
            other = trained.get(plain_name(classes[number]))
            if other is not None and not _is_number(classes[number]):
                raise ReprogramError(
                    f"{source} has the class {classes[other]!r} in train and {classes[number]!r} in {part}; "
                    "write a class in one way, or give two classes names that differ in more than capitals and spaces"
                )
    known = set().union(*present.values())  # a list of class names may name more than there are
    notes = []
    for part in ("train", "test"):
        absent = [classes[number] for number in sorted(known - present[part])]
        if absent:
            named = ", ".join(repr(name) for name in absent[:5]) + (
                f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            )
            notes.append(f"the {part} split has no image of {'class' if len(absent) == 1 else 'the classes'} {named}")
    return tuple(notes)


def _is_number(name: str) -> bool:
    return len(name) <= _LONGEST_NUMBER and name.removeprefix("-").isdecimal()
