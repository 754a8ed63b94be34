"""Every key, what it does, and where: the bindings, the help, the command palette and the footer follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from linnet.board.terminal.tabs import TABS


@dataclass(frozen=True)
class Key:
    """Keys as the terminal names them, the action they cause, and how they are explained.

    `command`: what the command palette does under this text, where the key itself does another thing on some tabs.
    """

    keys: str  # with commas between
    action: str
    shown: str
    text: str
    command: str = ""


@dataclass(frozen=True)
class Hint:
    """What the footer says of an action: `text`, behind the key as the help shows it or, in few characters, `shown`.

    `several`: only where several runs are shown.
    """

    action: str
    text: str
    shown: str = ""
    several: bool = False


SECTIONS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    (
        "everywhere",
        (
            Key("up", "up", "↑ ↓ ← →", "select a chart, move in a list, scroll"),
            Key("enter", "open", "Enter", "open what is selected"),
            Key("space", "space", "Space", "the same; in the runs tab: mark"),
            Key("escape,q", "back", "q  Esc", "back; from the metrics: quit (Backspace never does)"),
            Key("tab", "next_view", "Tab", "the next tab; Shift+Tab the one before"),
            *(
                Key(key, "notes" if view == "notes" else f"view:{view}", key, text)
                for view, (key, text) in TABS.items()
            ),
            Key("w", "next_run", "w", "of several runs, the next in the header and the tabs"),
            Key("d", "differences", "d", "what was set differently in the runs shown or marked"),
            Key("N", "newest", "N", "open the newest run"),
            Key("t", "theme", "t", "light or dark"),
            Key("question_mark", "help", "?", "these keys"),
            Key("ctrl+p", "", "Ctrl+P", "every command, by name"),
        ),
    ),
    (
        "metrics",
        (
            Key("1,2,3,4,5,6,7,8,9", "chart", "1 … 9", "open the n-th chart"),
            Key("left_square_bracket,less_than_sign,pageup", "page_back", "[  <  PgUp", "the page before"),
            Key("right_square_bracket,greater_than_sign,pagedown", "page_on", "]  >  PgDn", "the next page"),
            Key("s,S", "smoothing", "S", "smoothing off, light, medium, heavy"),
            Key("x", "axis", "x", "x axis by step, tokens, epoch, wall time, relative time"),
            Key("l", "log_scale", "l", "log scale"),
            Key("e", "side", "e", "the machine beside the charts"),
        ),
    ),
    (
        "one metric",
        (
            Key("left", "left", "← →", "the cursor, with exact values; Home and End: to the ends"),
            Key("plus,equals_sign", "zoom_in", "+  ↑  wheel", "closer"),
            Key("minus", "zoom_out", "-  ↓  wheel", "farther"),
            Key("comma,shift+left", "pan_left", ",  Shift+←", "earlier; or drag with the mouse"),
            Key("full_stop,shift+right", "pan_right", ".  Shift+→", "later"),
            Key("0", "zoom_all", "0", "all of it"),
            Key("o", "clip_or_sort", "o", "clip outliers", command="clip"),
            Key("", "", "[ ]  < >", "the metric before, the next metric"),
        ),
    ),
    (
        "runs",
        (
            Key("", "", "Space", "mark; Enter then overlays the marked runs"),
            Key("slash", "filter", "/", "filter: words, or status:live tag:wide recipe:lora experiment:ablation"),
            Key("", "", "o", "order by the next column; a click on a column orders by it", command="sort"),
            Key("O", "reverse", "O", "the other way round"),
            Key("u", "unmark", "u", "no marks"),
        ),
    ),
)
MORE = {  # keys that a section names beside another
    "down": "down",
    "right": "right",
    "shift+tab": "previous_view",
    "home": "first",
    "end": "last",
    "backspace": "back_only",
}

PRIORITY = ("tab", "shift+tab")  # keys that Textual would otherwise keep for itself
FOOTERS: dict[str, tuple[Hint, ...]] = {  # the keys that do most, by what is on the screen
    "overlay": (Hint("up", "scroll", "↑↓"), Hint("back", "close", "Esc")),
    "one metric": (
        Hint("left", "cursor", "←→"),
        Hint("zoom_in", "zoom", "+ -"),
        Hint("pan_left", "pan", ", ."),
        Hint("zoom_all", "all"),
        Hint("smoothing", "smooth"),
        Hint("axis", "axis"),
        Hint("log_scale", "log"),
        Hint("clip_or_sort", "clip"),
        Hint("page_on", "next", "[ ]"),
        Hint("back", "back", "Esc"),
    ),
    "metrics": (
        Hint("up", "select", "↑↓←→"),
        Hint("open", "open", "⏎"),
        Hint("page_on", "page", "[ ]"),
        Hint("smoothing", "smooth"),
        Hint("axis", "axis"),
        Hint("log_scale", "log"),
        Hint("next_run", "next run", several=True),
        Hint("differences", "differences", several=True),
        Hint("side", "machine"),
        Hint("theme", "theme"),
        Hint("back", "quit", "q"),
    ),
    "runs": (
        Hint("space", "mark", "space"),
        Hint("open", "open", "⏎"),
        Hint("differences", "differences"),
        Hint("filter", "filter"),
        Hint("clip_or_sort", "order"),
        Hint("back", "back", "q"),
    ),
    "notes": (Hint("notes", "write a note"), Hint("up", "scroll", "↑↓"), Hint("back", "back", "q")),
    "other tabs": (
        Hint("next_run", "next run", several=True),
        Hint("up", "scroll", "↑↓"),
        Hint("back", "back", "q"),
    ),
}
HELP = Hint("help", "help")


def bindings() -> dict[str, str]:
    """Key to action, for every key."""
    found: dict[str, str] = {}
    for _, keys in SECTIONS:
        for key in keys:
            for name in filter(None, key.keys.split(",")):
                if key.action:
                    found[name] = f"{key.action}:{name}" if key.action == "chart" else key.action
    return found | MORE


def footer(where: str, several: bool) -> list[tuple[str, str]]:
    """Keys and what they do, in short. `where`: one of `FOOTERS`; `several`: several runs are shown."""
    shown = {key.action: key.shown for _, keys in SECTIONS for key in keys}
    hints = [hint for hint in (*FOOTERS[where], HELP) if several or not hint.several]
    return [(hint.shown or shown[hint.action], hint.text) for hint in hints]
