"""Short texts that tell which image it is: by its bytes, or by where its file lies and when it was changed."""

import hashlib
from pathlib import Path


def content_hash(*parts: bytes) -> str:
    """A short text that tells these bytes from all others: 128 bits, for recognising, not for security."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def file_key(path: Path) -> str:
    """A text that changes when a file does: also when it is replaced by another of the same size and date."""
    path = path.absolute()
    try:
        status = path.stat()
    except OSError:
        return f"{path} is missing"
    return f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def file_fingerprint(path: Path) -> str:
    """The fingerprint of an image file: of its bytes."""
    try:
        return content_hash(path.read_bytes()) if path.is_file() else ""  # a pipe or a device may never end
    except OSError:
        return ""
