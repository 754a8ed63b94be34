"""Too little memory, said in one line."""

from __future__ import annotations

from linnet.errors import is_out_of_memory


def out_of_memory(error: BaseException) -> str | None:
    """One line about an error that means there was too little memory; None for any other error."""
    if not is_out_of_memory(error):
        return None
    said = next(iter(str(error).splitlines()), "").strip()
    # "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried …"
    detail = said[max(0, said.find("DefaultCPUAllocator")) :]
    line = "there is not enough memory for this: take less at once (a smaller model, batch, context or file)"
    return f"{line}; {detail[:200]}" if detail else line
