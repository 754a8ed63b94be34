"""The tensor types of ggml: how many values a block holds and how many bytes it takes."""

from __future__ import annotations

from enum import IntEnum

from linnet.gguf.errors import GGUFError


class GGMLType(IntEnum):
    """Type numbers as they stand in a file's tensor table. Gaps are types that ggml has removed."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39

    @property
    def block_values(self) -> int:
        """Values in one block; a tensor's row length is a multiple of it."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return _BLOCKS[self][1]

    def row_bytes(self, values: int) -> int:
        """Bytes of a row of `values` values."""
        if values % self.block_values:
            raise GGUFError(
                f"a row of {self.name} holds a multiple of {self.block_values} values, found {values}"
            )
        return values // self.block_values * self.block_bytes


_BLOCKS: dict[GGMLType, tuple[int, int]] = {
    GGMLType.F32: (1, 4),
    GGMLType.F16: (1, 2),
    GGMLType.Q4_0: (32, 2 + 16),
    GGMLType.Q4_1: (32, 2 + 2 + 16),
    GGMLType.Q5_0: (32, 2 + 4 + 16),
    GGMLType.Q5_1: (32, 2 + 2 + 4 + 16),
    GGMLType.Q8_0: (32, 2 + 32),
    GGMLType.Q8_1: (32, 2 + 2 + 32),
    GGMLType.Q2_K: (256, 16 + 64 + 2 + 2),
    GGMLType.Q3_K: (256, 64 + 32 + 12 + 2),
    GGMLType.Q4_K: (256, 2 + 2 + 12 + 128),
    GGMLType.Q5_K: (256, 2 + 2 + 12 + 32 + 128),
    GGMLType.Q6_K: (256, 128 + 64 + 16 + 2),
    GGMLType.Q8_K: (256, 4 + 256 + 32),
    GGMLType.IQ2_XXS: (256, 2 + 64),
    GGMLType.IQ2_XS: (256, 2 + 64 + 8),
    GGMLType.IQ3_XXS: (256, 2 + 64 + 32),
    GGMLType.IQ1_S: (256, 2 + 32 + 16),
    GGMLType.IQ4_NL: (32, 2 + 16),
    GGMLType.IQ3_S: (256, 2 + 64 + 8 + 32 + 4),
    GGMLType.IQ2_S: (256, 2 + 64 + 16),
    GGMLType.IQ4_XS: (256, 2 + 2 + 128 + 4),
    GGMLType.I8: (1, 1),
    GGMLType.I16: (1, 2),
    GGMLType.I32: (1, 4),
    GGMLType.I64: (1, 8),
    GGMLType.F64: (1, 8),
    GGMLType.IQ1_M: (256, 32 + 16 + 8),
    GGMLType.BF16: (1, 2),
    GGMLType.TQ1_0: (256, 4 + 48 + 2),
    GGMLType.TQ2_0: (256, 64 + 2),
    GGMLType.MXFP4: (32, 1 + 16),
}
