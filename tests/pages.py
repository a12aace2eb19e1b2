"""Pages of documentation, tried by a reader who follows them from top to bottom."""

import re
import shlex

import pytest

from reprogram.cli.main import main

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d\.\d+")
CLIP = "openclip:ViT-B-32/openai"  # its weights would have to be downloaded: a tiny CLIP stands in for it
TINY_CLIP = "openclip:my-clip"


class Reader:
    """Tries the blocks of a page in a folder: writes its files, runs its commands and its Python, compares outputs."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.capsys = folder, capsys
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "100")
        # the replica of CIFAR-10 has other bytes than the archive that torchvision knows
        monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_, **__: True)

    def follow(self, page):
        """Try every block; return how many there were of each language."""
        seen, printed = {}, None
        for language, name, content in BLOCK.findall(page.read_text()):
            seen[language] = seen.get(language, 0) + 1
            if language == "console":
                printed = "".join(self.run_command(line[2:]) for line in content.splitlines() if line.startswith("$ "))
                continue
            if language == "python":
                self.run_python(content, page.name)
            elif language == "text" and printed is not None:
                assert content.split() == printed.split()
            elif name:
                (self.folder / name).write_text(content)
            printed = None
        return seen

    def run_command(self, command):
        """Every flag as it is written, but one epoch on a smaller canvas where that would take minutes."""
        words = [TINY_CLIP if word == CLIP else word for word in shlex.split(command)]
        assert words[0] == "reprogram"
        clip, foreign = TINY_CLIP in words, "--model" in words
        if words[1] in ("fit", "reference") and not {"--program", "--epochs"} & set(words):
            words += ["--epochs", "1"]
        sized = words[1] in ("fit", "logits", "reference") and not {"--canvas", "--resume", "--config"} & set(words)
        if sized and not clip | foreign:
            words += ["--canvas", "48"]
        assert main(words[1:]) == 0, f"{command}: {self.capsys.readouterr().err}"
        return self.capsys.readouterr().out

    def run_python(self, code, page):
        """The code as it stands; what it prints is what its comments promise."""
        code = code.replace(CLIP, TINY_CLIP).replace("epochs=20", "epochs=1")
        self.capsys.readouterr()
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
        printed = self.capsys.readouterr().out
        promised = [line.split("  # ", 1)[1] for line in code.splitlines() if line.startswith("print(")]
        assert promised
        if promised[0].startswith("for each"):  # described in words
            assert printed.strip()
            return
        lines = printed.splitlines()
        assert len(lines) == len(promised), printed
        for found, expected in zip(lines, promised, strict=True):
            numbers = [[float(word) for word in NUMBER.findall(text)] for text in (found, expected)]
            assert numbers[0] == pytest.approx(numbers[1], abs=0.05)  # other processors round differently
            assert NUMBER.sub("", found) == NUMBER.sub("", expected), f"printed {found}, promised {expected}"
