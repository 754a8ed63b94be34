"""A real Chromium, timed by the page's own clock: that starts with the request and knows nothing of who drives it."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VIEW = {"width": 1440, "height": 900}
PATIENCE = 60.0  # seconds; what takes longer is given up

# In every frame: is what one waits for there? The time is that of the frame after the one in which it was drawn.
_WATCH = """
(() => {
  const ink = document.createElement("canvas");
  ink.width = 96; ink.height = 64;
  const pen = ink.getContext("2d", {willReadFrequently: true});
  const hasLine = (canvas) => {  // something in colour, so no axis and no text
    pen.clearRect(0, 0, ink.width, ink.height);
    pen.drawImage(canvas, 0, 0, ink.width, ink.height);
    const {data} = pen.getImageData(0, 0, ink.width, ink.height);
    for (let at = 0; at < data.length; at += 4) {
      const [red, green, blue, alpha] = data.subarray(at, at + 4);
      if (alpha > 40 && Math.max(red, green, blue) - Math.min(red, green, blue) > 20) return true;
    }
    return false;
  };
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((element) => {
    const {top, bottom, width} = element.getBoundingClientRect();
    return width > 0 && bottom > 0 && top < innerHeight;
  });
  const look = () => {
    let there = false, begun = false;
    try { begun = Boolean(FIRST); there = Boolean(CONDITION); } catch {}
    requestAnimationFrame(() => {
      if (begun) window.benchFirst ??= performance.now();
      if (there) window.benchSeen = performance.now();
      else look();
    });
  };
  requestAnimationFrame(look);
})();
"""


@contextmanager
def chromium() -> Iterator[Any]:
    """The machine's Chromium, or else Playwright's own, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def fresh(browser: Any, **options: Any) -> Iterator[Any]:
    """A browser context that has cached nothing."""
    context = browser.new_context(viewport=VIEW, **options)
    context.set_default_timeout(PATIENCE * 1000)
    try:
        yield context
    finally:
        context.close()


def look(context: Any, address: str, condition: str, first: str = "true") -> tuple[Any, float]:
    """A page, and the seconds from its request until `condition` (JavaScript) was true on the screen.

    A condition may use `shown(selector)`, elements in sight, and `hasLine(canvas)`. `first`: another one, which is true
    no later; `seconds_of_first` tells when.
    """
    page = context.new_page()
    page.add_init_script(_WATCH.replace("CONDITION", condition).replace("FIRST", first))
    page.goto(address, wait_until="commit")
    return page, float(until(page, "window.benchSeen")) / 1000


def seconds_of_first(page: Any) -> float:
    """Until the first condition of `look` was true on the screen."""
    return float(page.evaluate("window.benchFirst")) / 1000


def until(page: Any, expression: str, argument: object = None) -> Any:
    """Waits until an expression is true; its value.

    Playwright's own `wait_for_function` needs `eval`, which a page that is careful forbids.
    """
    end = time.monotonic() + PATIENCE
    while not (value := page.evaluate(expression, argument)):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE:.0f} s: {expression}")
        page.wait_for_timeout(20)
    return value


class Transferred:
    """What a page, or all pages of a context, are sent from now on. `kinds`: as Playwright calls them; none: all."""

    def __init__(self, receiver: Any, *kinds: str) -> None:
        self._kinds = kinds
        self._finished: list[Any] = []
        receiver.on("requestfinished", self._take)

    def _take(self, request: Any) -> None:
        if not self._kinds or request.resource_type in self._kinds:
            self._finished.append(request)

    def bytes(self, part: str = "") -> int:
        """The bytes of bodies, as they travelled, of those whose address has a part."""
        return sum(int(request.sizes()["responseBodySize"]) for request in self._finished if part in request.url)

    def bodies(self) -> Iterator[bytes]:
        """What was sent, decoded."""
        for request in self._finished:
            response = request.response()
            if response is not None:
                yield response.body()
