"""The command line: in a process of its own, as a person starts it, or in this one, which saves the imports."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

SMALL = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64", "--batch-size", "16", "--lr", "0.05")
PADDING = ("--program", "padding")


def reprogram(*arguments, cwd=None, check=True, **options):
    command = [sys.executable, "-m", "reprogram", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, **options)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def here(*arguments, cwd=None, check=True):
    """The same in this process: the real entry point, its output and its exit code."""
    from reprogram.cli.main import main

    output, errors, before = io.StringIO(), io.StringIO(), Path.cwd()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a process of its own: shown, no errors
        try:
            os.chdir(cwd or before)
            code = main([str(argument) for argument in arguments])
        finally:
            os.chdir(before)
    done = subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())
    if check:
        assert done.returncode == 0, done.stderr
    return done
