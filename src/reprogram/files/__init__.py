"""The floor under everything on disk: one way to write, one way to read what somebody else may have written.

`writing` puts whole files and folders in their places, `locks` keeps two processes from doing so at once, `seals` adds a
SHA-256 to what is written, and `reading` checks it, and the form, before anybody relies on it. `foreign` opens what is not
ours at all, row by row.
"""

from reprogram.files.locks import locked, remove_abandoned
from reprogram.files.reading import (
    fitting,
    parse_json,
    parse_sealed,
    read_bytes,
    read_json,
    read_sealed,
    read_tensors,
    tensors_with_digest,
)
from reprogram.files.seals import lines_of, sealed_json, sealed_line, sealed_text, sha256
from reprogram.files.writing import (
    cache_folder,
    claimed_folder,
    is_leftover,
    refuse_links,
    remove_leftovers,
    settle_folder,
    write_file,
    write_folder,
    write_sealed,
    write_tensors,
    write_text,
)

__all__ = [
    "cache_folder",
    "claimed_folder",
    "fitting",
    "is_leftover",
    "lines_of",
    "locked",
    "parse_json",
    "parse_sealed",
    "read_bytes",
    "read_json",
    "read_sealed",
    "read_tensors",
    "refuse_links",
    "remove_abandoned",
    "remove_leftovers",
    "sealed_json",
    "sealed_line",
    "sealed_text",
    "settle_folder",
    "sha256",
    "tensors_with_digest",
    "write_file",
    "write_folder",
    "write_sealed",
    "write_tensors",
    "write_text",
]
