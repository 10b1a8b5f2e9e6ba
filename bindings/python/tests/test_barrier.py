"""Barriers and reductions, between processes and threads, when a party dies, and ctrl-C."""

import array
import errno
import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy
import pytest
import vshmem
from conftest import child, ended, python
from vshmem import Barrier, PartyDiedError, Segment


def by_processes(parties: int, work: Callable[[], object]) -> None:
    ended(*[child(work) for _ in range(parties)])


def by_threads(parties: int, work: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def waiting(barrier: Barrier, call: Callable[[], object]) -> threading.Thread:
    """Start a thread that waits at a barrier, and wait until it does."""
    thread = threading.Thread(target=call)
    thread.start()
    while not barrier._in_use.locked():
        time.sleep(0.01)
    return thread


@pytest.mark.parametrize("run", [by_processes, by_threads])
def test_nobody_is_a_round_ahead(run: Callable[..., None], key: int) -> None:
    parties, rounds = 4, 200
    segment = Segment.get(key + 2**20, parties * 16, create=True)

    def work() -> None:
        with Segment(segment.id) as mine, Barrier(key, parties) as barrier:
            counts, lasts = mine.array("int64", parties), mine.array("int64", parties, offset=32)
            for i in range(rounds):
                counts[barrier.seat] = i + 1
                lasts[barrier.seat] += barrier.wait(30)
                assert counts.min() == i + 1
                barrier.wait(30)

    run(parties, work)
    with segment:
        assert segment.array("int64", parties, offset=32).sum() == rounds
    segment.remove()
    Barrier.remove(key)


@pytest.mark.parametrize("run", [by_processes, by_threads])
def test_reductions(run: Callable[..., None], key: int) -> None:
    parties, values = 3, 5000

    def work() -> None:
        with Barrier(key, parties) as barrier:
            seat = barrier.seat
            floats = numpy.arange(values) / 3 + seat * 0.1
            barrier.sum(floats, 30)
            expected = numpy.arange(values) / 3 + 0.0
            for s in range(1, parties):
                expected = expected + (numpy.arange(values) / 3 + s * 0.1)
            assert (floats == expected).all()
            whole = numpy.arange(values, dtype="int64").reshape(50, 100) * (seat - 1)
            barrier.min(whole, 30)
            assert (whole == -numpy.arange(values).reshape(50, 100)).all()
            plain = array.array("q", [seat, -seat])
            barrier.max(plain, 30)
            assert plain.tolist() == [parties - 1, 0]
            barrier.sum(numpy.empty((0, 3)), 30)
            barrier.sum(array.array("d"), 30)
            one = numpy.array(1.5)
            barrier.sum(one, 30)
            assert one == 1.5 * parties
            nan = array.array("d", [math.nan if seat else 2.0])
            barrier.max(nan, 30)
            assert nan[0] == 2.0
            wraps = array.array("l", [2**63 - 1 if seat == 0 else 1 if seat == 1 else 0])
            barrier.sum(wraps, 30)
            assert wraps[0] == -(2**63)

    run(parties, work)
    Barrier.remove(key)


def test_a_reduction_into_a_segment(key: int) -> None:
    segment = Segment.get(key + 2**20, 80, create=True)
    with segment, Barrier(key, 1) as barrier:
        values = segment.array("float64", 10)
        values[:] = 2
        barrier.sum(values)
        barrier.sum(segment.buffer.cast("d"))
        assert values.sum() == 20
    segment.remove()
    Barrier.remove(key)


def test_arrays_that_are_refused(key: int) -> None:
    readonly = numpy.zeros(3)
    readonly.flags.writeable = False
    with Barrier(key, 1) as barrier:
        for wrong in (
            numpy.zeros(3, "float32"),
            numpy.zeros(3, "int32"),
            numpy.zeros(3, "uint64"),
            numpy.zeros(3, ">f8"),
            numpy.zeros(3, "complex128"),
            numpy.zeros(3, "bool"),
            numpy.zeros(3, [("a", "f8")]),
            array.array("f", [1]),
            array.array("Q", [1]),
            bytearray(8),
            [1.0, 2.0],
            1.5,
            None,
        ):
            with pytest.raises(TypeError):
                barrier.sum(wrong)  # type: ignore[arg-type]
        for bad, why in (
            (numpy.zeros(10)[::2], "not contiguous"),
            (numpy.zeros((4, 4)).T[1:], "not contiguous"),
            (numpy.zeros((4, 4), order="F"), "not contiguous"),
            (numpy.broadcast_to(numpy.zeros(1), 5), "read-only"),
            (readonly, "read-only"),
            (memoryview(bytes(8)).cast("d"), "read-only"),
        ):
            with pytest.raises(ValueError, match=why):
                barrier.min(bad)
        unaligned = numpy.frombuffer(bytearray(81), "u1")[1:].view("f8")
        unaligned[:] = 4
        barrier.max(unaligned)
        assert unaligned.sum() == 40
    Barrier.remove(key)


def test_an_array_keeps_its_size_meanwhile(key: int) -> None:
    values = array.array("d", [1.0] * 10)
    with Barrier(key, 2) as barrier:
        thread = waiting(barrier, lambda: barrier.sum(values, 30))
        with pytest.raises(BufferError):
            values.extend([1.0] * 10**6)
        with Barrier(key, 2) as other:
            other.sum(array.array("d", [1.0] * 10), 30)
        thread.join()
        values.append(1)
    Barrier.remove(key)


def test_timeouts(key: int) -> None:
    with Barrier(key, 2) as barrier:
        for timeout in (0, 0.05, 0.35, 1):
            began = time.monotonic()
            with pytest.raises(TimeoutError, match="vshm_barrier_wait"):
                barrier.wait(timeout)
            took = time.monotonic() - began
            assert timeout <= took < timeout + 3
        with pytest.raises(TimeoutError):
            barrier.sum(array.array("d", [1]), 0.2)
        for wrong in (-1, math.nan):
            with pytest.raises(ValueError, match="negative"):
                barrier.wait(wrong)
        with pytest.raises(TypeError):
            barrier.wait("1")  # type: ignore[arg-type]

        # Who timed out has not arrived, and is in step.
        def other() -> None:
            with Barrier(key, 2) as mine:
                values = array.array("d", [1])
                mine.sum(values, 30)
                assert values[0] == 3
                mine.wait(1e300)

        pid = child(other)
        values = array.array("d", [2])
        barrier.sum(values, math.inf)
        assert values[0] == 3
        barrier.wait()
        ended(pid)
    Barrier.remove(key)


def test_a_party_that_is_killed(key: int) -> None:
    barrier = Barrier(key, 2)

    def other() -> None:
        mine = Barrier(key, 2)
        mine.wait(30)
        time.sleep(60)

    pid = child(other)
    barrier.wait(30)
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    values = numpy.ones(3)
    with pytest.raises(PartyDiedError) as caught:
        barrier.sum(values)
    assert caught.value.errno == errno.EOWNERDEAD and isinstance(caught.value, OSError)
    os.waitpid(pid, 0)
    with pytest.raises(PartyDiedError, match="vshm_barrier_wait"):
        barrier.wait()
    # The seat is given to who comes next.
    pid = child(lambda: Barrier(key, 2).wait(30))
    while True:
        try:
            barrier.wait(30)
            break
        except PartyDiedError:
            time.sleep(0.01)
    ended(pid)
    barrier.close()
    Barrier.remove(key)


def test_a_reduction_that_fails_halfway(key: int) -> None:
    def other() -> None:
        mine = Barrier(key, 2)
        mine.wait(30)
        mine.sum(numpy.ones(2048), 30)
        time.sleep(60)

    barrier = Barrier(key, 2)
    pid = child(other)
    barrier.wait(30)
    with pytest.raises(TimeoutError):
        barrier.sum(numpy.ones(5000), 2)
    for use in (barrier.wait, lambda: barrier.sum(numpy.ones(1))):
        with pytest.raises(RuntimeError, match="out of step"):
            use()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    barrier.close()
    Barrier.remove(key)


def test_ctrl_c(key: int) -> None:
    code = f"""
import array, sys, vshmem
barrier = vshmem.Barrier({key}, 2)
waits = [barrier.wait, lambda: barrier.sum(array.array("d", [1]))]
for wait in waits:
    try:
        print("waiting", flush=True)
        wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
barrier.wait(30)
print("over", flush=True)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    for _ in range(2):
        assert program.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        began = time.monotonic()
        program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
        assert time.monotonic() - began < 5
    with Barrier(key, 2) as barrier:
        barrier.wait(30)
    assert program.stdout.read() == "over\n" and program.wait() == 0
    program.stdout.close()
    Barrier.remove(key)


def test_handlers_run_while_it_waits(key: int) -> None:
    """And can't use the barrier that is waited at."""
    seen: list[BaseException | None] = []

    def handler(*_: object) -> None:
        for use in (barrier.wait, barrier.close):
            try:
                use()
                seen.append(None)
            except BaseException as error:
                seen.append(error)

    barrier = Barrier(key, 2)
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        barrier.wait(0.5)
    assert 0.5 <= time.monotonic() - began < 5
    signal.signal(signal.SIGALRM, before)
    assert [type(error) for error in seen] == [RuntimeError, RuntimeError]
    barrier.close()
    Barrier.remove(key)


def test_a_handler_may_end_the_wait(key: int) -> None:
    def handler(*_: object) -> None:
        raise TimeoutError("the handler's")

    with Barrier(key, 2) as barrier:
        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(TimeoutError, match="the handler's"):
            barrier.sum(numpy.ones(5000))
        signal.signal(signal.SIGALRM, before)
        # Nobody knows how far it came.
        with pytest.raises(RuntimeError, match="out of step"):
            barrier.wait(0)
    Barrier.remove(key)


def test_one_thread_at_a_time(key: int) -> None:
    barrier = Barrier(key, 2)
    thread = waiting(barrier, lambda: barrier.wait(30))
    with pytest.raises(RuntimeError, match="each thread opens its own"):
        barrier.wait(0)
    with pytest.raises(RuntimeError, match="in use by another thread"):
        barrier.close()
    with Barrier(key, 2) as other:
        other.wait(30)
    thread.join()
    barrier.close()
    Barrier.remove(key)


def test_other_threads_run_while_it_waits(key: int) -> None:
    counted = 0

    def count() -> None:
        nonlocal counted
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            counted += 1

    with Barrier(key, 2) as barrier:
        thread = threading.Thread(target=count)
        thread.start()
        with pytest.raises(TimeoutError):
            barrier.wait(0.5)
        thread.join()
    assert counted > 1000
    Barrier.remove(key)


def test_states(key: int) -> None:
    barrier = Barrier(key, 1)
    assert barrier.seat == 0 and barrier.parties == 1 and barrier.wait() is True
    with pytest.raises(OSError, match="all 1 parties are there") as caught:
        Barrier(key, 1)
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(OSError, match="another number of parties") as caught:
        Barrier(key, 2)
    assert caught.value.errno == errno.EINVAL
    barrier.close()
    barrier.close()
    for use in (barrier.wait, lambda: barrier.sum(array.array("d"))):
        with pytest.raises(ValueError, match="closed"):
            use()
    for parties in (0, -1):
        with pytest.raises(ValueError):
            Barrier(key, parties)
    for number, parties in ((key, 481), (0, 1)):
        with pytest.raises(OSError, match="1 to 480 parties"):
            Barrier(number, parties)
    Barrier.remove(key)
    segment = Segment.get(key, 100_000, create=True)
    segment.attach()
    segment.buffer[:8] = b"numbers."
    with pytest.raises(OSError, match="belongs to something else"):
        Barrier(key, 1)
    with pytest.raises(OSError, match="belongs to something else"):
        Barrier.remove(key)
    segment.detach()
    segment.remove()
    with pytest.raises(FileNotFoundError):
        Barrier.remove(key)


def test_a_forgotten_seat_is_given_up(key: int) -> None:
    for _ in range(3):
        with pytest.warns(ResourceWarning, match="unclosed <Barrier"):
            Barrier(key, 1)
            gc.collect()
    Barrier.remove(key)


def test_fork(key: int) -> None:
    barrier = Barrier(key, 1)

    def inherited() -> None:
        with pytest.raises(RuntimeError, match="before a fork"):
            barrier.wait()
        barrier.close()

    ended(child(inherited))
    # The child has not given up its parent's seat.
    with pytest.raises(OSError):
        Barrier(key, 1)
    assert barrier.wait() is True
    # Nor does it hang where another thread had the barrier.
    two = Barrier(key + 2**20, 2)
    thread = waiting(two, lambda: two.wait(30))
    ended(child(two.close))
    with Barrier(key + 2**20, 2) as other:
        other.wait(30)
    thread.join()
    two.close()
    barrier.close()
    Barrier.remove(key)
    Barrier.remove(key + 2**20)


def test_multiprocessing(key: int) -> None:
    code = f"""
import multiprocessing, numpy, vshmem
def work(_):
    with vshmem.Barrier({key}, 3) as barrier:
        values = numpy.array([1.0 + barrier.seat])
        barrier.sum(values, 30)
        return values[0]
if __name__ == "__main__":
    with multiprocessing.Pool(3) as workers:
        print(workers.map(work, range(3), chunksize=1))
"""
    run = python(code)
    assert run.stderr == "" and run.stdout.count("6.0") == 3
    vshmem.Barrier.remove(key)
