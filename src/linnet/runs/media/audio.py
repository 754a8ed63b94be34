"""`Audio`: sound as samples, and as a WAV file of 16 bits."""

from __future__ import annotations

import io
import os
import wave
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.files import read_bounded
from linnet.runs.encode import whole_number
from linnet.runs.media.capture import LARGEST, Capture, MediaFile, copy_array

_MOST_CHANNELS = 8


class Audio(msgspec.Struct):
    """Sound that was logged: `samples` (frames, channels) from -1 to 1, and frames a second."""

    samples: NDArray[np.float32]
    rate: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate


def capture_audio(samples: Any, rate: Any = None) -> Capture:
    """Copy samples to be written as WAV: fractions from -1 to 1, or integers; or the path of a WAV file."""
    if isinstance(samples, str | os.PathLike):
        content = read_bounded(samples, LARGEST)
        kept = decode_audio(content)
        fields = {"rate": kept.rate, "channels": kept.samples.shape[1], "seconds": kept.seconds}
        return Capture(len(content), lambda: MediaFile(content, ".wav", "audio/wav", fields))
    frames_a_second = whole_number(rate)
    if frames_a_second is None or not 1 <= frames_a_second < 2**31:
        raise ValueError(f"expected a `rate` of frames a second, found {str(rate)[:40]!r}")
    copied = copy_array(samples)
    if len(copied.shape) not in (1, 2) or 0 in copied.shape:
        raise ValueError(f"expected samples of 1 or 2 dimensions, found the shape {copied.shape}")
    if len(copied.shape) == 2 and min(copied.shape) > _MOST_CHANNELS:
        raise ValueError(f"expected at most {_MOST_CHANNELS} channels, found the shape {copied.shape}")
    return Capture(copied.n_bytes, lambda: _encode(copied.numbers(), frames_a_second), copied.release)


def _encode(samples: NDArray[Any], rate: int) -> MediaFile:
    if samples.ndim == 1:
        samples = samples[:, None]
    elif samples.shape[0] < samples.shape[1] and samples.shape[0] <= _MOST_CHANNELS:
        samples = samples.T  # channels first, as torchaudio has them
    frames, channels = samples.shape
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.ascontiguousarray(_to_16_bit(samples)).astype("<i2").tobytes())
    fields = {"rate": rate, "channels": channels, "seconds": frames / rate}
    return MediaFile(content.getvalue(), ".wav", "audio/wav", fields)


def _to_16_bit(samples: NDArray[Any]) -> NDArray[np.int16]:
    if samples.dtype == np.uint8:  # as WAV itself has 8 bits: 128 is silence
        samples = (samples.astype(np.int16) - 128) << 8
    elif samples.dtype == np.int32:
        samples = samples >> 16
    elif samples.dtype.kind == "f":
        samples = np.nan_to_num(samples.astype(np.float64), nan=0.0, posinf=1.0, neginf=-1.0) * 32767
    rounded: NDArray[np.int16] = np.rint(np.clip(samples, -32768, 32767)).astype(np.int16)
    return rounded


def decode_audio(content: bytes) -> Audio:
    """Sound from a WAV file; ValueError when it is none that is known."""
    try:
        with wave.open(io.BytesIO(content), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, ArithmeticError, ValueError) as error:
        raise ValueError(f"no WAV file: {error}") from None
    if not rate or not channels or width not in (1, 2, 3, 4):
        raise ValueError("no WAV file of a known kind")
    data = data[: len(data) // (width * channels) * width * channels]
    if width == 1:
        samples = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    else:
        padded = np.zeros((len(data) // width, 4), np.uint8)
        padded[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
        samples = padded.view("<i4").reshape(-1).astype(np.float32) / 2**31
    return Audio(samples.astype(np.float32, copy=False).reshape(-1, channels), rate)
