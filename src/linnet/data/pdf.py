"""The text of PDF files, by `pypdf`, in a process of its own that is ended when a file takes too much of anything.

A PDF is a program of sorts, and no reader of it has bounds that hold. So one child process reads files as they are
asked for; it may use so much memory and so much time for each, and is replaced after one that wanted more.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

from linnet.data.corpus_file import CorpusFile, FileError, ReadingReport
from linnet.data.errors import MissingPackageError
from linnet.errors import error_text

_LONGEST = 120.0  # seconds for a file
_MEMORY = 4 << 30  # bytes for the process
_MOST_TEXT = 1 << 28  # characters of a file


def pdf(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The text of a PDF, its pages a blank line apart."""
    if find_spec("pypdf") is None:
        raise FileError(file.path, str(MissingPackageError("reading PDF", "pypdf", "documents")))
    content = file.content()
    text, problem = _READER.read(content)
    if problem:
        raise FileError(file.path, problem)
    if text:
        yield text
    else:
        raise FileError(file.path, "the PDF holds no text: its pages are images, or empty")


class _PdfReader:
    """The child process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def read(self, content: bytes, longest: float | None = None) -> tuple[str, str]:
        """The text of a PDF, or what is wrong with it."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = self._started()
            assert process.stdin is not None and process.stdout is not None
            timer = threading.Timer(longest or _LONGEST, process.kill)
            timer.start()
            try:
                pickle.dump(content, process.stdin, pickle.HIGHEST_PROTOCOL)
                process.stdin.flush()
                answer: tuple[str, str] = pickle.load(process.stdout)
                return answer
            except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                self.close()  # at once: it may take a moment to end, and the next file needs another
                return "", f"the PDF takes more than {longest or _LONGEST:.0f} s or {_MEMORY >> 30} GiB to be read"
            finally:
                timer.cancel()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        self.close()
        command = f"import sys; sys.path[:] = {sys.path!r}; from linnet.data.pdf import work; work()"
        return subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


_READER = _PdfReader()
atexit.register(_READER.close)


def work() -> None:
    """What the child does until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)  # pypdf warns of what it mends
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for the process
    with suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):
        while True:
            pickle.dump(_extracted(pickle.load(requests)), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
    os._exit(0)


def _extracted(content: bytes) -> tuple[str, str]:
    import io

    from pypdf import PdfReader

    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            return "", "the PDF is encrypted"
        pages: list[str] = []
        size = 0
        for page in reader.pages:
            pages.append(page.extract_text().replace("\0", "").strip())
            size += len(pages[-1])
            if size > _MOST_TEXT:
                return "", f"the PDF holds more than {_MOST_TEXT >> 20} MiB of text, the most that is read"
    except MemoryError:
        return "", f"the PDF takes more than {_MEMORY >> 30} GiB to be read"
    except Exception as error:  # of every kind, by what a file holds
        return "", f"this is no sound PDF: {type(error).__name__}: {error_text(error)[:200]}"
    text = "\n\n".join(page for page in pages if page)
    # Half a surrogate pair is no character, and comes from broken tables of letters.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return (f"{text}\n" if text else ""), ""
