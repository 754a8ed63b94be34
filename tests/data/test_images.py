"""Images come from folders, IDX files, arrays and scikit-learn; what is wrong with them is said by name."""

from __future__ import annotations

import gzip
import io
import os
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import sklearn.datasets
from PIL import Image

from linnet.data import DataError
from linnet.data.image_files import read_image
from linnet.data.images import load_images, native_size


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_idx(path: Path, array: np.ndarray, magic: int | None = None) -> Path:
    head = (0x800 + array.ndim if magic is None else magic).to_bytes(4, "big")
    raw = head + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def idx_folder(folder: Path, end: str = "") -> Path:
    folder.mkdir()
    for part, count in (("train", 30), ("t10k", 10)):
        write_idx(folder / f"{part}-images-idx3-ubyte{end}", noise(count, 6, 6))
        write_idx(folder / f"{part}-labels-idx1-ubyte{end}", np.arange(count) % 3)
    return folder


def class_folders(folder: Path, classes: dict[str, list[Image.Image]]) -> Path:
    for name, pictures in classes.items():
        (folder / name).mkdir(parents=True)
        for number, each in enumerate(pictures):
            each.save(folder / name / f"{number}.png")
    return folder


def plain(colour: str, size: tuple[int, int] = (20, 12)) -> Image.Image:
    return Image.new("RGB", size, colour)


def test_the_digits_are_there_without_a_download() -> None:
    digits = load_images("digits")
    assert (len(digits.train), len(digits.held_out)) == (1438, 359)
    assert digits.train.images_NCHW.shape[1:] == (1, 8, 8)
    assert digits.labels == tuple("0123456789")
    assert digits.train.images_NCHW.max() == 255
    theirs = sklearn.datasets.load_digits()
    both = np.concatenate([digits.train.images_NCHW, digits.held_out.images_NCHW])
    assert sorted(image.tobytes() for image in both) == sorted(
        ((image.astype(np.int64) * 255 + 8) // 16).astype(np.uint8).tobytes() for image in theirs.images
    )


def test_the_same_images_are_held_out_every_time() -> None:
    one, two = load_images("digits"), load_images("digits")
    assert one.fingerprint == two.fingerprint
    assert np.array_equal(one.held_out.images_NCHW, two.held_out.images_NCHW)
    assert load_images("digits", held_out=0.5).fingerprint != one.fingerprint


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_files_have_a_test_set_of_their_own(tmp_path: Path, end: str) -> None:
    folder = idx_folder(tmp_path / "idx", end)
    images = load_images(str(folder))
    assert (len(images.train), len(images.held_out), images.size, images.channels) == (30, 10, 6, 1)
    assert np.array_equal(images.held_out.images_NCHW[:, 0], noise(10, 6, 6))
    assert native_size(str(folder)) == 6
    alone = load_images(str(folder / f"train-images-idx3-ubyte{end}"), held_out=0.1)
    assert (len(alone.train), len(alone.held_out)) == (27, 3)


def test_a_file_and_its_packed_copy_are_the_same_images(tmp_path: Path) -> None:
    folder = idx_folder(tmp_path / "idx")
    idx_file = folder / "train-images-idx3-ubyte"
    (folder / (idx_file.name + ".gz")).write_bytes(gzip.compress(idx_file.read_bytes()))
    assert len(load_images(str(folder)).train) == 30


@pytest.mark.parametrize("names", [("x_train", "y_train", "x_test", "y_test"), ("images", "labels")])
def test_arrays_come_from_npz(tmp_path: Path, names: tuple[str, ...]) -> None:
    arrays = [noise(20, 8, 8, 3), np.arange(20)[:, None] % 4, noise(8, 8, 8, 3), np.arange(8)[:, None] % 4]
    np.savez(tmp_path / "set.npz", **dict(zip(names, arrays, strict=False)))
    images = load_images(str(tmp_path / "set.npz"), held_out=0.25)
    assert len(images.train) == (20 if len(names) == 4 else 15)
    assert (images.channels, images.size, len(images.labels)) == (3, 8, 4)
    first = images.train.images_NCHW[0].transpose(1, 2, 0)
    assert any(np.array_equal(first, image) for image in arrays[0])
    assert native_size(str(tmp_path / "set.npz")) == 8


def test_folders_are_classes_and_pictures_become_squares(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"10": [plain("red")] * 3, "9": [plain("blue")] * 3, "a": [plain("lime")]})
    images = load_images(str(folder), size=8, held_out=0.3)
    assert images.labels == ("9", "10", "a")
    assert (images.size, images.channels) == (8, 3)
    reds = images.train.images_NCHW[images.train.labels_N == 1]
    assert np.array_equal(reds[0], np.broadcast_to(np.array([255, 0, 0])[:, None, None], (3, 8, 8)))
    assert native_size(str(folder)) is None


