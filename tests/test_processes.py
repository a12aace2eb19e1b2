import os
import subprocess
import sys
from pathlib import Path

from reprogram.processes import WorkerPool

CODE = """
import os
from reprogram.processes import WorkerPool

if __name__ == "__main__":
    with WorkerPool(1) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()
"""


def test_no_module_of_the_current_folder_is_imported_by_workers(tmp_path):
    """Python puts the current folder first for processes that it starts with -c, as multiprocessing does."""
    (tmp_path / "script.py").write_text(CODE)
    place = tmp_path / "received"
    place.mkdir()
    for name in ("socket", "pickle", "signal", "struct"):
        (place / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    done = subprocess.run([sys.executable, tmp_path / "script.py"], cwd=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mark").exists()
    assert Path(place, "socket.py").exists()


def test_what_other_processes_inherit_is_as_it_was(monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with WorkerPool(1) as pool:
        assert pool.submit(os.getenv, "PYTHONSAFEPATH").result() == "1"
        assert "PYTHONSAFEPATH" not in os.environ
