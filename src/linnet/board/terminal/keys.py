"""Tabs and keys: bindings, help, command palette, footer, line of tabs and `--view` follow from these tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

View = Literal["metrics", "system", "runs", "inside", "samples", "artifacts", "checkpoints", "config", "notes", "log"]
VIEWS: tuple[View, ...] = get_args(View)
TABS: dict[View, tuple[str, str]] = {  # the key, a letter of the name, small or large, and what the help says
    "metrics": ("m", "metrics"),
    "system": ("y", "the machine"),
    "runs": ("r", "all runs"),
    "inside": ("I", "what --inspect told: maps, histograms, times; attention"),
    "samples": ("a", "samples"),
    "artifacts": ("i", "images, tables, histograms, texts, sounds, files"),
    "checkpoints": ("k", "checkpoints"),
    "config": ("c", "settings and where the run comes from"),
    "notes": ("n", "notes; there, write one"),
    "log": ("g", "the log: turns, warnings, damaged lines"),
}


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


SECTIONS: dict[str, tuple[Key, ...]] = {
    "everywhere": (
        Key("up", "up", "↑ ↓ ← →", "select a chart, move in a list, scroll"),
        Key("enter", "open", "Enter", "open what is selected"),
        Key("space", "space", "Space", "the same; in the runs tab: mark"),
        Key("q", "back", "q  Esc", "back; from the metrics: quit (Backspace never does)"),
        Key("tab", "next_view", "Tab", "the next tab; Shift+Tab the one before"),
        *(Key(key, "notes" if view == "notes" else f"view:{view}", key, text) for view, (key, text) in TABS.items()),
        Key("w", "next_run", "w", "of several runs, the next in the header and the tabs"),
        Key("d", "differences", "d", "what was set differently in the runs shown or marked"),
        Key("N", "newest", "N", "open the newest run"),
        Key("t", "theme", "t", "light or dark"),
        Key("question_mark", "help", "?", "these keys"),
        Key("ctrl+p", "", "Ctrl+P", "every command, by name"),
    ),
    "metrics": (
        Key("1,2,3,4,5,6,7,8,9", "chart", "1 … 9", "open the n-th chart"),
        Key("left_square_bracket,less_than_sign,pageup", "page_back", "[  <  PgUp", "the page before"),
        Key("right_square_bracket,greater_than_sign,pagedown", "page_on", "]  >  PgDn", "the next page"),
        Key("s,S", "smoothing", "S", "smoothing off, light, medium, heavy"),
        Key("x", "axis", "x", "x axis by step, tokens, epoch, wall time, relative time"),
        Key("l", "log_scale", "l", "log scale"),
        Key("e", "side", "e", "the machine beside the charts"),
        Key("p", "pin", "p", "pin the chart: it stands first; again: not any more"),
        Key("left_parenthesis", "move_back", "(", "move the chart to an earlier place"),
        Key("right_parenthesis", "move_on", ")", "move the chart to a later place"),
        Key("h", "hide", "h", "hide the chart, or bring it back"),
        Key("H", "show_hidden", "H", "show hidden metrics and constants too"),
        Key("z", "constants", "z", "charts for constants, or one line"),
        Key("", "", "/", "only charts whose name has these words, or fits a pattern: loss, blk.0*"),
        Key("Z", "reset_charts", "Z", "forget what was pinned, moved, hidden and filtered"),
        Key("F", "family", "F", "of a fork: the line of its parent, up to where it began"),
    ),
    "one metric": (
        Key("left", "left", "← →", "the cursor, with exact values; Home and End: to the ends"),
        Key("plus,equals_sign", "zoom_in", "+  ↑  wheel", "closer"),
        Key("minus", "zoom_out", "-  ↓  wheel", "farther"),
        Key("comma,shift+left", "pan_left", ",  Shift+←", "earlier; or drag with the mouse"),
        Key("full_stop,shift+right", "pan_right", ".  Shift+→", "later"),
        Key("0", "zoom_all", "0", "all of it"),
        Key("o", "clip_or_sort", "o", "clip outliers", command="clip"),
        Key("", "", "[ ]  < >", "the metric before, the next metric"),
    ),
    "runs": (
        Key("", "", "Space", "mark; Enter then overlays the marked runs"),
        Key("slash", "filter", "/", "in the runs: filter by words, tag:wide, loss<2 and lr>=1e-3"),
        Key("C", "columns", "C", "columns: loss@200,best(validation/loss),lr; none: the settings that differ"),
        Key("", "", "o", "order by the next column; a click on a column orders by it", command="sort"),
        Key("O", "reverse", "O", "the other way round"),
        Key("u", "unmark", "u", "no marks"),
        Key("", "", "p", "a metric of the runs listed or marked against a setting", command="plot_runs"),
        Key("", "", "x  [ ]", "there: another setting, another metric; l: log scale"),
        Key("b", "best_or_last", "b", "there: the best value of each run, or its last"),
    ),
    "inside": (
        Key("", "", "1 … 9  [ ]", "another page: map, spread, time, model, CKA, tokens, recorded …"),
        Key("", "", "↑ ↓ ← →", "the cursor: layer and step; of attention layer and head"),
        Key("f", "figure_on", "f", "the next figure: std, l2, update_ratio, cos_to_init …"),
        Key("", "", "F", "the figure before", command="figure_back"),
        Key("", "", "x", "the next region or tensor", command="region_on"),
        Key("X", "region_back", "X", "the region before"),
        Key("", "", "/", "figure and region by name: update_ratio attn_q"),
        Key("", "", "h", "the heads of a layer; of CKA the likeness over the steps", command="turn_rows"),
        Key("", "", "l", "colours by the logarithm"),
        Key("", "", "Enter", "open: a histogram, a part of a tree; type a prompt for attention"),
    ),
    "artifacts": (
        Key("", "", "↑ ↓", "another name; scroll what has the whole screen"),
        Key("", "", "← →", "the step before, the next; Home, End: the first, the last"),
        Key("", "", "Enter", "look at it: an image by kitty, iTerm, sixel or half blocks"),
        Key("v", "open_file", "v", "open the file with the system's viewer, or say where it is"),
    ),
}
MORE = {  # keys that a section names beside another
    "down": "down",
    "right": "right",
    "shift+tab": "previous_view",
    "home": "first",
    "end": "last",
    "escape": "escape",
    "backspace": "back_only",
}

PRIORITY = ("tab", "shift+tab")  # keys that Textual would otherwise keep for itself
_OTHER = "other tabs"
FOOTERS: dict[str, tuple[Hint, ...]] = {  # the keys that do most, by what is on the screen
    "overlay": (Hint("up", "scroll", "↑↓"), Hint("back", "close", "Esc")),
    "scatter": (
        Hint("axis", "setting"),
        Hint("page_on", "metric", "[ ]"),
        Hint("best_or_last", "best or last"),
        Hint("log_scale", "log"),
        Hint("back", "close", "Esc"),
    ),
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
        Hint("pin", "pin"),
        Hint("hide", "hide"),
        Hint("filter", "filter"),
        Hint("side", "machine"),
        Hint("theme", "theme"),
        Hint("back", "quit", "q"),
    ),
    "runs": (
        Hint("space", "mark", "space"),
        Hint("open", "open", "⏎"),
        Hint("differences", "differences"),
        Hint("filter", "filter"),
        Hint("columns", "columns"),
        Hint("clip_or_sort", "order"),
        Hint("pin", "plot"),
        Hint("back", "back", "q"),
    ),
    "artifacts": (
        Hint("up", "name", "↑↓"),
        Hint("left", "step", "←→"),
        Hint("open", "look", "⏎"),
        Hint("open_file", "open the file"),
        Hint("next_run", "next run", several=True),
        Hint("back", "back", "q"),
    ),
    "inside": (
        Hint("page_on", "page", "[ ]"),
        Hint("figure_on", "figure"),
        Hint("axis", "region"),
        Hint("hide", "heads"),
        Hint("log_scale", "log"),
        Hint("filter", "choose"),
        Hint("open", "open", "⏎"),
        Hint("next_run", "next run", several=True),
        Hint("back", "back", "q"),
    ),
    "inside: spread": (
        Hint("page_on", "page", "[ ]"),
        Hint("up", "layer", "↑↓"),
        Hint("left", "step", "←→"),
        Hint("axis", "region"),
        Hint("back", "back", "q"),
    ),
    "inside: trees": (
        Hint("page_on", "page", "[ ]"),
        Hint("up", "part", "↑↓"),
        Hint("open", "open, shut", "⏎"),
        Hint("left", "step", "←→"),
        Hint("back", "back", "q"),
    ),
    "inside: CKA": (
        Hint("page_on", "page", "[ ]"),
        Hint("left", "step", "←→"),
        Hint("axis", "region"),
        Hint("hide", "over the steps"),
        Hint("back", "back", "q"),
    ),
    "inside: recorded": (
        Hint("page_on", "page", "[ ]"),
        Hint("up", "another", "↑↓"),
        Hint("open", "open", "⏎"),
        Hint("back", "back", "q"),
    ),
    "inside: attention": (
        Hint("page_on", "page", "[ ]"),
        Hint("open", "a prompt", "⏎"),
        Hint("up", "layer", "↑↓"),
        Hint("left", "head", "←→"),
        Hint("back", "back", "q"),
    ),
    "inside: tokens": (Hint("page_on", "page", "[ ]"), Hint("left", "step", "←→"), Hint("back", "back", "q")),
    "inside: warnings": (Hint("page_on", "page", "[ ]"), Hint("up", "scroll", "↑↓"), Hint("back", "back", "q")),
    "notes": (Hint("notes", "write a note"), Hint("up", "scroll", "↑↓"), Hint("back", "back", "q")),
    _OTHER: (Hint("next_run", "next run", several=True), Hint("up", "scroll", "↑↓"), Hint("back", "back", "q")),
}
HELP = Hint("help", "help")


def bindings() -> dict[str, str]:
    keys = [key for section in SECTIONS.values() for key in section if key.action]
    named = {name: key.action for key in keys for name in key.keys.split(",")}
    return {name: f"chart:{name}" if action == "chart" else action for name, action in named.items()} | MORE


def footer(where: str, several: bool) -> list[tuple[str, str]]:
    """Keys and what they do, in short. `where`: a tab or another of `FOOTERS`; `several`: several runs are shown."""
    shown = {key.action: key.shown for section in SECTIONS.values() for key in section}
    hints = [hint for hint in (*FOOTERS.get(where, FOOTERS[_OTHER]), HELP) if several or not hint.several]
    return [(hint.shown or shown[hint.action], hint.text) for hint in hints]