def test_labels_have_one_order_whatever_folders_are_called(tmp_path: Path) -> None:
    names = ["0001", "001", "01", "1", "2", "a"]
    folder = class_folders(tmp_path / "set", {name: [plain("red")] * 2 for name in names})
    assert load_images(str(folder), size=4).labels == tuple(names)


def test_hidden_folders_are_not_looked_at(tmp_path: Path) -> None:
    """Such as those in which notebooks and file managers keep copies and small pictures."""
    folder = class_folders(tmp_path / "set", {"cat": [plain("red")] * 2, "dog": [plain("blue")] * 2})
    class_folders(folder / "dog", {".ipynb_checkpoints": [plain("blue")], "more": [plain("blue")]})
    images = load_images(str(folder), size=4)
    assert len(images.train) + len(images.held_out) == 5


def test_folders_may_be_split_into_train_and_test(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("val", 2)):
        class_folders(tmp_path / "set" / part, {"cat": [plain("red")] * count, "dog": [plain("blue")] * count})
    images = load_images(str(tmp_path / "set"), size=4)
    assert (len(images.train), len(images.held_out), images.labels) == (8, 4, ("cat", "dog"))


def test_images_are_scaled_and_recoloured_as_asked(tmp_path: Path) -> None:
    folder = idx_folder(tmp_path / "idx")
    images = load_images(str(folder), size=12, channels=3)
    assert images.train.images_NCHW.shape == (30, 3, 12, 12)
    assert np.array_equal(images.train.images_NCHW[:, 0], images.train.images_NCHW[:, 2])
    np.savez(tmp_path / "wide.npz", images=noise(6, 10, 20, 3), labels=np.arange(6) % 2)
    grey = load_images(str(tmp_path / "wide.npz"), channels=1)
    assert grey.train.images_NCHW.shape[1:] == (1, 10, 10)


def test_the_brightness_of_the_training_images_is_known() -> None:
    images = load_images("digits")
    mean, std = images.brightness()
    pixels = images.train.images_NCHW / 255
    assert mean[0] == pytest.approx(pixels.mean(), abs=1e-4)
    assert std[0] == pytest.approx(pixels.std(), abs=1e-4)


