"""Text that comes piece by piece, in lines as wide as a terminal, broken between words."""

from __future__ import annotations

from typing import TextIO

from linnet.board.words import cells, plain


class WrappedOutput:
    """Writes text as it comes and begins a new line where a word would not fit; `columns` None: as it is.

    A word is held until it is complete. Wide letters (Chinese, Japanese, emoji) are words of their own. What could
    steer the terminal is shown as marks.
    """

    def __init__(self, stream: TextIO, columns: int | None) -> None:
        self._stream, self._columns = stream, columns
        self._word, self._blanks, self._used = "", "", 0

    def write(self, text: str) -> None:
        """Take some text more."""
        if self._columns is None:
            self._stream.write(text)
        else:
            for letter in text:
                self._take(letter)
        self._stream.flush()

    def close(self) -> None:
        """Write what was held, and end the line."""
        self._put_word()
        self._stream.write("\n")
        self._stream.flush()

    def _take(self, letter: str) -> None:
        if letter == "\n":
            self._put_word()
            self._stream.write("\n")
            self._blanks, self._used = "", 0
        elif letter in " \t":
            self._put_word()
            self._blanks += "    " if letter == "\t" else " "
        elif cells(letter) == 0:
            self._word += letter
        else:
            shown = plain(letter)
            if cells(shown) > 1 or (self._word and cells(self._word[0]) > 1):
                self._put_word()
            self._word += shown

    def _put_word(self) -> None:
        if not self._word or self._columns is None:
            return
        room = cells(self._blanks) + cells(self._word)
        if self._used and self._used + room >= self._columns:
            self._stream.write("\n")
            self._blanks, self._used, room = "", 0, cells(self._word)
        self._stream.write(self._blanks + self._word)
        self._used += room
        self._word = self._blanks = ""
