"""Images, tables, histograms, texts and sounds of a training loop: kept as they were at the call."""

from __future__ import annotations

import hashlib
import threading
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import linnet
from linnet.runs import Artifact
from linnet.runs.media.queue import MediaQueue
from linnet.runs.session import Session
from tests.runs.conftest import logged

GENERATOR = np.random.default_rng(7)
RGB = GENERATOR.integers(0, 256, (5, 8, 3), dtype=np.uint8)


def only(call: Callable[[Session], object]) -> Artifact:
    (artifact,) = logged(call)
    return artifact


IMAGES: dict[str, tuple[Any, Any]] = {
    "HWC": (RGB, RGB),
    "HW": (RGB[..., 0], RGB[..., :1]),
    "CHW": (np.moveaxis(RGB, -1, 0), RGB),
    "RGBA": (np.dstack([RGB, RGB[..., 0]]), np.dstack([RGB, RGB[..., 0]])),
    "grey and alpha": (RGB[..., :2], RGB[..., :2]),
    "not contiguous": (RGB[::-1, ::2], RGB[::-1, ::2]),
    "bool": (RGB[..., 0] > 100, ((RGB[..., :1] > 100) * 255).astype(np.uint8)),
    "float in 0..1": (RGB / 255, RGB),
    "float32": ((RGB / 255).astype(np.float32), RGB),
    "float in 0..255": (RGB.astype(np.float64), RGB),
    "int64": (RGB.astype(np.int64), RGB),
    "uint16": ((RGB[..., 0].astype(np.uint16) * 257), RGB[..., :1]),
    "negative": (RGB.astype(np.float32) - 300, None),
    "lists": (RGB[..., 0].tolist(), RGB[..., :1]),
    "torch CHW": (torch.from_numpy(np.moveaxis(RGB, -1, 0).copy()), RGB),
    "torch HWC": (torch.from_numpy(RGB.copy()), RGB),
    "torch bfloat16 of a graph": (
        torch.zeros(3, 4, 4, dtype=torch.bfloat16, requires_grad=True) + 1,
        np.full((4, 4, 3), 255),
    ),
    "PIL": (Image.fromarray(RGB), RGB),
    "PIL palette": (Image.fromarray(RGB).convert("P").convert("RGB").convert("P"), None),
    "PIL CMYK": (Image.fromarray(RGB).convert("CMYK"), None),
    "PIL 1 bit": (Image.fromarray(RGB[..., 0] > 100), ((RGB[..., :1] > 100) * 255).astype(np.uint8)),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_every_usual_image_is_kept_as_it_is_seen(root: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    value, expected = IMAGES[kind]
    artifact = only(lambda run: run.image(3, "samples/cat", value))
    assert (artifact.name, artifact.media, artifact.step, artifact.mime) == ("samples/cat", "image", 3, "image/png")
    if expected is not None:
        np.testing.assert_array_equal(artifact.load(), expected)
    height, width = artifact.load().shape[:2]
    assert (artifact.fields["height"], artifact.fields["width"]) == (height, width)
    assert not caplog.records


def test_an_ambiguous_shape_is_read_as_its_library_has_it_unless_it_is_told(root: Path) -> None:
    both = GENERATOR.integers(0, 256, (3, 5, 3), dtype=np.uint8)
    images = logged(
        lambda run: (
            run.image(1, "numpy", both),
            run.image(1, "torch", torch.from_numpy(both)),
            run.image(1, "told", both, layout="CHW"),
        )
    )
    shapes = {image.name: image.load().shape for image in images}
    assert shapes == {"numpy": (3, 5, 3), "torch": (5, 3, 3), "told": (5, 3, 3)}


def test_a_range_is_white_and_black_at_its_ends(root: Path) -> None:
    values = np.array([[-1.0, 0.0, 1.0, np.nan, np.inf]])
    told = only(lambda run: run.image(1, "x", values, value_range=(-1, 1)))
    assert told.load()[0, :, 0].tolist() == [0, 128, 255, 0, 255]
    assert told.fields["nan_count"] == 2


def test_several_images_are_one_grid(root: Path) -> None:
    batch = torch.rand(6, 3, 4, 5)
    images = logged(
        lambda run: (
            run.image(1, "batch", batch),
            run.image(1, "list", [RGB, RGB[..., 0], Image.fromarray(RGB)], columns=3),
            run.image(1, "row", [RGB, np.zeros((2, 2))], columns=9),
        )
    )
    by_name = {image.name: image for image in images}
    assert by_name["batch"].load().shape == (2 * 4 + 2, 3 * 5 + 2 * 2, 3)
    assert by_name["batch"].fields["images"] == 6
    grid = by_name["list"].load()
    np.testing.assert_array_equal(grid[:5, :8], RGB)
    np.testing.assert_array_equal(grid[:5, 20:28], RGB)
    assert by_name["row"].load().shape == (5, 18, 3)


def test_a_file_is_kept_to_the_byte_and_read_at_the_call(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "plot.jpg"
    Image.fromarray(RGB).save(file, "JPEG")
    content = file.read_bytes()

    def log(run: Session) -> None:
        run.image(1, "plot", file)
        file.write_bytes(b"something else")

    artifact = only(log)
    assert artifact.read() == content
    assert (artifact.mime, artifact.path.suffix) == ("image/jpeg", ".jpg")


class Figure:
    """What matplotlib's figures, axes and pyplot itself can do."""

    def savefig(self, target: Any, format: str) -> None:
        assert format == "png"
        Image.fromarray(RGB).save(target, "PNG")


class Axes:
    figure = Figure()


@pytest.mark.parametrize("drawn", [Figure(), Axes()])
def test_a_figure_is_drawn_at_the_call(root: Path, drawn: Any) -> None:
    np.testing.assert_array_equal(only(lambda run: run.image(1, "figure", drawn)).load(), RGB)


def test_what_changes_after_the_call_does_not_show(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    work = MediaQueue._do_next
    monkeypatch.setattr(MediaQueue, "_do_next", lambda self: (held.wait(10), work(self))[1])
    array, tensor, cells = RGB.copy(), torch.ones(4), [[1, np.zeros(2)]]

    def log(run: Session) -> None:
        run.image(1, "image", array)
        run.histogram(1, "weights", tensor)
        run.table(1, "table", columns=["n", "array"], rows=cells)
        array[:] = 0
        tensor.fill_(9)
        cells[0][1][:] = 5  # type: ignore[index]
        cells[0][0] = 7
        held.set()

    image, histogram, table = logged(log)
    np.testing.assert_array_equal(image.load(), RGB)
    assert histogram.load().edges[0] == pytest.approx(0.5) or histogram.load().edges == [1.0, 1.0]
    assert table.load().rows == [[1, [0.0, 0.0]]]


def test_memory_that_is_used_again_mixes_nothing(root: Path) -> None:
    images = GENERATOR.integers(0, 256, (40, 160, 160, 3), dtype=np.uint8)  # of a size whose memory is kept

    def log(run: Session) -> None:
        for step, image in enumerate(images):
            run.image(step, "x", image)
            run.histogram(step, "h", image.astype(np.float32) + step)
            if step % 10 == 0:
                time.sleep(0.05)

    artifacts = logged(log)
    for artifact in artifacts:
        if artifact.media == "image":
            np.testing.assert_array_equal(artifact.load(), images[artifact.step])
        else:
            assert artifact.load().edges[0] >= artifact.step
            assert sum(artifact.load().counts) == images[0].size
    assert len(artifacts) == 80


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_a_tensor_on_a_gpu_is_copied_in_the_order_of_its_stream_and_nobody_waits(dtype: torch.dtype) -> None:
    from linnet.runs.media.capture import copy_array

    image, busy = torch.zeros(3, 256, 256, dtype=dtype, device="cuda"), torch.rand(8192, 8192, device="cuda")
    image += 0  # loading a kernel waits for the GPU
    copy_array(image).numbers()
    with torch.cuda.stream(torch.cuda.Stream()):
        busy = (busy @ busy).clamp_(0, 1)  # what the first product of a stream sets up
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(100):
            busy = (busy @ busy).clamp_(0, 1)
        image += 7  # after all of that
        copied = copy_array(image)
        image += 5
        called = time.perf_counter() - began
        assert (copied.numbers() == 7).all()
        waited = time.perf_counter() - began
    assert called < waited / 4


TABLES: dict[str, dict[str, Any]] = {
    "columns and rows": {"columns": ["a", "b"], "rows": [(1, "x"), (2, "y")]},
    "list of mappings": {"data": [{"a": 1, "b": "x"}, {"b": "y", "a": 2}]},
    "mapping of columns": {"data": {"a": np.array([1, 2]), "b": ["x", "y"]}},
    "records": {"data": np.array([(1, "x"), (2, "y")], dtype=[("a", "i4"), ("b", "U1")])},
    "rows and columns": {"data": [[1, "x"], [2, "y"]], "columns": ["a", "b"]},
}


@pytest.mark.parametrize("form", TABLES)
def test_a_table_in_every_usual_form(root: Path, form: str) -> None:
    artifact = only(lambda run: run.table(2, "errors", **TABLES[form]))
    assert artifact.load().columns == ["a", "b"]
    assert artifact.load().rows == [[1, "x"], [2, "y"]]
    assert (artifact.fields["rows"], artifact.fields["columns"]) == (2, 2)


def test_a_table_of_an_array_of_arrow_and_of_a_frame(root: Path) -> None:
    import pyarrow

    class Frame:  # as pandas has it
        columns = ("a", "b")

        def itertuples(self, index: bool, name: None) -> Any:
            return iter([(1, float("nan")), (2, "y")])

    array, arrow, frame = logged(
        lambda run: (
            run.table(1, "array", np.eye(2), columns=["x", "y"]),
            run.table(1, "arrow", pyarrow.table({"a": [1, None]})),
            run.table(1, "frame", Frame()),
        )
    )
    assert array.load().rows == [[1.0, 0.0], [0.0, 1.0]]
    assert (arrow.load().columns, arrow.load().rows) == (["a"], [[1], [None]])
    assert frame.load().rows[0][1] != frame.load().rows[0][1]  # NaN comes back
    assert array.load().to_csv() == "x,y\r\n1.0,0.0\r\n0.0,1.0\r\n"


def test_a_long_table_is_cut_and_says_so(root: Path) -> None:
    artifact = only(lambda run: run.table(1, "long", ([i] for i in range(30_000)), columns=["i"]))
    assert len(artifact.load().rows) == artifact.fields["rows"] == 10_000
    assert artifact.fields["cut"] is True


def test_histograms_of_values_and_of_counts(root: Path) -> None:
    values = GENERATOR.normal(size=(100, 30)).astype(np.float32)
    counts, edges = np.histogram(values, 10)
    odd = np.array([1.0, np.nan, np.inf, 1.0])
    of_values, of_counts, of_odd, of_empty, of_ends = logged(
        lambda run: (
            run.histogram(1, "values", values, bins=10),
            run.histogram(1, "counts", (counts, edges)),
            run.histogram(1, "odd", odd),
            run.histogram(1, "empty", []),
            run.histogram(1, "ends", np.array([-1.7e308, 1.7e308, 5e-324])),
        )
    )
    assert of_values.load().counts == of_counts.load().counts == counts.tolist()
    np.testing.assert_allclose(of_values.load().edges, edges, rtol=1e-6)
    assert of_values.fields["count"] == 3000
    assert sum(of_odd.load().counts) == 2
    assert of_odd.fields["nan_count"] == 2
    assert sum(of_empty.load().counts) == 0
    assert sum(of_ends.load().counts) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8, np.int32])
def test_sound_is_a_wav_file_that_python_plays_back(root: Path, dtype: Any) -> None:
    tone = np.sin(np.arange(8000) / 5) * 0.5
    scaled = {np.int16: 32767, np.int32: 2**31 - 1, np.uint8: 127}.get(dtype, 1) * tone
    samples = (scaled + (128 if dtype == np.uint8 else 0)).astype(dtype)
    artifact = only(lambda run: run.audio(4, "voice", samples, 8000))
    with wave.open(str(artifact.path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (8000, 1, 8000)
    assert artifact.fields["seconds"] == 1.0
    np.testing.assert_allclose(artifact.load().samples[:, 0], tone, atol=0.02)


def test_channels_of_sound_may_come_first_or_last(root: Path) -> None:
    stereo = GENERATOR.uniform(-1, 1, (100, 2))
    last, first = logged(
        lambda run: (run.audio(1, "last", stereo, 100), run.audio(1, "first", torch.from_numpy(stereo.T.copy()), 100))
    )
    np.testing.assert_array_equal(last.load().samples, first.load().samples)
    assert last.sha256 == first.sha256


def test_texts_of_any_kind(root: Path) -> None:
    plain, other, torn = logged(
        lambda run: (run.text(1, "a", "näive\n漢"), run.text(1, "b", 5), run.text(1, "c", "x\ud800"))  # type: ignore[arg-type]
    )
    assert (plain.load(), other.load(), torn.load()) == ("näive\n漢", "5", "x?")


def test_the_same_content_is_kept_once(root: Path) -> None:
    artifacts = logged(lambda run: [run.image(step, f"image {step % 2}", RGB) for step in range(10)])
    assert len(artifacts) == 10
    assert len({artifact.path for artifact in artifacts}) == 1
    path = artifacts[0].path
    assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest() == artifacts[0].sha256
    assert path.parent.parent == root / "a" / "artifacts" / "media"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/abs", ".", "a/b c", "\x1b[31m\0", "漢字", "\ud800", "", "x" * 5000, None]
)
def test_a_name_may_be_anything(root: Path, name: Any) -> None:
    artifact = only(lambda run: run.image(1, name, RGB))
    assert artifact.path.is_relative_to(root / "a" / "artifacts" / "media")
    assert 0 < len(artifact.name) <= 200
    if name in ("a/b c", "漢字", "../../etc/passwd"):
        assert artifact.name == name
    assert {path.name for path in (root / "a").iterdir()} == {"run.json", "events.jsonl", "artifacts"}


def test_without_a_step_it_is_the_one_logged_last(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.image(None, "x", RGB)
        run.log(7, loss=1.0)
        run.image(None, "x", RGB)
        run.image(np.int64(8), "x", RGB)
        run.image("nine", "x", RGB)  # type: ignore[arg-type]
    assert [artifact.step for artifact in linnet.open("a").artifacts("x")] == [None, 7, 8, 7]
    assert "the step 'nine' is no whole number" in caplog.text


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda run: run.image(1, "x", np.zeros((2, 5, 6, 7))), "1 to 4 channels"),
        (lambda run: run.image(1, "x", np.zeros((0, 3))), "expected an image"),
        (lambda run: run.image(1, "x", np.zeros(3)), "2 to 4 dimensions"),
        (lambda run: run.image(1, "x", "no such file.png"), "no such file.png"),
        (lambda run: run.image(1, "x", b"no image"), "expected a PNG, JPEG"),
        (lambda run: run.image(1, "x", []), "an empty list"),
        (lambda run: run.image(1, "x", object()), "expected numbers"),
        (lambda run: run.image(1, "x", np.zeros((1 << 13, 1 << 14), np.float32)), "at most 64 MB"),
        (lambda run: run.image(1, "x", RGB, layout="WHC"), "layout"),
        (lambda run: run.image(1, "x"), "missing 1 required"),
        (lambda run: run.audio(1, "x", np.zeros(5)), "rate"),
        (lambda run: run.audio(1, "x", np.zeros((100, 100)), 5), "8 channels"),
        (lambda run: run.histogram(1, "x", "abc"), "expected numbers"),
        (lambda run: run.histogram(1, "x", ([1, 2], [1, 2])), "one edge more"),
        (lambda run: run.table(1, "x"), "expected rows"),
        (lambda run: run.table(1, "x", 5), "expected rows"),
    ],
)
def test_what_cannot_be_kept_is_warned_about_once_and_nothing_raises(
    root: Path, call: Callable[[Any], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert logged(lambda run: (call(run), call(run))) == []
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert why in warnings[0]
