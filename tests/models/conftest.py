"""The real model of the gguf tests serves here too."""

from tests.gguf.conftest import smollm2

__all__ = ["smollm2"]
