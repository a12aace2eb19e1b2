"""`reprogram predict` at scale: killed twice and resumed, against the model alone, and with a million paths.

    python benchmarks/predict_scale.py FOLDER --images 20000 --canvas 64 --out benchmarks/predict_scale.json

FOLDER holds class folders of images. A run without a program is fitted to them, and copies of them (links, in a folder of
their own) are classified: undisturbed, and by a command that is killed twice and continued. The rate with decoding is
compared with that of the model on pixels that are there already, by turns. Then a million paths that lead nowhere go
through the paths and the table, without a model, a folder of as many real files (hard links) is gone through, and the
memory is measured.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def command(*words):
    return [sys.executable, "-m", "reprogram", *map(str, words)]


def killed_and_resumed(run, copies, folder, whole, first_rows):
    """The same file from a command that was killed twice; tells how many rows were kept each time."""
    out, journal, kept = folder / "killed.csv", folder / ".killed.csv.journal", []
    for share in (0.3, 0.7):
        words = ["predict", run, copies, "--out", out, *(["--resume"] if kept else [])]
        process = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if journal.exists() and json.loads(journal.read_text())["rows"] >= share * first_rows:
                break
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kept.append(json.loads(journal.read_text())["rows"])
    subprocess.run(command("predict", run, copies, "--out", out, "--resume"), check=True, stdout=subprocess.DEVNULL)
    return kept, out.read_bytes() == whole.read_bytes()


def rates(run, copies, rounds, images):
    """Images per second of the model alone, and of all, by turns; and for which part of the time the model had nothing.

    In a round the model alone has one half of the images before and the other half after, so that a load that grows or
    shrinks meanwhile meets both alike.
    """
    import itertools
    from concurrent.futures import Future

    import torch

    from reprogram import Reprogrammed
    from reprogram.predict.decode import Decoder
    from reprogram.predict.paths import meant_images
    from reprogram.predict.rows import Wanted
    from reprogram.predict.stream import predicted
    from reprogram.threads import granted_cpus

    model, wanted = Reprogrammed.load(run), Wanted()
    model.accelerate()
    paths = list(itertools.islice(meant_images([copies]), images))
    with Decoder(0, model.program.image_size, model.program.interpolation) as decoder:
        pixels = torch.from_numpy(decoder.submit([image.path for image in paths]).result().pixels)

    def alone(part):
        began = time.perf_counter()
        with torch.no_grad():
            for batch in part.split(wanted.batch_size):
                model.mapping.predict(model.source_logits(batch).float(), evidence=wanted.evidence)
        return time.perf_counter() - began

    waited = 0.0
    result = Future.result

    def timed(future, timeout=None):
        nonlocal waited
        began = time.perf_counter()
        try:
            return result(future, timeout)
        finally:
            waited += time.perf_counter() - began

    alone(pixels[:512])  # whatever is done once
    found = {"threads": torch.get_num_threads(), "images": len(paths), "load": []}
    found |= {"model alone": [], "predict": [], "share of waiting": []}
    half = len(pixels) // 2
    for _ in range(rounds):
        found["load"].append(os.getloadavg()[0])
        seconds = alone(pixels[:half])
        stream = predicted(model, paths, wanted, granted_cpus())
        next(stream)  # processes have started
        Future.result, waited = timed, 0.0
        began, rows = time.perf_counter(), 0
        for part in stream:
            rows += len(part)
        took = time.perf_counter() - began
        Future.result = result
        found["predict"].append(rows / took)
        found["share of waiting"].append(waited / took)
        seconds += alone(pixels[half:])
        found["model alone"].append(len(pixels) / seconds)
    return found


def peak():
    """KiB that this process has held at most; what getrusage tells begins with those of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def million(folder, count):
    """Paths from a list through the table, with rows that no model has made; tells the memory that it takes."""
    import io

    from reprogram.predict.output import output
    from reprogram.predict.paths import meant_images
    from reprogram.predict.rows import Wanted
    from reprogram.predict.stream import _batches

    class Names(io.RawIOBase):
        """A list that is written while it is read."""

        def __init__(self):
            self.next = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            lines = b"".join(b"photos/%09d.jpg\n" % place for place in range(self.next, min(count, self.next + 1000)))
            self.next += 1000
            buffer[: len(lines)] = lines
            return len(lines)

    wanted = Wanted(evidence=0)
    before = peak()
    began, memory = time.perf_counter(), []
    with output(folder / "million.csv", "csv", wanted.columns(), {}) as table:
        for batch in _batches(meant_images(["-"], listed=io.BufferedReader(Names(), 2**16)), 64):
            table.add([{"image": i.path, "label": "x", "probability": 0.5, "error": None} for i in batch])
            if table.rows % (count // 10) < 64:
                memory.append(peak())
    mib = {"MiB before": before / 1024, "MiB at a tenth": memory[0] / 1024, "MiB": memory[-1] / 1024}
    return {"rows": table.rows, "seconds": time.perf_counter() - began, **mib}


def many_files(folder, sources, count):
    """One folder of very many image files (hard links to some) through the paths; the first and the last are looked at."""
    from reprogram.images.decoding import read_pixels
    from reprogram.predict.paths import meant_images

    place, held = folder / "files", folder / "held"
    place.mkdir()
    held.mkdir()
    for number, source in enumerate(sources):  # on the same file system, and with room for as many links as it allows
        (held / f"{number}.jpg").write_bytes(source.read_bytes())
    for number in range(count):
        os.link(held / f"{number % len(sources)}.jpg", place / f"{number:09}.jpg")
    before, began = peak(), time.perf_counter()
    found, memory, first, last, ordered = 0, [], None, "", True
    for image in meant_images([str(place)]):
        first, ordered, last = first or image.path, ordered and image.path > last, image.path
        found += 1
        if found % (count // 10) == 0:
            memory.append(peak())
    seconds = time.perf_counter() - began
    assert ordered
    assert all(read_pixels(path, 8).shape == (3, 8, 8) for path in (first, last))
    mib = {"MiB before": before / 1024, "MiB at a tenth": memory[0] / 1024, "MiB": memory[-1] / 1024}
    return {"files": found, "seconds": seconds, **mib}


def main():
    parser = argparse.ArgumentParser(prog="predict_scale.py", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="class folders of images")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--canvas", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--part", choices=["all", "kills", "rates", "million", "files"], default="all")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/predict_scale.json"))
    given = parser.parse_args()
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.part == "million":  # in a process of its own, which has nothing else in memory
            results["million"] = million(folder, given.paths)
        elif given.part == "files":
            results["files"] = many_files(folder, sorted(given.folder.rglob("*.jpg"))[:400], given.paths)
        else:
            run, copies, whole = folder / "run", folder / "copies", folder / "whole.csv"
            words = ["--program", "none", "--mapping", "gaussian", "--canvas", given.canvas, "--out", run]
            subprocess.run(command("fit", given.folder, *words), check=True, stdout=subprocess.DEVNULL)
            sources = sorted(path.resolve() for path in given.folder.rglob("*.jpg"))
            for number in range(given.images):
                place = copies / f"{number // 1000:03}"
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{number:06}.jpg").write_bytes(sources[number % len(sources)].read_bytes())
            if given.part in ("all", "rates"):
                results["rates"] = {"canvas": given.canvas, **rates(run, copies, given.rounds, given.images)}
            if given.part in ("all", "kills"):
                began = time.perf_counter()
                subprocess.run(command("predict", run, copies, "--out", whole), check=True, stdout=subprocess.DEVNULL)
                seconds = time.perf_counter() - began
                largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
                kept, same = killed_and_resumed(run, copies, folder, whole, given.images)
                results["kills"] = {"images": given.images, "canvas": given.canvas, "seconds": seconds, "kept": kept,
                                    "same bytes": same, "MiB": largest}  # fmt: skip
    given.out.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    if given.part == "all":
        for part in ("million", "files"):
            words = [str(given.folder), "--part", part, "--paths", str(given.paths), "--out", str(given.out)]
            subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
