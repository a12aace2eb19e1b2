"""`reprogram <verb>`: finds the command, checks what was given, and only then imports what carries it out."""

import os
import sys
import warnings
from collections.abc import Sequence

from reprogram.errors import EvidenceWarning, ReprogramError, unknown
from reprogram.threads import sleep_while_waiting


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; a user's mistake becomes one sentence on standard error and exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _show_warning
    sleep_while_waiting()  # before torch is imported, or it has no effect
    try:
        _dispatch(arguments)
    except ReprogramError as error:
        print(f"reprogram: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        if "home directory" not in str(error):  # what pathlib says of ~somebody
            raise
        print("reprogram: a path begins with ~ and a user that is not known here; write the whole path", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a folder that cannot be made or read, a full disk
        reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        print(f"reprogram: {reason}; check the path, its permissions and the space", file=sys.stderr)
        return 2
    return 0


def _dispatch(arguments: list[str]) -> None:
    if arguments[:1] == ["--version"]:
        from reprogram import __version__

        print(f"reprogram {__version__}")
        return
    from reprogram.cli.arguments import parse, read
    from reprogram.cli.commands import COMMANDS
    from reprogram.registry import imported

    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return
    words = 2 if " ".join(arguments[:2]) in COMMANDS else 1
    verb = " ".join(arguments[:words])
    if verb not in COMMANDS:
        raise unknown("verb", verb, COMMANDS)
    command = COMMANDS[verb]
    given = parse(command.schema, arguments[words:], f"reprogram {verb}", command.further())
    checked = given if command.open_ended else read(command.schema, given)
    if command.check is not None:
        checked = imported(command.check)(checked)
    imported(command.run)(checked)


def _overview() -> str:
    from reprogram.cli.commands import COMMANDS

    lines = [
        "usage: reprogram VERB [FLAGS]",
        "",
        "Give a frozen image model new labels, without changing a weight of it.",
        "",
    ]
    width = max(map(len, COMMANDS))
    lines += [f"  {verb:<{width}}  {(command.schema.__doc__ or '').strip()}" for verb, command in COMMANDS.items()]
    return "\n".join([*lines, "", "reprogram VERB --help explains every flag."])


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, EvidenceWarning):
        print(f"reprogram: warning: {message}", file=sys.stderr)
