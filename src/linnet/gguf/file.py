"""An open GGUF file: `GGUFFile.open(path)`, or `GGUFFile(path)`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

from linnet.gguf.header import read_header
from linnet.gguf.metadata import Metadata
from linnet.gguf.source import Source
from linnet.gguf.tensor import TensorInfo


class GGUFFile:
    """A GGUF file whose head has been checked; metadata and tensors are read when asked for.

        with GGUFFile.open("model.gguf") as file:
            file.metadata["general.architecture"]       # 'llama'
            file.tensors["token_embd.weight"].shape     # (49152, 576)
            file.tensors["token_embd.weight"].read(rows=slice(0, 1000))

    Opening takes the checks of `linnet.gguf.header`: a file that opens has a head that is sound throughout
    and tensors that lie within it, one after the other.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._source = source = Source(path)
        try:
            header = read_header(source)
        except BaseException:
            source.close()
            raise
        self.path: Path = source.path
        self.size: int = source.size
        self.version: int = header.version
        self.alignment: int = header.alignment
        self.data_start: int = header.data_start
        self.metadata = Metadata(source, header.entries)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(header.tensors)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Open and check a file; anything that is wrong with it is a GGUFError."""
        return cls(path)

    @property
    def architecture(self) -> str:
        """`general.architecture`, or an empty string where the file has none."""
        return self.metadata.text("general.architecture")

    def close(self) -> None:
        """Close the file. Views taken from it stay valid; nothing more can be read."""
        self._source.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self.path}: {len(self.tensors)} tensors, {len(self.metadata)} keys>"
