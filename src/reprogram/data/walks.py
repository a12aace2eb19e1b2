"""What a child process does with a file before this one reads it: walk through everything that will be read.

Nothing here imports torch, so that the child starts quickly.
"""

from pathlib import Path


def walk_mat(path: Path) -> None:
    """Read what is read of an SVHN file."""
    from scipy.io import loadmat

    loadmat(path, variable_names=["X", "y"])


def walk_lmdb(path: Path) -> None:
    """Visit every record of an LMDB file, by its neighbours and by its key."""
    import lmdb

    with lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, meminit=False) as opened:
        whole = path / "data.mdb" if path.is_dir() else path
        pages = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
        if pages > whole.stat().st_size:  # the pages that are missing would be read as memory, and end the process
            raise ValueError(f"it is cut short: {whole.stat().st_size:,} bytes of {pages:,}")
        with opened.begin(write=False) as transaction:
            for count, (key, value) in enumerate(transaction.cursor()):
                if count > opened.stat()["entries"]:
                    raise ValueError("its records go round in a circle")
                if transaction.get(key) != value:
                    raise ValueError("a record is not where its key says")


def walk_arrow(path: Path) -> None:
    """Read and validate every table in a folder that `save_to_disk` wrote."""
    import pyarrow

    for file in sorted(path.rglob("*.arrow")):
        with pyarrow.memory_map(str(file)) as source:
            reader = pyarrow.ipc.open_stream(source)
            for batch in reader:
                batch.validate(full=True)
