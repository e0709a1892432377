"""The thread that does the store's jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, Queue, SimpleQueue
from typing import cast

from gateway.broker.store.thread import JobThread


def test_jobs_run_in_order_on_one_thread_until_finished() -> None:
    done: Queue[tuple[int, int]] = Queue()
    jobs = JobThread("jobs", lambda: None, 600, lambda error: None)
    for number in range(100):
        jobs.put(lambda number=number: done.put((number, threading.get_ident())))  # type: ignore[misc]
    jobs.finish()
    assert jobs.waiting()
    jobs.start()
    seen = [done.get(timeout=60) for _ in range(100)]
    assert [number for number, _ in seen] == list(range(100))
    assert len({thread for _, thread in seen}) == 1
    assert seen[0][1] != threading.get_ident()
    jobs._thread.join(60)
    assert not jobs._thread.is_alive()
    assert not jobs.waiting()


def test_it_looks_after_the_place_as_often_as_it_wants_to() -> None:
    looks: Queue[int] = Queue()
    left = [3]

    def idle() -> float | None:
        left[0] -= 1
        looks.put(left[0])
        return 0.001 if left[0] else None

    jobs = JobThread("jobs", idle, 0.001, lambda error: None)
    jobs.start()
    assert [looks.get(timeout=60) for _ in range(3)] == [2, 1, 0]
    # Not again before there was another job; then again.
    left[0] = 1
    assert looks.empty()
    jobs.put(lambda: None)
    assert looks.get(timeout=60) == 0
    jobs.finish()
    jobs._thread.join(60)
    assert not jobs._thread.is_alive()


def test_what_a_job_or_the_looking_after_raises_is_told_and_the_thread_goes_on() -> None:
    told: Queue[str] = Queue()

    def idle() -> float | None:
        raise RuntimeError("idle")

    def job() -> None:
        raise RuntimeError("job")

    jobs = JobThread("jobs", idle, 0.001, lambda error: told.put(str(error)))
    jobs.put(job)
    jobs.start()
    assert (told.get(timeout=60), told.get(timeout=60)) == ("job", "idle")
    jobs.put(job)
    assert told.get(timeout=60) == "job"
    jobs.finish()
    jobs._thread.join(60)
    assert not jobs._thread.is_alive()


def test_jobs_put_behind_wait_for_the_others_and_come_before_the_last() -> None:
    done: list[str] = []
    jobs = JobThread("jobs", lambda: None, 600, lambda error: None)

    def first() -> None:
        # It was put behind, and so was another: what is put now comes before that.
        done.append("behind 1")
        jobs.put(lambda: done.append("put late"))

    jobs.put_behind(first)
    jobs.put_behind(lambda: done.append("behind 2"))
    jobs.put(lambda: done.append("put"))
    jobs.start()
    ended = threading.Event()
    jobs.put_behind(lambda: jobs.finish(ended.set))
    assert ended.wait(60)
    jobs._thread.join(60)
    assert done == ["put", "behind 1", "put late", "behind 2"]


def test_what_is_put_behind_comes_after_what_was_put_before_it_however_late_both_come() -> None:
    done: Queue[str] = Queue()
    jobs = JobThread("jobs", lambda: None, 600, lambda error: None)

    class FoundEmpty:
        """Has nothing at the first look, and both jobs right after it."""

        def __init__(self, queue: SimpleQueue[Callable[[], None] | None]) -> None:
            self._queue = queue
            self._looked = False

        def get(self, block: bool, timeout: float | None) -> Callable[[], None] | None:
            if not self._looked:
                self._looked = True
                jobs.put(lambda: done.put("commit"))
                jobs.put_behind(lambda: done.put("fetch"))
                raise Empty
            return self._queue.get(block, timeout)

        def empty(self) -> bool:
            return self._queue.empty()

        def put(self, job: Callable[[], None] | None) -> None:
            self._queue.put(job)

    jobs._jobs = cast("SimpleQueue[Callable[[], None] | None]", FoundEmpty(jobs._jobs))
    jobs.start()
    assert [done.get(timeout=60), done.get(timeout=60)] == ["commit", "fetch"]
    jobs.finish()
    jobs._thread.join(60)
    assert not jobs._thread.is_alive()
