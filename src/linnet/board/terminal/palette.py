"""How each style looks: dark, light, or without colour."""

from __future__ import annotations

from functools import cache

from rich.style import Style

DARK, LIGHT, PLAIN = "dark", "light", "plain"

_RUNS = {
    DARK: ("#4fc3d9", "#e0a458", "#8ccf7e", "#c792ea", "#e67e80", "#7aa2f7", "#d9c668", "#a9b4c2"),
    LIGHT: ("#0b7285", "#b35900", "#2f7d32", "#8250df", "#c92a2a", "#1c4fd6", "#8a6d00", "#57606a"),
}
_COLOURS = {
    DARK: {
        "ground": "#10141a",
        "text": "#c8d0d9",
        "strong": "#eef2f6",
        "dim": "#7f8b99",
        "faint": "#39424e",
        "raised": "#1c232d",
        "key": "#8ab4f8",
        "good": "#7fc97a",
        "done": "#7aa2f7",
        "care": "#d9b44a",
        "bad": "#e67e80",
    },
    LIGHT: {
        "ground": "#fcfcfa",
        "text": "#2a3037",
        "strong": "#101418",
        "dim": "#6b7580",
        "faint": "#d3d8de",
        "raised": "#eceff2",
        "key": "#0a58ca",
        "good": "#1f7a34",
        "done": "#1c4fd6",
        "care": "#8a6100",
        "bad": "#b3261e",
    },
}
_LOOKS: dict[str, tuple[str, str]] = {  # style: colour, and what is done besides
    "": ("text", ""),
    "dim": ("dim", "dim"),
    "faint": ("faint", "dim"),
    "axis": ("dim", "dim"),
    "border": ("faint", "dim"),
    "focus": ("strong", "bold"),
    "title": ("strong", "bold"),
    "brand": ("strong", "bold"),
    "group": ("dim", "bold"),
    "key": ("key", "bold"),
    "code": ("key", ""),
    "prompt": ("dim", "dim"),
    "head": ("dim", "underline"),
    "head.on": ("strong", "bold underline"),
    "notice": ("care", "bold"),
    "warning": ("care", ""),
    "error": ("bad", "bold"),
    "mark": ("care", "bold"),
    "graph": ("done", ""),
    "progress": ("good", ""),
    "cursor.line": ("care", ""),
    "bar.ok": ("good", ""),
    "bar.warn": ("care", ""),
    "bar.high": ("bad", "bold"),
    "bar.system": ("done", ""),
    "bar.empty": ("faint", "dim"),
    "tab": ("dim", ""),
    "tab.key": ("key", "underline"),
    "tab.on": ("strong", "bold reverse"),
    "tab.on.key": ("strong", "bold underline reverse"),
    "status.live": ("good", "bold"),
    "status.completed": ("done", ""),
    "status.interrupted": ("care", ""),
    "status.aborted": ("bad", "bold"),
    "status.errored": ("bad", "bold"),
    "status.crashed": ("bad", "bold"),
    "status.stalled": ("care", "bold"),
    "status.gone": ("bad", "bold"),
}


@cache
def look(style: str, theme: str) -> Style:
    """A style as the terminal gets it."""
    if theme == PLAIN:
        return _plain(style)
    colours = _COLOURS[theme]
    ground = colours["ground"]
    if style.startswith("run"):
        name, _, how = style.partition(".")
        colour = _RUNS[theme][int(name[3:])]
        if how == "block":
            return Style(color=ground, bgcolor=colour, bold=True)
        return Style(color=_mixed(colour, ground, 0.36) if how == "raw" else colour, bgcolor=ground)
    if style == "row.on":
        return Style(color=colours["strong"], bgcolor=colours["raised"], bold=True)
    if style.startswith("tab.on"):
        return Style(color=colours["strong"], bgcolor=colours["raised"], bold=True, underline=style.endswith("key"))
    here = style.endswith(".on") and not style.startswith("head")
    colour, extra = _LOOKS.get(style.removesuffix(".on") if here else style, _LOOKS[""])
    behind = colours["raised"] if here else ground
    wanted = set(extra.split()) - {"dim"}
    return Style(color=colours[colour], bgcolor=behind, bold="bold" in wanted, underline="underline" in wanted)


def _plain(style: str) -> Style:
    """Without colour: bold, dim, underlined and reversed text do its work."""
    if style.startswith("run"):
        how = style.partition(".")[2]
        return Style(dim=how == "raw" or None, reverse=how == "block" or None)
    if style == "row.on" or (style.endswith(".on") and not style.startswith(("head", "tab"))):
        return Style(reverse=True)
    extra = set(_LOOKS.get(style, ("", ""))[1].split())
    bold, dim, underline, reverse = (name in extra or None for name in ("bold", "dim", "underline", "reverse"))
    return Style(bold=bold, dim=dim, underline=underline, reverse=reverse)


def colours(theme: str) -> dict[str, str]:
    """The colours of a theme by name."""
    return _COLOURS[theme]


def _mixed(colour: str, ground: str, share: float) -> str:
    """A colour brought near the ground it stands on."""
    pairs = zip((colour[1:3], colour[3:5], colour[5:7]), (ground[1:3], ground[3:5], ground[5:7]), strict=True)
    return "#" + "".join(f"{round(int(a, 16) * share + int(b, 16) * (1 - share)):02x}" for a, b in pairs)
