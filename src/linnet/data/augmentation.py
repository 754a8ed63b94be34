"""How training images are varied, as data: every field is a flag of `linnet train vit-tiny`. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, fields

from linnet.errors import UsageError


@dataclass(frozen=True)
class Augmentation:
    """Every image is varied anew each time it is shown; 0 turns a variation off.

    Args:
        shift: Move by up to this share of the image's side.
        rotate: Turn by up to so many degrees.
        zoom: Grow or shrink by up to this share.
        shear: Slant by up to this share.
        crop: Cut out and enlarge a part of at least this share of the area; 0: the whole image.
        flip: The share of images that are mirrored; never right for digits or letters.
        rand_augment: So many variations of brightness, contrast, colour or place for each image, picked at random.
        magnitude: How strong those are, from 0 to 10.
        erase: The share of images in which a rectangle is blanked out.
        mixup: The share of images that are blended with another, and their labels with its.
        cutmix: The share of images of which a rectangle is replaced by another's, and their labels in proportion.
        label_smoothing: How much of a label's certainty is shared out to all classes.
    """

    shift: float = 0.0
    rotate: float = 0.0
    zoom: float = 0.0
    shear: float = 0.0
    crop: float = 0.0
    flip: float = 0.0
    rand_augment: int = 0
    magnitude: float = 9.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        limits = {"rotate": 180.0, "rand_augment": 10.0, "magnitude": 10.0, "label_smoothing": 0.99, "zoom": 0.9}
        for field in fields(self):
            if field.name not in Augmentation.__dataclass_fields__:
                continue
            value, most = getattr(self, field.name), limits.get(field.name, 1.0)
            if not 0 <= value <= most:
                raise UsageError(f"`{field.name}` must be from 0 to {most:g}, found {value:g}")
        if self.mixup + self.cutmix > 1:
            raise UsageError(f"`mixup={self.mixup:g}` and `cutmix={self.cutmix:g}` are shares: together at most 1")

    @property
    def moves(self) -> bool:
        """Does it change where things are?"""
        return any((self.shift, self.rotate, self.zoom, self.shear, self.crop, self.flip, self.rand_augment))

    @property
    def mixes(self) -> bool:
        """Does a label become shares of several?"""
        return bool(self.mixup or self.cutmix or self.label_smoothing)
