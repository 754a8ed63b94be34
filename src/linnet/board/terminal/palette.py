"""How each style looks: dark, light, or without colour."""

from __future__ import annotations

from functools import cache, lru_cache

from rich.style import Style

from linnet.board.figure.colours import mixed

DARK, LIGHT, PLAIN = "dark", "light", "plain"

_RUNS = {
    DARK: ("#4fc3d9", "#e0a458", "#8ccf7e", "#c792ea", "#e67e80", "#7aa2f7", "#d9c668", "#a9b4c2"),
    LIGHT: ("#0b7285", "#b35900", "#2f7d32", "#8250df", "#c92a2a", "#1c4fd6", "#8a6d00", "#57606a"),
}
_COLOURS = {  # dark, light
    "ground": ("#10141a", "#fcfcfa"),
    "text": ("#c8d0d9", "#2a3037"),
    "strong": ("#eef2f6", "#101418"),
    "dim": ("#7f8b99", "#6b7580"),
    "faint": ("#39424e", "#d3d8de"),
    "raised": ("#1c232d", "#eceff2"),
    "key": ("#8ab4f8", "#0a58ca"),
    "good": ("#7fc97a", "#1f7a34"),
    "done": ("#7aa2f7", "#1c4fd6"),
    "care": ("#d9b44a", "#8a6100"),
    "bad": ("#e67e80", "#b3261e"),
}
_STYLES = {  # colour and, of its attributes, those that do its work where there is no colour; the styles that look so
    ("dim", "dim"): "dim axis prompt baseline",
    ("dim", ""): "tab",
    ("dim", "bold"): "group",
    ("dim", "underline"): "head",
    ("faint", "dim"): "faint border bar.empty",
    ("strong", "bold"): "focus title brand row.on",
    ("strong", "bold underline"): "head.on",
    ("strong", "bold reverse"): "tab.on",
    ("strong", "bold underline reverse"): "tab.on.key",
    ("key", ""): "code",
    ("key", "bold"): "key",
    ("key", "underline"): "tab.key",
    ("good", ""): "progress bar.ok",
    ("good", "bold"): "status.live",
    ("done", ""): "graph bar.system status.completed",
    ("care", ""): "warning cursor.line bar.warn status.interrupted",
    ("care", "bold"): "notice mark status.stalled",
    ("care", "bold reverse"): "cursor.cell",
    ("bad", "bold"): "error bar.high status.aborted status.errored status.crashed status.gone",
}
_BY_STYLE = {style: look for look, styles in _STYLES.items() for style in styles.split()}


def style_of(style: str, theme: str) -> Style:
    """A style as the terminal gets it. `.on`: of the row or tab that is chosen."""
    if not style.startswith("pixel."):
        return _cached_style(style, theme)
    return Style() if theme == PLAIN else _pixel_look(style)


@lru_cache(maxsize=4096)
def _pixel_look(style: str) -> Style:
    """Two pixels of an image, `pixel.<upper>.<lower>`: the colours of a half block and of what is behind it."""
    _, upper, lower = style.split(".")
    return Style(color=f"#{upper}", bgcolor=f"#{lower}")


@cache
def _cached_style(style: str, theme: str) -> Style:
    run, _, variant = style.partition(".")
    raised = ".on" in style and not style.startswith("head")
    colour, attributes = _BY_STYLE.get(style) or _BY_STYLE.get(style.removesuffix(".on"), ("text", ""))
    if theme == PLAIN:
        if run.startswith("run"):
            return Style(dim=variant == "raw" or None, reverse=variant == "block" or None)
        return Style(reverse=True) if raised and run != "tab" else Style.parse(attributes)
    of_theme = colours(theme)
    ground = of_theme["ground"]
    if run.startswith("run"):
        own = _RUNS[theme][int(run[3:])]
        if variant == "block":
            return Style(color=ground, bgcolor=own, bold=True)
        return Style(color=mixed(own, ground, 0.36) if variant == "raw" else own, bgcolor=ground)
    behind = of_theme["raised"] if raised else ground
    bold, underline = "bold" in attributes, "underline" in attributes
    if style == "cursor.cell":
        return Style(color=ground, bgcolor=of_theme[colour], bold=True)
    return Style(color=of_theme[colour], bgcolor=behind, bold=bold, underline=underline)


@cache
def colours(theme: str) -> dict[str, str]:
    return {name: pair[(DARK, LIGHT).index(theme)] for name, pair in _COLOURS.items()}
