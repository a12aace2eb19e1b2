r"""Ways to damage an input. A mutator gets the content, a random generator and what else is known, and returns bytes.

    def shout(data: bytes, rng: random.Random, known: Known) -> bytes:
        return data.upper()

One that finds nothing to do in the content (a JSON mutator in something else) returns it unchanged, and another is taken.
"""

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MOST_STEPS = 4
_ATTEMPTS = 16  # of finding a mutator that has something to do
_LARGEST = 1 << 20  # bytes: larger inputs cost time and find nothing else
_INTERESTING = (
    0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 255, 256, 511, 512, 1000, 1023, 1024, 4095, 4096, 32767, 32768,
    65535, 65536, 1 << 20, (1 << 24) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 53) + 1,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
_FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e38, -1e38, 5e-324, 1e-45, 3e38, -1.0, 65504.0, 2.0**53)


@dataclass(frozen=True)
class Known:
    """What mutators may use beside the content.

    Attributes:
        seeds: the good inputs of the target.
        dictionary: words of its format.
    """

    seeds: Sequence[bytes] = ()
    dictionary: Sequence[bytes] = ()


Mutator = Callable[[bytes, random.Random, Known], bytes]


def mutate(data: bytes, rng: random.Random, known: Known, mutators: Sequence[Mutator]) -> bytes:
    """Damage an input in one to four steps, mostly one."""
    steps = 1
    while steps < _MOST_STEPS and rng.random() < 0.35:
        steps += 1
    changed = data
    for _ in range(steps):
        for _ in range(_ATTEMPTS):
            further = rng.choice(mutators)(changed, rng, known)
            if further != changed:
                break
        changed = further[: max(_LARGEST, 2 * len(data))]
    return changed


def flip_bit(data: bytes, rng: random.Random, known: Known) -> bytes:
    """One bit to nine, anywhere."""
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(1 + rng.randrange(3) ** 3):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flip_early(data: bytes, rng: random.Random, known: Known) -> bytes:
    """One bit of the first 256 bytes, where headers are."""
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(min(256, len(data)))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_byte(data: bytes, rng: random.Random, known: Known) -> bytes:
    """One byte to anything, or to an edge."""
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2C, rng.randrange(256)))
    return bytes(changed)


def set_number(data: bytes, rng: random.Random, known: Known) -> bytes:
    """An integer of 8 to 64 bits, or a float, at any place, in either order of bytes."""
    order, form = rng.choice("<>"), rng.choice("BHIQBHIQfd")
    if form in "fd":
        raw = struct.pack(order + form, rng.choice(_FLOATS))
    else:
        size = struct.calcsize(form)
        raw = struct.pack(order + form, rng.choice(_INTERESTING) * rng.choice((1, 1, -1)) % (1 << 8 * size))
    place = rng.randrange(max(1, len(data) - len(raw) + 1))
    if rng.random() < 0.3:
        place = min(place, rng.randrange(64))
    return data[:place] + raw + data[place + len(raw) :]


def _part(data: bytes, rng: random.Random) -> tuple[int, int]:
    length = rng.choice((1, 2, 4, 8, 16, 64, 256, max(1, len(data) // 4)))
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.randint(1, length))


def delete_part(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Cut a part out."""
    if not data:
        return data
    start, end = _part(data, rng)
    return data[:start] + data[end:]


def repeat_part(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Say a part twice, or hundreds of times."""
    if not data:
        return data
    start, end = _part(data, rng)
    times = rng.choice((1, 1, 1, 2, 16, 300))
    return data[:end] + data[start:end] * min(times, 1 + 65536 // (end - start)) + data[end:]


def insert_noise(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Put bytes in between: random ones, or one of them many times."""
    place, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 32, 200))
    noise = rng.randbytes(length) if rng.random() < 0.5 else bytes([rng.randrange(256)]) * length
    return data[:place] + noise + data[place:]


def swap_parts(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Exchange two neighbouring parts."""
    if len(data) < 2:
        return data
    first, middle, last = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return data[:first] + data[middle:last] + data[first:middle] + data[last:]


def truncate(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Cut the end off: anywhere, or just a little."""
    if not data:
        return data
    return data[: rng.randrange(len(data))] if rng.random() < 0.6 else data[: -rng.randint(1, min(16, len(data)))]


def splice(data: bytes, rng: random.Random, known: Known) -> bytes:
    """The beginning of this and the end of another good input."""
    if not known.seeds:
        return data
    other = rng.choice(known.seeds)
    if rng.random() < 0.5:
        place = rng.randrange(min(len(data), len(other)) + 1)
        return data[:place] + other[place:]
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def put_word(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Put a word of the format anywhere, over what is there or between it."""
    if not known.dictionary:
        return data
    word, place = rng.choice(known.dictionary), rng.randrange(len(data) + 1)
    return data[:place] + word + data[place + (len(word) if rng.random() < 0.5 else 0) :]


_ODD_DIGITS = (b"-1", b"0", b"1e400", b"nan", b"-inf", b"0x10", b"1_0", "٣".encode(), b".", b"1e-400", b"-0", b" 1 ", b"1.5")


def change_digits(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Write another number over one that stands there in digits."""
    places = [place for place, byte in enumerate(data[:65536]) if 48 <= byte <= 57]
    if not places:
        return data
    start = end = rng.choice(places)
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    long = b"9" * rng.choice((1, 9, 19, 30, 5000))
    number = rng.choice((long, str(rng.choice(_INTERESTING)).encode(), *_ODD_DIGITS))
    return data[:start] + number + data[end:]


def empty(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Nothing at all, or nothing but zeros."""
    return b"" if rng.random() < 0.3 else bytes(rng.choice((1, 8, 64, len(data))))


_ODD_TEXTS = (
    "\ud800", "\udcff", "\x00", "\x1b[2J", "\x1b]0;x\x07", "\u202e", "\ufeff", "\u2028", "\x85", "ß", "İ", "e\u0301",
    "😀", "=1+1", '"', "'", ",", "\t", "\r", "\n", "\r\n", "[red]", ":cat:", "{}", "%s", "../../", "~", "~nobody", "/",
    "\\", "--", "-", "nan", "inf", "null", "true", "1e999", "a" * 5000,
)  # fmt: skip
_NOT_UTF8 = (b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80")
_ODD_TEXT = (*(text.encode("utf-8", "surrogatepass") for text in _ODD_TEXTS), *_NOT_UTF8)


def odd_text(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Put a text in that terminals, spreadsheets, paths or decoders take for something else."""
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(_ODD_TEXT) + data[place:]


def swap_lines(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Delete, double, or exchange lines."""
    lines = data.split(b"\n")
    if len(lines) < 2:
        return data
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    choice = rng.randrange(3)
    if choice == 0:
        del lines[first]
    elif choice == 1:
        lines.insert(second, lines[first])
    else:
        lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


BYTES: tuple[Mutator, ...] = (
    flip_bit, flip_bit, flip_early, set_byte, set_number, set_number, delete_part, repeat_part, insert_noise, swap_parts,
    truncate, splice, put_word, put_word,
)  # fmt: skip
TEXT: tuple[Mutator, ...] = (*BYTES, odd_text, odd_text, swap_lines, swap_lines, change_digits, change_digits, empty)
