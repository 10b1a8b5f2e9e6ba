"""Segments, and views of them that live longer."""

import copy
import ctypes
import gc
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy
import pytest
import vshmem
from conftest import child, ended
from vshmem import Segment, _library, _segment


@pytest.fixture
def segment(key: int) -> Iterator[Segment]:
    made = Segment.get(key, 8000, exclusive=True)
    yield made
    made.remove()


def attachments(segment: Segment) -> int:
    """Ask for shm_nattch."""
    status = bytearray(_segment._SHMID_DS)
    memory = (ctypes.c_ubyte * len(status)).from_buffer(status)
    _library.checked(_library.library.vshm_shmctl(segment.id, _segment._IPC_STAT, memory))
    return int(struct.unpack_from("L", status, 88)[0])


def test_what_is_written_is_read_elsewhere(segment: Segment, key: int) -> None:
    segment.attach()
    values = segment.array("float64")
    assert values.shape == (1000,) and segment.size == 8000 and not values.any()

    def write() -> None:
        with Segment.get(key) as other:
            other.array("float64", (10, 100))[3, 5] = 2.5
        with Segment(segment.id) as by_id:
            by_id.buffer[0:8] = struct.pack("d", -1)

    ended(child(write))
    assert values[305] == 2.5 and values[0] == -1
    del values
    segment.detach()
    segment.detach()
    assert attachments(segment) == 0


def test_arrays(segment: Segment) -> None:
    with segment:
        assert segment.array("int32", 5, offset=4).shape == (5,)
        assert segment.array(numpy.uint8, offset=7998).shape == (2,)
        assert segment.array("i8", offset=1).shape == (999,)
        assert segment.array("u1", 0, offset=8000).shape == (0,)
        assert segment.array([("a", "i4"), ("b", "f8")], 2)["b"].tolist() == [0, 0]
        for dtype, shape, offset in [
            ("f8", 1001, 0),
            ("f8", (2**62, 2**62), 0),
            ("f8", -1, 0),
            ("f8", (-1,), 0),
            ("f8", None, 8001),
            ("f8", None, -8),
            ("S0", None, 0),
            (object, 1, 0),
            ([("a", object)], 1, 0),
        ]:
            with pytest.raises((ValueError, OverflowError)):
                segment.array(dtype, shape, offset=offset)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            segment.array("f8", 1.5)  # type: ignore[arg-type]


def test_a_segment_with_views_is_not_detached(segment: Segment) -> None:
    views: list[Callable[[], object]] = [
        lambda: segment.buffer,
        lambda: segment.buffer[10:20],
        lambda: segment.array("int64"),
        lambda: segment.array("int64")[::7].reshape(-1, 1).T,
        lambda: segment.array("f4").view("i4"),
        lambda: memoryview(cast(Any, segment.array("f8"))),
        lambda: iter(segment.buffer),
    ]
    for make in views:
        segment.attach()
        view = make()
        with pytest.raises(BufferError, match="stays attached"):
            segment.detach()
        assert segment.attached and attachments(segment) == 1
        del view
        segment.detach()
        assert not segment.attached and attachments(segment) == 0


def test_a_view_outlives_the_segment(segment: Segment) -> None:
    with Segment(segment.id) as other:
        array = other.array("int64")
        view = other.buffer
    assert not other.attached
    with pytest.raises(ValueError, match="is not attached"):
        other.buffer[0]
    del other
    gc.collect()
    array[:] = 3
    assert view[0] == 3 and attachments(segment) == 1
    part = array[10:20]
    del view, array
    assert part.sum() == 30 and attachments(segment) == 1
    del part
    assert attachments(segment) == 0


def test_a_view_in_a_circle(segment: Segment) -> None:
    class Holder:
        pass

    segment.attach()
    holder = Holder()
    holder.itself, holder.view = holder, segment.buffer  # type: ignore[attr-defined]
    del holder
    with pytest.raises(BufferError):
        segment.detach()
    gc.collect()
    segment.detach()


def test_a_released_view_is_no_view(segment: Segment) -> None:
    segment.attach()
    view = segment.buffer
    view.release()
    segment.detach()
    with pytest.raises(ValueError, match="released"):
        view[0]


