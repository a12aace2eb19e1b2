"""A fault for the harness to notice: a folder that is replaced file by file."""

import reprogram.mappings.artefact


def write_in_place():
    def write_folder(path, fill, check=None):
        path.mkdir(parents=True, exist_ok=True)
        fill(path)

    assert hasattr(reprogram.mappings.artefact, "write_folder")
    reprogram.mappings.artefact.write_folder = write_folder
