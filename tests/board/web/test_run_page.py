"""A run's page in a real browser, over real folders: tabs, samples, checkpoints, artifacts, notes, what is live."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import linnet
from linnet.runs import start
from tests.board.conftest import FIGURES, append, steps, write

ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
LABELS = ("cat", "dog", "owl")


@pytest.fixture
def told(root: Path) -> Path:
    """A run that tells something for every tab, and its parent; each text of it is an attack."""
    with start(root, run_id="base", config={"lr": 1e-3, "width": 64}, total_steps=40) as run:
        run.log(1, loss=2.0)
    about = {"config": {"lr": 2e-3, "width": 64}, "name": ATTACK, "tags": [ATTACK]}
    with start(
        root,
        run_id="told",
        parent="base",
        parent_step=1,
        total_steps=40,
        chosen={"dtype": "float32"},
        system_every=0,
        **about,
    ) as run:
        for step in range(1, 41):
            run.log(step, loss=4 / step)
        for step in (10, 20, 40):
            run.sample(step, "The whale", f"The whale was {step} feet {ATTACK}")
            run.image(step, "stripes", np.tile(np.linspace(0, 1, 24), (16, 1)), caption=ATTACK)
            run.histogram(step, "weights", np.linspace(-1, 1, 500) * step)
            run.table(step, "hardest", [{"text": ATTACK, "loss": 1 / (row + 1)} for row in range(3000)])
            counts = [[9, 1, 0], [2, 8, 0], [0, 0, 10 - step // 10]]
            run.eval(
                step, "validation", accuracy=0.9, per_class={"cat": 0.9}, confusion={"labels": LABELS, "counts": counts}
            )
        run.op_timing(16, 1000, {"aten::mm": 700, "aten::add": 100, "other": 200})
        run.note(ATTACK)
    flow = '{"nodes":[{"name":"ids","role":"input","shape":"8"},%s],"summary":{}}'
    layers = [
        f'{{"name":"blocks.{n}.{op}","role":"ephemeral","shape":"8","op":"{op}","inputs":["{source}"]}}'
        for n in range(3)
        for op, source in (("linear", f"blocks.{n - 1}.add" if n else "ids"), ("add", f"blocks.{n}.linear"))
    ]
    (root / "told" / "flow.json").write_text(flow % ",".join(layers))
    append(root / "told", [{"kind": "system", "t": 40.0, **FIGURES}])
    return root / "told"


def open_tab(page: Page, served: str, tab: str, parameters: str = "") -> None:
    page.goto(f"{served}#/run/told/{tab}{parameters}")
    expect(page.locator('.tabs [aria-current="page"]')).to_be_visible()


def test_all_tabs_are_there_and_every_text_is_text(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "")
    tabs = page.locator(".tabs a").all_inner_texts()
    assert tabs == [
        "Charts",
        "Config",
        "Samples",
        "Machine",
        "Artifacts",
        "Classes",
        "Profile",
        "Model",
        "Notes",
        "Log",
    ]
    for tab in tabs:
        page.locator(".tabs a", has_text=tab).click()
        expect(page.locator('.tabs [aria-current="page"]')).to_have_text(tab)
        expect(page.locator(".loading")).to_have_count(0)
        assert page.locator("h1").inner_text() == ATTACK
        assert page.title() != "owned"


def test_the_header_tells_progress_and_family(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "config")
    header = page.locator(".run-header")
    expect(header).to_contain_text("completed")
    expect(header).to_contain_text("40 of 40")
    expect(header).to_contain_text(re.compile(r"from\s+base\s+at step 1"))
    header.get_by_role("link", name="base").click()
    expect(page.locator("h1")).to_have_text("base")
    expect(page.locator(".run-header")).to_contain_text("fork")


def test_settings_that_differ_from_the_parent_stand_first(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "config")
    first = page.locator(".settings tbody tr").first
    expect(first).to_have_text("config.lr0.002instead of 0.001")
    page.get_by_role("searchbox", name="Filter settings").fill("width")
    expect(page.locator(".settings tbody tr")).to_have_count(1)
    assert "words=width" in page.url
    expect(page.locator('[aria-label="Chosen by auto"]')).to_contain_text("float32")


def test_samples_are_walked_through_by_keys_and_the_address_keeps_the_step(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "samples")
    expect(page.locator(".samples pre")).to_have_text(f"The whale was 40 feet {ATTACK}")
    expect(page.locator(".samples mark")).to_have_text("40")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".samples pre")).to_have_text(f"The whale was 20 feet {ATTACK}")
    assert page.url.endswith("?step=20")
    page.reload()
    expect(page.locator(".samples output")).to_have_text("step 20")


def test_artifacts_are_shown_as_what_they_are(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "artifacts")
    image = page.locator(".picture img")
    expect(image).to_be_visible()
    page.wait_for_function("document.querySelector('.picture img').naturalWidth === 24")
    page.locator(".artifact-names button", has_text="weights").click()
    expect(page.locator(".histograms svg")).to_have_count(2)
    page.locator(".artifact-names button", has_text="hardest").click()
    table = page.get_by_role("region", name="hardest")
    expect(table).to_contain_text(ATTACK)
    assert table.locator("tbody tr").count() < 60, "of 3,000 rows those on the screen are drawn"
    table.evaluate("element => element.scrollTo(0, element.scrollHeight)")
    expect(table).to_contain_text("0.000333333")
    with page.expect_download() as download:
        page.get_by_role("link", name="download").click()
    assert download.value.path().stat().st_size > 10_000


def test_classes_are_a_matrix_and_a_table(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "classes")
    expect(page.locator(".confusion rect")).to_have_count(9)
    first = page.get_by_role("region", name="Figures of each class").locator("tbody tr").first
    expect(first).to_contain_text("dog80.0 %")
    page.keyboard.press("Home")
    expect(page.locator(".step-slider output")).to_have_text("step 10")


def test_the_model_is_folded_by_layer_and_opened_by_a_click(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "flow")
    expect(page.locator(".flow .box")).to_have_count(2)
    page.get_by_role("button", name="blocks.0 … blocks.2").click()
    expect(page.locator(".flow .box.open")).to_have_count(1)
    assert "open=blocks.0" in page.url
    page.go_back()
    expect(page.locator(".flow .box.open")).to_have_count(0)


def test_a_note_is_written_into_the_folder(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "log")
    page.keyboard.press("n")
    expect(page.locator("textarea")).to_be_visible()
    page.keyboard.press("n")
    page.keyboard.type("looks <b>good</b>")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".note-list li").first).to_contain_text("looks <b>good</b>")
    texts = [event.data["text"] for event in linnet.open(told).events().read_events() if event.kind == "note"]
    assert texts == [ATTACK, "looks <b>good</b>"]


def test_a_live_run_goes_on_in_its_header_and_its_samples(page: Page, served: str, root: Path) -> None:
    with start(root, run_id="told", total_steps=100) as run:
        run.log(1, loss=2.0)
        run.sample(1, "Once", "Once upon")
        open_tab(page, served, "samples")
        expect(page.locator(".run-header")).to_contain_text("training")
        run.log(50, loss=1.0)
        run.sample(50, "Once", "Once upon a time")
        expect(page.locator(".samples pre")).to_have_text("Once upon a time")
        expect(page.locator(".run-header")).to_contain_text("50 of 100")
    expect(page.locator(".run-header")).to_contain_text("completed")


def test_a_run_that_is_not_there_is_said_to_be_missing(page: Page, served: str, root: Path) -> None:
    write(root / "other", steps(3))
    page.goto(f"{served}#/run/nobody")
    expect(page.get_by_text("nobody")).to_be_visible()


def test_the_box_that_is_looked_at_in_the_model_is_in_the_address(page: Page, served: str, told: Path) -> None:
    open_tab(page, served, "flow", "?fold=operations")
    box = page.locator(".flow .box").filter(has_text="linear").last
    box.locator(".handle").first.click()
    details = page.locator(".flow-details h3")
    label = details.inner_text()
    assert re.search(r"[?&]box=blocks", page.url)
    page.reload()
    expect(details).to_have_text(label)
    expect(page.locator(".flow .box.on")).to_have_count(1)


def test_the_zoom_of_the_machines_charts_is_in_the_address(page: Page, served: str, root: Path) -> None:
    events = [{"kind": "system", "t": 5.0 * n, "cpu": {"percent": 10.0 + n % 7}} for n in range(1, 101)]
    write(root / "told", [*steps(20), *events])
    open_tab(page, served, "machine")
    surface = page.locator(".machine .chart-surface").first
    expect(surface).to_have_attribute("data-drawn-x", "all")
    box = surface.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    expect(surface).not_to_have_attribute("data-drawn-x", "all")
    stretch = re.search(r"zoom=([\d.]+:[\d.]+)", page.url)
    assert stretch is not None
    page.reload()
    expect(surface).to_have_attribute("data-drawn-x", stretch[1])
    page.get_by_role("button", name="zoomed").click()
    expect(surface).to_have_attribute("data-drawn-x", "all")
    page.go_back()
    expect(surface).to_have_attribute("data-drawn-x", stretch[1])
    page.get_by_role("radio", name="step").click()
    expect(surface).to_have_attribute("data-drawn-x", "all")
    assert "zoom=" not in page.url, "another axis counts otherwise"
    page.go_back()
    page.go_back()
    expect(page.get_by_role("radio", name="time since the start")).to_be_checked()
