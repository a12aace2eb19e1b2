"""The processes that carry out one run together, as `torchrun` starts them: whose part is whose, and what they exchange.

`Ranks` is a process alone, for whom every sum is its own: code that is written for many needs no other branch for one. The
first process, rank 0, leads: it alone reads and writes the run folder and speaks, and tells the others what it has read.
Nothing is pickled: tensors go as they are, other values as JSON. torch is imported when processes are joined, no earlier.
"""

import contextlib
import gc
import json
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from reprogram.errors import NonFiniteError, ReprogramError, first_line, shown

if TYPE_CHECKING:  # main() asks here who speaks, before torch is imported
    from torch import Tensor
    from torch.distributed.distributed_c10d import Store

#: How long, in seconds, one process waits for another.
TIMEOUT = "REPROGRAM_TIMEOUT"
_GLOO_ENDS = 0.3  # seconds
_PATIENCE = 600.0
_GRACE = 3.0  # seconds that a process has to say that it ends, when another one has
_LONG_GRACE = 10.0  # the same where all were interrupted: a busy machine may be slow to tell them; torchrun waits for 30
_PAUSE = 0.05
_WITHOUT_A_WORD = "ended without a word (killed, or no memory was left)"
_BLOCK = 1 << 22  # numbers that are summed at once

Told = tuple[Any, "dict[str, Tensor]"]


class LostRank(ReprogramError):  # noqa: N818 - it is what happened, not a kind of mistake
    """Another process of the run has ended, or answers no longer."""


class Summable(Protocol):
    """What adds itself up over processes, such as statistics."""

    def all_reduce(self) -> object:
        """Become the sum of those of all processes."""


@dataclass(frozen=True)
class Share:
    """The part of a batch that is a process's own.

    Attributes:
        rows: its images in the batch. Of a batch with fewer images than processes, some have none; these take the first one
            along, which does not count, so that all do the same.
        count: how many of them count.
        weight: their share of the batch.
    """

    rows: slice
    count: int
    weight: float


