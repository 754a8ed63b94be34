"""What can be wrong with a GGUF file, said so that its owner can act."""

from __future__ import annotations

from linnet.errors import LinnetError


class GGUFError(LinnetError):
    """A GGUF file that cannot be read, or cannot be written as asked."""
