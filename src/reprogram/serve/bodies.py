"""The body of a request: received within limits, and read as images and options, whichever of the forms it has."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from reprogram.errors import ReprogramError, extra_missing, short
from reprogram.files.reading import parse_json
from reprogram.mappings.asked import Asked
from reprogram.serve.limits import Limits, Refusal, Share

_MOST_PARTS = 1000  # of a multipart body
_LONGEST_OPTION = 1000  # bytes
_DROPPED = 4  # times what is accepted: so much of a request that is too long is read and dropped before it is refused
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,")


class Options(Asked):
    """What a client may ask for; as fields of a form, in the query or in JSON."""

    evidence: int = Field(3, ge=0, le=100, description="Source labels to name for each image.")
    top: int = Field(1, ge=1, le=1000, description="Classes to name with their probabilities, the best first.")

    @property
    def asked(self) -> dict[str, Any]:
        """What of it the mapping is asked, where it is not what it would do anyway."""
        return {name: getattr(self, name) for name in Asked.model_fields if name in self.model_fields_set}


@dataclass
class Images:
    """What a request holds: encoded images with what the client calls them, and options as they were written."""

    files: list[tuple[str, bytes]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


def read_options(given: dict[str, Any]) -> Options:
    """Options, or the sentence about the first one that is wrong."""
    try:
        return Options.read(given)
    except ReprogramError as error:
        raise Refusal(422, str(error)) from None


async def receive(
    stream: AsyncIterator[bytes], length: str | None, limits: Limits, share: Share, *, draining: bool = False
) -> bytes:
    """The body, unless it is too long or comes too slowly.

    Args:
        stream: the pieces of it, as they come.
        length: what the client says of it.
        limits: what is accepted.
        share: the room that the bytes take.
        draining: whether the service is being ended, so that slow clients have less time.
    """
    pieces: list[bytes] = []
    most, total = limits.upload, 0
    if length is not None and length.isdecimal() and int(length[:20]) > _DROPPED * most:
        raise _too_long(limits)
    seconds = limits.draining_seconds if draining else limits.seconds
    try:
        async with asyncio.timeout(seconds):
            async for piece in stream:
                total += len(piece)
                if total > _DROPPED * most:
                    raise _too_long(limits)
                if total > most:  # read on a little: a client that is still sending would not see the answer
                    pieces.clear()
                    continue
                share.take(len(piece))
                pieces.append(piece)
    except TimeoutError:
        raise Refusal(400, f"the request was not complete after {seconds:.0f} seconds; send it faster") from None
    if total > most:
        raise _too_long(limits)
    return b"".join(pieces)


def _too_long(limits: Limits) -> Refusal:
    return Refusal(413, f"the request is longer than {limits.upload:,} bytes; send fewer or smaller images")


def read_images(body: bytes, content_type: str, limits: Limits) -> Images:
    """The images and options of a body: a form with files, JSON with base64, or one image as it is."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        found = _of_form(body, content_type)
    elif kind == "application/json":
        found = _of_json(parsed(body))
    elif kind.startswith("image/") or kind == "application/octet-stream":
        found = Images([("1", body)])
    else:
        raise Refusal(
            415,
            f"the content type {short(kind)[:100] or '(none)'} is not read here; send multipart/form-data, application/json "
            "or an image",
        )
    if not found.files:
        raise Refusal(422, "the request holds no image; send at least one")
    if len(found.files) > limits.images:
        raise Refusal(
            413, f"{len(found.files):,} images were sent, but at most {limits.images:,} are taken at once; send fewer"
        )
    return found


def parsed(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        content = parse_json(body, "the request is not readable as JSON", "send an object")
    except ReprogramError as error:
        raise Refusal(400, str(error)) from None
    if not isinstance(content, dict):
        raise Refusal(400, "the request is JSON, but no object; send an object")
    return content


def from_base64(text: Any, name: str) -> bytes:
    """The bytes of a base64 text, also of a data: URL."""
    if not isinstance(text, str):
        raise Refusal(422, f"{name} is no text, but base64 is expected; encode the file")
    found = _DATA_URL.match(text[:300])
    try:
        return base64.b64decode(text[found.end() :] if found else text, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(422, f"{name} is not readable as base64; encode the file") from None


def _of_json(content: dict[str, Any]) -> Images:
    options = {key: value for key, value in content.items() if key not in ("image", "images")}
    given = content.get("images", [content["image"]] if "image" in content else [])
    if not isinstance(given, list):
        raise Refusal(422, "images is no list; send a list of base64 texts, or one of them as image")
    files = [(str(number), from_base64(text, f"image {number}")) for number, text in enumerate(given, start=1)]
    return Images(files, options)


def _of_form(body: bytes, content_type: str) -> Images:
    found = Images()
    for name, filename, content in parts_of(body, content_type):
        if filename is not None:
            found.files.append((short(filename)[:200], content))
        elif len(content) > _LONGEST_OPTION:
            raise Refusal(422, f"the field {short(name)[:100]} is no file and too long for an option; send images as files")
        else:
            found.options[name] = content.decode("utf-8", "replace")
    return found


def parts_of(body: bytes, content_type: str) -> list[tuple[str, str | None, bytes]]:
    """The parts of a form: name, file name (None for a plain field) and content of each."""
    try:
        from python_multipart.multipart import MultipartParser, parse_options_header
    except ModuleNotFoundError:
        raise extra_missing("python-multipart", "serve", "the service") from None
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary or len(boundary) > 200:
        raise Refusal(400, "the form has no boundary in its content type; let your client write the header")
    parts: list[tuple[dict[str, bytes], bytearray]] = []
    state = {"field": b"", "value": b"", "ended": b""}

    def begin() -> None:
        if len(parts) >= _MOST_PARTS:
            raise Refusal(413, f"the form has more than {_MOST_PARTS:,} parts; send fewer")
        parts.append(({}, bytearray()))

    def header_end() -> None:
        parts[-1][0][state["field"].decode("latin-1").lower()] = state["value"]
        state["field"] = state["value"] = b""

    def add(key: str, data: bytes, start: int, end: int) -> None:
        state[key] += data[start:end]

    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": begin,
            "on_part_data": lambda data, start, end: parts[-1][1].extend(data[start:end]),
            "on_header_field": lambda data, start, end: add("field", data, start, end),
            "on_header_value": lambda data, start, end: add("value", data, start, end),
            "on_header_end": header_end,
            "on_end": lambda: state.update(ended=b"yes"),
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except Refusal:
        raise
    except Exception:  # whatever a damaged form leads the parser into
        raise Refusal(400, "the form is damaged; let your client write it") from None
    if not state["ended"]:
        raise Refusal(400, "the form is cut off; send it again")
    read = []
    for headers, content in parts:
        options = parse_options_header(headers.get("content-disposition", b""))[1]
        name, file = options.get(b"name"), options.get(b"filename")
        filename = None if file is None else file.decode("utf-8", "replace")
        read.append(((name or b"").decode("utf-8", "replace"), filename, bytes(content)))
    return read
