"""One short try: whether a model can be fetched at all is known within seconds, not after a package's many attempts."""

import importlib
import ssl
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import Any

TIMEOUT = 5.0  # seconds


def reachable(url: str) -> bool:
    """Ask a server for a sign of life, once, through the proxies of the environment; any answer is one."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT):
            return True
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        return isinstance(error.reason, ssl.SSLError)  # it answered; who signs certificates is the package's business
    except OSError:
        return False


def check_reachable(url: str) -> None:
    """Raise a `ConnectionError` where the server of an address does not answer."""
    if not reachable(url):
        raise ConnectionError(f"{urllib.parse.urlsplit(url).netloc} does not answer")


class HubAccess:
    """While it is entered, packages ask the Hub only where something is to be fetched and the Hub answers.

    Otherwise they look on disk alone. It can be entered more than once, and has asked for a sign of life by then, once.

    Args:
        fetching: whether the user asked for something that may have to be fetched.

    Raises:
        ConnectionError: at the exit, in the place of the package's own error: the Hub does not answer, and what is needed is
            not on disk.
    """

    def __init__(self, fetching: bool) -> None:
        self._silence: ConnectionError | None = None
        self._constants: Any = None
        with suppress(ModuleNotFoundError):  # then there is no package here that could ask
            self._constants = importlib.import_module("huggingface_hub.constants")
        self._closed = not fetching
        if fetching and self._constants is not None and not self._constants.HF_HUB_OFFLINE:
            try:
                check_reachable(self._constants.ENDPOINT)
            except ConnectionError as error:
                self._silence, self._closed = error, True

    def __enter__(self) -> None:
        if self._constants is not None:
            self._before = self._constants.HF_HUB_OFFLINE
            self._constants.HF_HUB_OFFLINE = self._before or self._closed

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._constants is not None:
            self._constants.HF_HUB_OFFLINE = self._before
        if self._silence is not None and _for_want_of_the_hub(error):
            raise self._silence from error


def _for_want_of_the_hub(error: BaseException | None) -> bool:
    missing = ("OfflineModeIsEnabled", "LocalEntryNotFoundError")
    while error is not None:
        if type(error).__name__ in missing:
            return True
        error = error.__cause__ or error.__context__
    return False
