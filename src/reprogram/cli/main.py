"""`reprogram <verb>`: finds the command, checks what was given, and only then imports what carries it out."""

import faulthandler
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress

from reprogram.cli.outside import Signals, outlets
from reprogram.errors import EvidenceWarning, ReprogramError, unknown
from reprogram.memory import keep_freed_memory
from reprogram.progress import Outlet
from reprogram.ranks import LostRank, follows, share_command, speaks
from reprogram.text import printable
from reprogram.threads import sleep_while_waiting

#: How torch says, without a type of its own on a CPU, that something does not fit into memory.
_NO_ROOM = ("allocate memory", "out of memory", "Storage size calculation overflowed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command and give its exit code; a user's mistake becomes one sentence on standard error and code 2.

    A signal that ends it gives 128 and its number. So does a pipe that nobody reads any more (141), where standard output
    is what the command is for; where it fills files, they are filled all the same, and the code is 0.
    """
    signals = Signals(own=arguments is None)
    try:
        with signals, outlets() as out:
            return _carried_out(arguments, signals, out)
    except KeyboardInterrupt:  # between the first line and the last one that minds signals
        return 130 if signals.received is None else 128 + signals.received


def _carried_out(arguments: Sequence[str] | None, signals: Signals, out: Outlet) -> int:
    try:
        warnings.showwarning = _show_warning
        sleep_while_waiting()  # before torch is imported, or it has no effect
        if arguments is None:  # a process of its own
            keep_freed_memory()
        with suppress(OSError, RuntimeError, ValueError):  # no stream for it
            faulthandler.enable()  # a cache that another program cuts under us ends the process, but not without a word
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments), signals)
    except SystemExit:  # help was asked for
        out.flush()
        if out.lost is None:
            raise
        code = 0
    except BaseException as error:
        code = _explained(error, signals, out)
    out.flush()
    if out.needed and out.lost is not None and code == 0:
        code = _unread(out.lost)
    return code


def _explained(error: BaseException, signals: Signals, out: Outlet) -> int:
    """Say what ended a command, and give the exit code."""
    if isinstance(error, LostRank):
        return _complain(str(error))
    if signals.received is not None:  # whatever the libraries that it met made of it
        return 128 + signals.received
    if isinstance(error, KeyboardInterrupt):
        return 130
    if error is out.lost:
        return 0
    if isinstance(error, ReprogramError):
        return _complain(str(error))
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # what pathlib says of ~somebody
        return _complain("a path begins with ~ and a user that is not known here; write the whole path")
    if isinstance(error, OSError):  # a folder that cannot be made or read, a full disk
        reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        return _complain(f"{reason}; check the path, its permissions and the space")
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(word in str(error) for word in _NO_ROOM)):
        return _complain("there is not enough memory for this; choose a smaller --canvas or --batch-size, or less data")
    if not signals.own:
        raise error
    if speaks():
        for line in "".join(traceback.format_exception(error)).split("\n")[:-1]:
            print(printable(line), file=sys.stderr)
    return 1


def _unread(error: OSError) -> int:
    """Where standard output is what the command is for: the code of a reader that has seen enough, or of a fault."""
    if isinstance(error, BrokenPipeError):  # such as `head`
        return 141
    return _complain(f"standard output cannot be written to ({error.strerror or error}); check where it leads")


def _complain(sentence: str) -> int:
    if speaks():  # of several processes that meet the same, one
        print(f"reprogram: {printable(sentence)}", file=sys.stderr)
    return 2


def _dispatch(arguments: list[str], signals: Signals) -> int:
    """Carry out a command; where it has more to say than that it is done, its exit code says so."""
    if arguments[:1] == ["--version"]:
        from reprogram import __version__

        print(f"reprogram {__version__}")
        return 0
    from reprogram.cli.arguments import parse, read
    from reprogram.cli.table import COMMANDS
    from reprogram.registry import imported

    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    words = 2 if " ".join(arguments[:2]) in COMMANDS else 1
    verb = " ".join(arguments[:words])
    if verb not in COMMANDS:
        raise unknown("verb", verb, COMMANDS)
    command = COMMANDS[verb]
    share_command(command.shared)
    given = parse(command.schema, arguments[words:], f"reprogram {verb}", command.further())
    checked = given if command.open_ended else read(command.schema, given)
    if command.check is not None:
        checked = imported(command.check)(checked)
    run = imported(command.run)
    signals.begin()
    return run(checked) or 0


def _overview() -> str:
    from textwrap import fill

    from reprogram.cli.table import COMMANDS

    lines = [
        "usage: reprogram VERB [FLAGS]",
        "",
        "Give a frozen image model new labels, without changing a weight of it.",
        "",
    ]
    width = max(map(len, COMMANDS))
    for verb, command in COMMANDS.items():
        text = f"  {verb:<{width}}  {(command.schema.__doc__ or '').strip()}"
        lines.append(fill(text, 80, subsequent_indent=" " * (width + 4)))
    return "\n".join([*lines, "", "reprogram VERB --help explains every flag."])


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, EvidenceWarning) and not follows():
        print(f"reprogram: warning: {printable(str(message))}", file=sys.stderr)
