"""Was that the memory? numpy and torch have errors of their own for it, told apart here without loading either."""

from __future__ import annotations

# What the RuntimeErrors of torch's allocators say, by device.
_TORCH_WORDS = (
    "DefaultCPUAllocator",
    "Storage size calculation overflowed",
    "out of memory",
    "std::bad_alloc",
    "Invalid buffer size",
)


def out_of_memory(error: BaseException) -> str | None:
    """One line about an error that means there was too little memory; None for any other error."""
    said = next(iter(str(error).splitlines()), "").strip()
    if isinstance(error, MemoryError):
        detail = said
    elif isinstance(error, RuntimeError) and any(word in str(error) for word in _TORCH_WORDS):
        # "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried …"
        detail = said[said.find("DefaultCPUAllocator") :] if "DefaultCPUAllocator" in said else said
    else:
        return None
    line = "there is not enough memory for this: take less at once (a smaller model, batch, context or file)"
    return f"{line}; {detail[:200]}" if detail else line