# Every mode that a file can have, and what its left half must look like.
MODES: dict[str, tuple[Callable[[], Image.Image], tuple[int, ...]]] = {
    "grey": (lambda: Image.new("L", (16, 16), 200), (200,)),
    "one bit": (lambda: Image.new("1", (16, 16), 1), (255,)),
    "colour": (lambda: plain("#102030", (16, 16)), (16, 32, 48)),
    "palette": (lambda: plain("#102030", (16, 16)).convert("P", palette=Image.Palette.ADAPTIVE), (16, 32, 48)),
    "transparent": (lambda: Image.new("RGBA", (16, 16), (255, 0, 0, 0)), (255, 255, 255)),
    "half transparent": (lambda: Image.new("RGBA", (16, 16), (255, 0, 0, 128)), (255, 127, 127)),
    "grey with alpha": (lambda: Image.new("LA", (16, 16), (0, 0)), (255,)),
    "16 bits": (lambda: Image.fromarray(np.full((16, 16), 0x80FF, np.uint16)), (128,)),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_read(tmp_path: Path, mode: str) -> None:
    make, expected = MODES[mode]
    make().save(tmp_path / "image.png")
    pixels = read_image(tmp_path / "image.png", 16)
    assert pixels.shape == (len(expected), 16, 16)
    assert np.abs(pixels[:, 8, 4].astype(int) - expected).max() <= 1
    assert read_image(tmp_path / "image.png", 8, channels=3).shape == (3, 8, 8)
    assert read_image(tmp_path / "image.png", 8, channels=1).shape == (1, 8, 8)


def test_cmyk_and_the_way_a_camera_was_held_are_followed(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "print.jpg", quality=95)
    assert np.abs(read_image(tmp_path / "print.jpg", 8)[:, 4, 4].astype(int) - [255, 0, 0]).max() < 12
    upright = Image.new("RGB", (16, 16), "black")
    upright.paste((255, 255, 255), (0, 0, 16, 8))  # white above
    exif = Image.Exif()
    exif[0x0112] = 3  # it was held upside down
    upright.save(tmp_path / "turned.png", exif=exif)
    pixels = read_image(tmp_path / "turned.png", 16)
    assert pixels[0, 2, 8] == 0
    assert pixels[0, 13, 8] == 255


def test_what_is_no_image_is_named_skipped_and_counted(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": [plain("red")] * 4, "dog": [plain("blue")] * 4})
    (folder / "cat" / "notes.txt").write_text("not an image")
    whole = (folder / "dog" / "0.png").read_bytes()
    (folder / "dog" / "torn.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "empty.png").write_bytes(b"")
    (folder / "dog" / ".hidden").write_bytes(b"")
    images = load_images(str(folder), size=8)
    assert len(images.train) + len(images.held_out) == 8
    assert [Path(why.partition(":")[0]).name for why in images.skipped] == ["notes.txt", "empty.png", "torn.png"]
    with pytest.raises(DataError, match=r"notes.txt: not an image that can be read"):
        load_images(str(folder), size=8, strict=True)


HOSTILE = {
    "vast": "images is damaged: its head states uint8 1000000000 × 8 × 8, and it holds 0 bytes",
    "no-arrays": "images is not an array of numpy",
    "deflate": "cannot be read as .npz: ",
    "nested": "images is not an array of numpy",
    "locked": "cannot be read as .npz: ",
}


def hostile_archives(images: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """Archives whose arrays are not what they seem."""

    def archive(first: bytes, second: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w", how) as file:
            file.writestr("images.npy", first)
            file.writestr("labels.npy", second)
        return whole.getvalue()

    def array(values: np.ndarray) -> bytes:
        whole = io.BytesIO()
        np.save(whole, values)
        return whole.getvalue()

    def head(text: str) -> bytes:
        return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()

    vast = head("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000, 8, 8), }".ljust(117) + "\n")
    good = archive(array(images), array(labels), zipfile.ZIP_DEFLATED)
    locked = bytearray(good)
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # a bit that says: encrypted
        locked[locked.index(mark) + flags] |= 1
    at = good.index(b"images.npy") + 40
    return {
        "vast": archive(vast, array(labels)),
        "no-arrays": archive(b"hello", b"world"),
        "deflate": good[:at] + bytes(30) + good[at + 30 :],
        "nested": archive(head("(" * 9000 + "\n"), array(labels)),
        "locked": bytes(locked),
    }


def bad_sets(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Sources that cannot be trained on, and what must be said of them."""
    found: dict[str, tuple[str, str]] = {}
    good, labels = noise(6, 4, 4), np.arange(6) % 2

    def idx(name: str, pixels: np.ndarray, numbers: np.ndarray, **magic: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        write_idx(folder / "train-images-idx3-ubyte", pixels, magic.get("images"))
        write_idx(folder / "train-labels-idx1-ubyte", numbers, magic.get("labels"))
        return folder

    found["magic"] = (
        str(idx("magic", good, labels, images=0x1234)),
        "expected the magic number 0x00000803, found 0x00001234",
    )
    found["label magic"] = (str(idx("lmagic", good, labels, labels=0x803)), "expected the magic number 0x00000801")
    cut = idx("cut", good, labels) / "train-images-idx3-ubyte"
    cut.write_bytes(cut.read_bytes()[:-5])
    found["truncated"] = (str(cut.parent), "truncated: expected 6 × 4 × 4 = 96 bytes, found 91")
    found["counts"] = (str(idx("counts", good, np.arange(5) % 2)), "has 6 images and train-labels-idx1-ubyte 5 labels")
    found["one class"] = (str(idx("one", good, np.zeros(6))), "a classifier needs two classes at least, found one: 0")
    lonely = idx("lonely", good, labels)
    (lonely / "train-labels-idx1-ubyte").unlink()
    found["no labels"] = (str(lonely), "its labels are not there: expected train-labels-idx1-ubyte")
    torn = tmp_path / "torn"
    torn.mkdir()
    packed = write_idx(torn / "train-images-idx3-ubyte.gz", good)
    packed.write_bytes(packed.read_bytes()[:-20])
    write_idx(torn / "train-labels-idx1-ubyte", labels)
    found["torn gzip"] = (str(torn), "cannot be read")
    empty = class_folders(tmp_path / "empty", {"cat": [plain("red")], "dog": []})
    found["empty class"] = (str(empty), "dog: the folder of a class is empty or missing")
    found["one folder"] = (str(class_folders(tmp_path / "single", {"cat": [plain("red")]})), "found one: cat")
    (tmp_path / "flat").mkdir()
    plain("red").save(tmp_path / "flat" / "a.png")
    found["no folders"] = (str(tmp_path / "flat"), "expected a folder for each class")
    found["nowhere"] = (str(tmp_path / "nowhere"), "there are no images at")
    (tmp_path / "text.txt").write_text("hello")
    found["text"] = (str(tmp_path / "text.txt"), "not a folder, an IDX file")
    (tmp_path / "broken.npz").write_bytes(b"PK broken")
    found["npz"] = (str(tmp_path / "broken.npz"), "cannot be read as .npz")
    np.savez(tmp_path / "names.npz", a=good)
    found["npz names"] = (str(tmp_path / "names.npz"), "expected arrays images and labels, or x_train")
    np.savez(tmp_path / "floats.npz", images=good / 255.0, labels=labels)
    found["npz floats"] = (str(tmp_path / "floats.npz"), "expected bytes, N × H × W")
    np.savez(tmp_path / "negative.npz", images=good, labels=labels - 1)
    found["negative"] = (str(tmp_path / "negative.npz"), "label -1 of image 0 is out of range: expected 0 to 0")
    np.savez(tmp_path / "all-negative.npz", images=good, labels=labels - 5)
    found["all negative"] = (
        str(tmp_path / "all-negative.npz"),
        "label -5 of image 0 is out of range: expected 0 or more",
    )
    np.savez(tmp_path / "huge.npz", images=good, labels=labels.astype(np.uint64) + np.uint64(2**64 - 2))
    found["huge"] = (str(tmp_path / "huge.npz"), "label 18446744073709551615 is out of range: are these labels?")
    np.savez(tmp_path / "large.npz", images=good, labels=np.where(labels, 2**62, 0))
    found["large"] = (str(tmp_path / "large.npz"), "would make 4,611,686,018,427,387,905 classes: are these labels?")
    np.save(tmp_path / "one.npy", good)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    found["npy"] = (str(tmp_path / "one.npz"), "it is a single array (.npy): save images and labels together")
    (tmp_path / "words.npz").write_text("not an archive at all")
    found["words"] = (str(tmp_path / "words.npz"), "cannot be read as .npz: File is not a zip file")
    np.savez(tmp_path / "objects.npz", images=good, labels=np.array([{}] * 6, object))
    found["objects"] = (str(tmp_path / "objects.npz"), "labels holds objects of Python, which are not read")
    np.savez(tmp_path / "short.npz", images=good, labels=labels[:-1])
    found["short"] = (str(tmp_path / "short.npz"), "6 images and 5 labels do not belong together")
    for name, content in hostile_archives(good, labels).items():
        (tmp_path / f"{name}.npz").write_bytes(content)
        found[name] = (str(tmp_path / f"{name}.npz"), f"{name}.npz: {HOSTILE[name]}")
    np.savez(tmp_path / "fractions.npz", images=good, labels=labels / 2)
    found["fractions"] = (str(tmp_path / "fractions.npz"), "expected a whole number a label")
    return found


def test_every_bad_set_is_refused_by_name(tmp_path: Path) -> None:
    for name, (source, message) in bad_sets(tmp_path).items():
        with pytest.raises(DataError) as caught:
            load_images(source)
        assert message in str(caught.value), name
        assert Path(source).name in str(caught.value), name


def test_what_is_packed_is_held_against_its_head_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = idx_folder(tmp_path / "idx", ".gz")
    bomb = (0x803).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (30, 6, 6))
    packed = gzip.compress(bomb) + gzip.compress(bytes(1 << 20)) * 4000  # 4 GB behind a head of 30 × 6 × 6
    (folder / "train-images-idx3-ubyte.gz").write_bytes(packed)
    with pytest.raises(DataError, match="too long: expected 30 × 6 × 6 = 1,080 bytes, found more"):
        load_images(str(folder))
    vast = bytes.fromhex("00000803" + "ff" * 12)
    for name, content in (("", vast), (".gz", gzip.compress(vast))):
        (folder / f"train-images-idx3-ubyte{name}").write_bytes(content)
        with pytest.raises(DataError, match="truncated: expected 4294967295 × 4294967295 × 4294967295"):
            native_size(str(folder / f"train-images-idx3-ubyte{name}"))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    np.savez_compressed(tmp_path / "many.npz", images=np.zeros((20, 8, 8), np.uint8), labels=np.arange(20) % 4)
    with pytest.raises(DataError, match=r"its arrays, uint8 20 × 8 × 8, take 0.0 GB, and 0.0 GB are free"):
        load_images(str(tmp_path / "many.npz"))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz: 10 × 6 × 6 take 0.0 GB, and 0.0 GB are free"):
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=100))
        load_images(str(folder / "t10k-images-idx3-ubyte.gz"))


def test_thin_and_huge_pictures_are_read_in_little_memory_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = class_folders(tmp_path / "set", {"cat": [plain("red")] * 4, "dog": [plain("blue")] * 4})
    Image.new("L", (3_000_000, 1), 200).save(folder / "cat" / "thin.png")
    Image.new("RGB", (1, 100_000), "lime").save(folder / "dog" / "high.png")
    wide = Image.new("1", (13_000, 13_000))
    wide.save(folder / "dog" / "huge.png")
    scaled: list[tuple[int, int]] = []
    resize = Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, to, how: scaled.append(to) or resize(self, to, how))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = load_images(str(folder), size=64)
        assert np.array_equal(read_image(folder / "cat" / "thin.png", 64), np.full((1, 64, 64), 200, np.uint8))
    assert max(width * height for width, height in scaled) == 64 * 64 * 64
    assert len(images.train) + len(images.held_out) == 10
    (left_out,) = images.skipped
    assert "huge.png: 13,000 × 13,000 pixels are more than the 134,217,728 that are read of an image" in left_out


@pytest.mark.parametrize("shape", [(20, 12), (12, 20), (7, 7), (3, 48), (300, 41), (64, 1024), (16, 1), (128, 2)])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1"])
def test_ordinary_pictures_have_the_pixels_they_always_had(tmp_path: Path, shape: tuple[int, int], mode: str) -> None:
    made = Image.fromarray(noise(shape[1], shape[0], 3)).convert(mode)
    made.save(tmp_path / "a.png")
    for size in (8, 13, 64):
        picture = Image.open(tmp_path / "a.png").copy()
        if mode == "RGBA":
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        picture = picture.convert("L" if mode in ("L", "1") else "RGB")
        scale = size / min(shape)
        wide, high = max(size, round(shape[0] * scale)), max(size, round(shape[1] * scale))
        scaled = picture.resize((wide, high), Image.Resampling.BILINEAR) if scale != 1 else picture
        left, top = (wide - size) // 2, (high - size) // 2
        pixels = np.array(scaled.crop((left, top, left + size, top + size)))
        expected = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        assert np.array_equal(read_image(tmp_path / "a.png", size), expected)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match="not an image that can be read: it is neither file nor folder"):
        read_image(tmp_path / "pipe.png", 8)


def test_whatever_a_decoder_stumbles_over_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain("red").save(tmp_path / "a.png")
    for error, words in (
        (struct.error("unpack"), "unpack"),
        (MemoryError(), "there is not enough memory"),
        (KeyError(), "KeyError"),
    ):
        monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", MagicMock(side_effect=error))
        with pytest.raises(DataError, match=f"a.png: not an image that can be read: {words}"):
            read_image(tmp_path / "a.png", 8)
    (tmp_path / "b.png").write_text("not an image")
    with pytest.raises(DataError, match=r"b.png: not an image that can be read: its format is not known$"):
        read_image(tmp_path / "b.png", 8)


def test_labels_beyond_the_classes_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label 5 of image 5 is out of range: expected 0 to 4 \(\d+ such\)"):
        load_images("digits", num_classes=5)
    assert len(load_images("digits", num_classes=12).labels) == 12
    with pytest.raises(DataError, match="`held_out` is a share"):
        load_images("digits", held_out=1.5)


def test_without_pillow_or_scikit_learn_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = class_folders(tmp_path / "set", {"cat": [plain("red")], "dog": [plain("blue")]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for source in (str(folder), "digits"):
        with pytest.raises(DataError, match=r"not installed: pip install 'linnet\[vision\]'"):
            load_images(source)


def test_reading_the_digits_does_not_load_scikit_learn(tmp_path: Path) -> None:
    program = (
        "from linnet.data.images import load_images; load_images('digits')\nimport sys; print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