class Ranks:
    """One process alone, and the interface of many.

    Attributes:
        rank: which one this is.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that reads, writes and speaks."""
        return self.rank == 0

    def share(self, total: int) -> Share:
        """This process's part of a batch of so many images: one after the other, none twice, none left out.

        >>> Ranks().share(5)
        Share(rows=slice(0, 5, None), count=5, weight=1.0)
        """
        own = _part(total, self.rank, self.size)
        count = own.stop - own.start
        return Share(own if count else slice(0, 1), count, count / max(total, 1))

    def rows(self, total: int, batch_size: int) -> slice:
        """This process's rows where all rows go through the model once, in whole batches: each as one process makes it."""
        own = _part(math.ceil(total / batch_size), self.rank, self.size)
        return slice(min(own.start * batch_size, total), min(own.stop * batch_size, total))

    def batches(self, table: "Tensor", batch_size: int) -> "Sequence[Tensor]":
        """The batches of those rows."""
        parts: Sequence[Tensor] = table.split(batch_size)
        return parts

    def sum(self, tensor: "Tensor") -> "Tensor":
        """The sum over all processes, in place."""
        return tensor

    def gather(self, parts: "Sequence[Tensor]", like: "Tensor") -> "Tensor":
        """The rows of all processes one after the other; `like` has none and tells their type and shape."""
        import torch

        return torch.cat(list(parts)) if parts else like

    def sum_statistics(self, statistics: Summable) -> None:
        """Add up what the processes have counted."""

    def sum_gradients(self, parameters: "Iterable[Tensor]") -> None:
        """Add up the gradients, each that of a loss times the `weight` of its share."""

    def align(self, tensors: "Iterable[Tensor]") -> None:
        """Give all processes the values of the first one, in place: processors may round differently."""

    def told(self, say: Callable[[], Told]) -> Told:
        """What the first process finds out by `say`, which no other one calls: plain JSON values, and tensors."""
        return say()

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise on all processes where one has other facts than the first: what they add up would mean nothing."""

    def held(self) -> AbstractContextManager[None]:
        """Where one process alone may meet numbers that are not finite; `settle` then raises that on all of them."""
        return nullcontext()

    def settle(self) -> None:
        """Raise on all processes what any of them has held back."""

    def in_turn(self) -> AbstractContextManager[None]:
        """One process of each machine does the block first, such as filling a cache, and then the others."""
        return nullcontext()

    def lost(self) -> str:
        """Which processes have ended without a word, in one clause; empty if none has."""
        return ""


#: A process alone.
ALONE = Ranks()


class JoinedRanks(Ranks):
    """Processes that are joined by `torch.distributed`; made by `joined`.

    Args:
        rank: which one this is.
        size: how many there are.
        store: what they all see, and what outlives each of them under `torchrun`.
        timeout: seconds that one waits for another.
    """

    def __init__(self, rank: int, size: int, store: "Store", timeout: float) -> None:
        self.rank, self.size, self.timeout, self._store = rank, size, timeout, store
        self._held: NonFiniteError | None = None
        self._turns = 0

    def ends(self) -> None:
        """Tell the others that this process ends, and not without a word; any thread may."""
        self._store.set(f"ended {self.rank}", "in order")

    @override
    def batches(self, table: "Tensor", batch_size: int) -> "Sequence[Tensor]":
        rows = self.rows(len(table), batch_size)
        return table[rows].split(batch_size) if rows.stop > rows.start else ()

    @override
    def sum(self, tensor: "Tensor") -> "Tensor":
        import torch

        with self._listening():
            whole = _sendable(tensor)
            for part in whole.view(-1).split(_BLOCK):
                torch.distributed.all_reduce(part)
        return tensor if whole is tensor else tensor.copy_(whole)

    @override
    def gather(self, parts: "Sequence[Tensor]", like: "Tensor") -> "Tensor":
        import torch

        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = sum(map(len, parts))
        start = int(self.sum(counts)[: self.rank].sum())
        number = torch.uint8 if like.dtype == torch.bool else like.dtype
        table = torch.zeros(int(counts.sum()), *like.shape[1:], dtype=number)
        if parts:
            table[start : start + int(counts[self.rank])] = torch.cat(list(parts)).to(number)
        return self.sum(table).to(like.dtype)  # where one process has a row, the others add 0 to it

    @override
    def sum_statistics(self, statistics: Summable) -> None:
        with self._listening():
            statistics.all_reduce()

    @override
    def sum_gradients(self, parameters: "Iterable[Tensor]") -> None:
        import torch

        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self.sum(parameter.grad)

    @override
    def align(self, tensors: "Iterable[Tensor]") -> None:
        import torch

        with self._listening():
            for tensor in tensors:
                whole = _sendable(tensor.detach())
                torch.distributed.broadcast(whole, 0)
                tensor.detach().copy_(whole)

    @override
    def told(self, say: Callable[[], Told]) -> Told:
        from safetensors.torch import load, save

        if not self.leads:
            values, tensors = json.loads(self._sent(b"", 0)), load(self._sent(b"", 0))
            return values, tensors
        said = say()
        self._sent(json.dumps(said[0]).encode(), 0)
        self._sent(save({name: tensor.detach().cpu().contiguous() for name, tensor in said[1].items()}), 0)
        return said

    @override
    def agree(self, facts: Mapping[str, Any]) -> None:
        import torch

        own = json.loads(json.dumps(dict(facts), default=repr))
        first, _ = self.told(lambda: (own, {}))
        names = list(first)
        other = torch.zeros(self.size, len(names), dtype=torch.int64)
        other[self.rank] = torch.tensor([own.get(name) != first[name] for name in names])
        for rank, row in enumerate(self.sum(other).tolist()):
            if any(row):
                what = " and ".join(name for name, differs in zip(names, row, strict=True) if differs)
                raise ReprogramError(
                    f"{self._named([rank])} has other {what} than the first process, but all are to do the same; give every "
                    "machine the same files and the same version of everything"
                )

    @override
    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        try:
            yield
        except NonFiniteError as error:
            self._held = self._held or error

    @override
    def settle(self) -> None:
        import torch

        first = torch.tensor([self.size if self._held is None else self.rank])
        with self._listening():
            torch.distributed.all_reduce(first, torch.distributed.ReduceOp.MIN)
        if int(first) < self.size:
            text = self._sent(str(self._held or "").encode(), int(first)).decode()
            self._held = None
            raise NonFiniteError(text)

    @override
    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        self._turns += 1
        key, first = f"turn {self._turns} of {os.environ.get('GROUP_RANK', '0')}", _local_rank() == 0
        with self._listening():
            while not (first or self._store.check([key])):  # no collective: what the first one does may take hours
                time.sleep(_PAUSE)
        try:
            yield
        finally:
            if first:
                with contextlib.suppress(RuntimeError):
                    self._store.set(key, "done")

    @override
    def lost(self) -> str:
        missing = self._missing(_LONG_GRACE)
        return f"{self._named(missing)} {_WITHOUT_A_WORD}" if missing else ""

    def _named(self, ranks: Sequence[int]) -> str:
        return f"rank {', '.join(map(str, ranks))} of {self.size}"

    def speaks(self) -> bool:
        """Whether this is the process that says what ended the run: the first that has something to say."""
        with contextlib.suppress(RuntimeError):
            self.ends()
            until = time.monotonic() + _GRACE
            while not self.leads and not self._store.check(["ended 0"]) and time.monotonic() < until:
                time.sleep(_PAUSE)  # what all have met, the first one shall say
            return bool(self._store.add("spoken", 1) == 1)
        return True  # nobody to ask: better said twice than never

    def _missing(self, grace: float = _GRACE) -> list[int]:
        """The processes that do not say, in a moment, that they end."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        until = time.monotonic() + grace
        try:
            self.ends()
            while True:
                others = [rank for rank in others if not self._store.check([f"ended {rank}"])]
                if not others or time.monotonic() > until:
                    return others
                time.sleep(_PAUSE)
        except RuntimeError:  # the store is gone, and with it the process that had it
            return [0]

    def _sent(self, content: bytes, source: int) -> bytes:
        """The bytes that one process has."""
        import torch

        with self._listening():
            length = torch.tensor([len(content)])
            torch.distributed.broadcast(length, source)
            data = torch.zeros(max(1, int(length)), dtype=torch.uint8)
            if self.rank == source and content:
                data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            torch.distributed.broadcast(data, source)
        return bytes(data[: int(length)].numpy())

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Put in one sentence what gloo or NCCL say about a process that is no longer there."""
        try:
            yield
        except RuntimeError as error:
            missing, said = self._missing(), str(error).lower()
            what = f"the other processes of this run have ended ({first_line(error)})"
            if missing and ("timed out" in said or "timeout" in said):
                what = f"{self._named(missing)} has not answered for {self.timeout:g} s (set {TIMEOUT} to wait longer)"
            elif missing:
                what = f"{self._named(missing)} {_WITHOUT_A_WORD}"
            raise LostRank(what) from None


_shared = False  # whether the command is one that processes carry out together
_here: JoinedRanks | None = None


def share_command(shared: bool) -> None:
    """Say whether the command that now begins is carried out by all processes together."""
    global _shared
    _shared = shared and _world_size() > 1


def follows() -> bool:
    """Whether this process carries out a command that another one leads."""
    return _shared and os.environ.get("RANK", "0") != "0"


def speaks() -> bool:
    """Whether this process may say what has ended the command: of those that carry it out together, one does."""
    if not _shared:
        return True
    return _local_rank() == 0 if _here is None else _here.speaks()


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that `torchrun` has started, for a block that all of them run; alone where it has started none.

    On GPUs, each process takes that of its number on the machine, and sums go through NCCL; on CPUs through gloo.

    >>> with joined() as ranks:
    ...     ranks.size
    1
    """
    global _here
    if _world_size() == 1:
        yield ALONE
        return
    import torch

    timeout = _timeout()
    if not torch.distributed.is_available():
        raise ReprogramError("this build of torch has no torch.distributed, so processes cannot be joined; start one alone")
    if torch.cuda.is_available():
        torch.cuda.set_device(_local_rank() % torch.cuda.device_count())
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
        store = PrefixStore("reprogram", store)
        torch.distributed.init_process_group(
            _backend(), store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
        )
    except (ValueError, RuntimeError) as error:
        raise ReprogramError(
            f"WORLD_SIZE = {_world_size()} processes cannot be joined ({first_line(error)}); start them with torchrun, or "
            "unset WORLD_SIZE to work alone"
        ) from None
    _here = JoinedRanks(rank, size, store, timeout)
    with _signals_told(_here):
        yield _here
    _here = None  # after an error it stays: main() asks it who speaks
    torch.distributed.destroy_process_group()
    # gloo's threads end a moment after their group: an interpreter that ends before them is aborted, after all work is done
    gc.collect()
    time.sleep(_GLOO_ENDS)


