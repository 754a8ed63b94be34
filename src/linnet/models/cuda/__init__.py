"""Triton kernels for what the compiler does badly, each beside a plain version that says what it computes.

A kernel is here because it gains several per cent of a whole step on an H200 (docs/log.md), and is used only where
models are compiled for CUDA.
"""