def test_what_numpy_keeps_is_released(segment: Segment) -> None:
    segment.attach()
    view = segment.array("int64", (10, 10))[::2]
    base: Any = view
    while isinstance(base, numpy.ndarray):
        base = base.base
    base.release()
    with pytest.raises(BufferError):
        segment.detach()
    view[:] = 7
    assert view.sum() == 350
    del view
    segment.detach()
    assert attachments(segment) == 0


def test_the_last_view_goes_in_another_thread(segment: Segment) -> None:
    with segment:
        views = [segment.array()]
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert attachments(segment) == 0


def test_readonly(segment: Segment) -> None:
    segment.attach(readonly=True)
    with pytest.raises(TypeError):
        segment.buffer[0] = 1
    array = segment.array()
    with pytest.raises(ValueError):
        array[0] = 1
    with pytest.raises(ValueError):
        array.flags.writeable = True
    assert not array.tobytes().strip(b"\0")


def test_states(segment: Segment, key: int) -> None:
    with pytest.raises(ValueError, match="is not attached"):
        segment.size  # noqa: B018
    with pytest.raises(ValueError, match="is not attached"):
        segment.array()
    segment.attach()
    with pytest.raises(ValueError, match="attached already"):
        segment.attach()
    with segment:
        pass
    assert not segment.attached
    with pytest.raises(OSError, match="vshm_shmget"):
        Segment.get(key, 8001)
    with pytest.raises(OSError, match="vshm_shmat"):
        Segment(2**30 + 12345).attach()
    with pytest.raises(ValueError):
        Segment(-1)
    with pytest.raises(TypeError):
        copy.copy(segment)


def test_removed_while_attached(key: int) -> None:
    segment = Segment.get(key, 100, create=True)
    with segment:
        segment.remove()
        segment.buffer[99] = 5
        with pytest.raises(FileNotFoundError):
            Segment.get(key)
    with pytest.raises(OSError):
        segment.remove()
    with pytest.raises(OSError):
        segment.attach()


def test_a_private_segment(key: int) -> None:
    one, two = (Segment.get(vshmem.IPC_PRIVATE, 1, create=True) for _ in range(2))
    assert one.id != two.id
    one.remove()
    two.remove()


def test_a_size_that_is_not_mapped(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the pool as the size may have been written by anybody."""
    monkeypatch.setattr(_segment, "_mapped", lambda address: 4096)
    with pytest.raises(OSError, match="was changed"):
        segment.attach()
    assert not segment.attached and attachments(segment) == 0


def test_how_much_is_mapped(segment: Segment) -> None:
    with segment:
        memory = segment._attached()
        assert _segment._mapped(ctypes.addressof(memory)) == 8192
    assert _segment._mapped(0) == 0


def test_fork(segment: Segment) -> None:
    segment.attach()
    array = segment.array("int64")

    def work() -> None:
        segment.array("int64")[1] = 5
        assert attachments(segment) == 2
        with pytest.raises(BufferError):
            segment.detach()

    ended(child(work))
    assert array[1] == 5 and attachments(segment) == 1

    def detach() -> None:
        segment.detach()
        assert attachments(segment) == 1

    del array
    ended(child(detach))
    segment.buffer[0] = 1
    assert attachments(segment) == 1
    segment.detach()


def test_threads_attach_and_detach(segment: Segment) -> None:
    """And fork: no child finds the lock taken by a thread that it does not have."""
    failures: list[BaseException] = []
    over = threading.Event()

    def work() -> None:
        try:
            while not over.is_set():
                with Segment(segment.id) as mine:
                    mine.array("int64")[3] = 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()

    def attach() -> None:
        with Segment(segment.id) as mine:
            assert mine.size == 8000

    for _ in range(30):
        ended(child(attach))
    over.set()
    for thread in threads:
        thread.join()
    assert not failures and attachments(segment) == 0


if sys.version_info >= (3, 12):

    def test_buffer_protocol(segment: Segment) -> None:
        with segment:
            memoryview(segment)[0] = 65
            assert bytes(segment)[:1] == b"A"


def test_nothing_grows(segment: Segment) -> None:
    def descriptors_and_maps() -> tuple[int, int]:
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), len(maps.readlines())

    def use() -> None:
        for _ in range(300):
            with segment:
                segment.array("f4").sum()

    use()
    before = descriptors_and_maps()
    use()
    after = descriptors_and_maps()
    assert after[0] == before[0] and after[1] <= before[1] + 5