@contextlib.contextmanager
def _signals_told(ranks: JoinedRanks) -> Iterator[None]:
    """Tell the others of a signal that ends this process at once, from a thread that waits for nothing else.

    Python's own handler runs when the main thread is back from torch, and that thread may be waiting in a sum for the very
    process that wants to know whether this one was killed. Signals reach the main thread alone: elsewhere nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = {int(number) for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))}
    heard, written = socket.socketpair()
    written.setblocking(False)

    def listen() -> None:
        while numbers := heard.recv(16):
            if ending.intersection(numbers):
                with contextlib.suppress(RuntimeError):  # the store is gone, and with it the process that had it
                    ranks.ends()
        heard.close()

    before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=listen, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        written.close()


def _sendable(tensor: "Tensor") -> "Tensor":
    """The same numbers where gloo and NCCL can read them."""
    return (tensor if tensor.device.type in ("cpu", "cuda") else tensor.cpu()).contiguous()


def _part(total: int, rank: int, size: int) -> slice:
    """The part of so many things that is of one rank; the first ones have one more where they do not go even."""
    each, more = divmod(total, size)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


def _backend() -> str:
    import torch

    enough = torch.cuda.is_available() and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
    return "cpu:gloo,cuda:nccl" if enough and torch.distributed.is_nccl_available() else "gloo"


def _world_size() -> int:
    try:
        return max(1, int(os.environ.get("WORLD_SIZE", "1")))
    except ValueError:
        return 1


def _local_rank() -> int:
    local = os.environ.get("LOCAL_RANK", "0")
    return int(local) if local.isdecimal() else 0


def _timeout() -> float:
    text = os.environ.get(TIMEOUT, str(_PATIENCE))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e8:
        raise ReprogramError(f"{TIMEOUT} = {shown(text)} was given, but a number of seconds above 0 is expected; mend it")
    return seconds
