"""Run by every Python that a test starts, see `conftest.py`: what nobody would notice is kept.

An exception in a destructor or a thread, a coroutine or a task that was left: Python prints a line
on stderr, which few look at, and goes on. Here it goes into a file too, and fails the test.
"""

import logging
import os
import sys
import threading

FILE = os.environ["TESTS_COMPLAINTS"]


def complain(text: str) -> None:
    with open(FILE, "a", encoding="utf-8") as file:
        file.write(f"{' '.join(sys.orig_argv)[:200]}: {text}\n")


def unraisable(problem: "sys.UnraisableHookArgs") -> None:
    complain(f"{problem.err_msg or 'ignored in'} {problem.object!r}: {problem.exc_value!r}")
    sys.__unraisablehook__(problem)


def of_thread(problem: threading.ExceptHookArgs) -> None:
    complain(f"in thread {problem.thread!r}: {problem.exc_value!r}")
    threading.__excepthook__(problem)


class Complaining(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def is_fault(record: logging.LogRecord) -> bool:
    """A callback that took long means nothing on a machine that is busy."""
    return "took %.3f seconds" not in str(record.msg)


sys.unraisablehook = unraisable
threading.excepthook = of_thread
logging.getLogger("asyncio").addHandler(Complaining(logging.ERROR))
logging.getLogger("asyncio").addFilter(is_fault)
