"""`reprogram verify`: whether what was written is still as it was."""

from reprogram.cli.commands import VerifyCommand
from reprogram.errors import ReprogramError
from reprogram.progress import for_stream
from reprogram.run.verify import verify as verify_path


def verify(command: VerifyCommand) -> None:
    """Check everything at a path, and tell of each file."""
    say = for_stream().say
    found = verify_path(command.path)
    for checked in found:
        say(f"{'ok ' if checked.problem is None else 'BAD'}  {checked.what:<16}  {checked.path}")
    problems = [checked.problem for checked in found if checked.problem is not None]
    if len(problems) == 1:
        raise ReprogramError(problems[0])
    if problems:
        raise ReprogramError(f"{problems[0]} ({len(problems)} of {len(found)} cannot be used; see above)")
    say(f"all {len(found)} are as they were written" if len(found) > 1 else "it is as it was written")
