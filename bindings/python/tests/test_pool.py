"""Several pools, which of them is current, and when one can be closed."""

import errno
import os
import threading
from pathlib import Path

import pytest
import vshmem
from conftest import child, ended
from vshmem import Pool

SIZE = 1 << 20


def test_a_with_statement_uses_and_closes(folder: str, key: int) -> None:
    with Pool.create(f"{folder}/one", SIZE) as pool:
        assert Pool.current() is pool and pool.name == f"{folder}/one"
        vshmem.Segment.get(key, 1, create=True)
    assert Pool.current() is Pool.default() and pool.closed
    with pytest.raises(FileNotFoundError):
        vshmem.Segment.get(key)
    with Pool.open(Path(folder, "one")) as pool:
        vshmem.Segment.get(key)


def test_the_pool_before_is_current_again(folder: str) -> None:
    with Pool.create(f"{folder}/one", SIZE) as one:
        with Pool.create(f"{folder}/two", SIZE) as two:
            assert Pool.current() is two
        assert Pool.current() is one
        # It may be closed meanwhile; then it is the default.
        with Pool.open(f"{folder}/two"):
            one.close()
        assert Pool.current() is Pool.default()


def test_another_may_be_used_inside(folder: str) -> None:
    with Pool.create(f"{folder}/one", SIZE) as one:
        two = Pool.create(f"{folder}/two", SIZE)
        two.use()
    assert one.closed and Pool.current() is two
    Pool.default().use()
    two.close()


def test_a_with_statement_is_no_with_statement_twice(folder: str) -> None:
    with Pool.create(f"{folder}/one", SIZE) as one:
        with pytest.raises(RuntimeError, match="in use by a with statement"), one:
            pass
    with pytest.raises(ValueError, match="closed"), one:
        pass
    assert Pool.current() is Pool.default()


def test_the_default_pool_is_never_closed() -> None:
    with Pool.default() as pool:
        assert Pool.current() is pool
    pool.close()
    assert not pool.closed and pool.name is None
    pool.use()


def test_closing(folder: str) -> None:
    pool = Pool.create(f"{folder}/one", SIZE)
    pool.use()
    with pytest.raises(OSError, match="the pool is in use") as caught:
        pool.close()
    assert caught.value.errno == errno.EBUSY
    Pool.default().use()
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.use()


def test_a_pool_that_is_attached_stays_open(folder: str, key: int) -> None:
    pool = Pool.create(f"{folder}/one", 4 * SIZE)
    with pytest.raises(OSError, match="are attached") as caught, pool:
        segment = vshmem.Segment.get(key, 100, create=True)
        segment.attach()
        view = segment.buffer
    assert caught.value.errno == errno.EBUSY
    assert Pool.current() is Pool.default() and not pool.closed
    with pytest.raises(ValueError, match="is not the current pool"):
        segment.remove()
    with pytest.raises(BufferError):
        segment.detach()
    view[0] = 1
    del view
    segment.detach()
    with pytest.raises(ValueError, match="is not the current pool"):
        segment.attach()
    pool.use()
    barrier = vshmem.Barrier(key + 1, 1)
    Pool.default().use()
    with pytest.raises(OSError, match="are attached"):
        pool.close()
    # A barrier knows its pool by itself.
    assert barrier.wait() is True
    barrier.close()
    pool.close()


def test_a_view_keeps_its_pool(folder: str, key: int) -> None:
    with pytest.raises(OSError, match="are attached"):
        with Pool.create(f"{folder}/one", 4 * SIZE):
            with vshmem.Segment.get(key, 100, create=True) as segment:
                view = segment.buffer
    del segment
    view[3] = 7
    assert view[3] == 7
    with pytest.warns(ResourceWarning, match="unclosed <Pool"):
        del view


def test_what_is_forgotten_is_closed(folder: str) -> None:
    for i in range(20):
        with pytest.warns(ResourceWarning, match="unclosed <Pool"):
            Pool.create(f"{folder}/{i}", SIZE)


def test_seven_at_once(folder: str) -> None:
    pools = [Pool.create(f"{folder}/{i}", SIZE) for i in range(7)]
    with pytest.raises(OSError, match="seven pools") as caught:
        Pool.create(f"{folder}/eight", SIZE)
    assert caught.value.errno == errno.EMFILE
    for pool in pools:
        pool.close()


def test_errors(folder: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such pool"):
        Pool.open(f"{folder}/none")
    Pool.create(f"{folder}/one", SIZE, mode=0o640).close()
    assert os.stat(f"{folder}/one").st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        Pool.create(f"{folder}/one", SIZE)
    with pytest.raises(OSError, match="at least 1 MiB"):
        Pool.create(f"{folder}/two", 1)
    with pytest.raises(ValueError, match="size"):
        Pool.create(f"{folder}/two", 2**64 + SIZE)
    with pytest.raises(ValueError, match="null byte"):
        Pool.open("one\0")
    with pytest.raises(OSError, match="too small"):
        Pool.open("/etc/passwd")
    with pytest.raises(TypeError):
        Pool()
    with pytest.raises(TypeError):
        Pool.open(5)  # type: ignore[arg-type]


def test_threads_open_and_close(folder: str) -> None:
    Pool.create(f"{folder}/one", SIZE).close()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                Pool.open(f"{folder}/one").close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_child_uses_its_parents_pools(folder: str, key: int) -> None:
    with Pool.create(f"{folder}/one", SIZE) as pool:
        vshmem.Segment.get(key, 1, create=True)

        def use() -> None:
            vshmem.Segment.get(key)
            Pool.default().use()
            pool.close()

        ended(child(use))
        vshmem.Segment.get(key)
