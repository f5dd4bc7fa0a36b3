"""The page of `pesto report` in a real browser: charts, tooltips, search and keyboard."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import on_gpus
from playwright.sync_api import Browser, Locator, Page, sync_playwright
from report_pages import AWKWARD, awkward_profile, placed_on
from split_model import Files, written

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.files import Profile
from pesto_cli.printable import printable
from pesto_cli.report.pictures import colours

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 380, "height": 800}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "no chromium on the path: these tests need Debian's package chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two placements, in a folder with special characters in its name."""
    profile = awkward_profile()
    placements = {
        "both": placed_on(profile, [1, 1, 2, 1, 1]),
        "one": placed_on(profile, [1, 1, 1, 1, 1]),
    }
    path = tmp_path_factory.mktemp("a folder, né") / "report.html"
    path.write_text(api.report(profile, placements, "awkward"), encoding="utf-8")
    return path


@dataclass
class Opened:
    """An open page, with its console messages and requests."""

    page: Page
    said: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)


def opened(browser: Browser, file: Path, size: dict[str, int], scheme: str = "light") -> Opened:
    page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    found = Opened(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("request", lambda request: found.requested.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-drawn]")
    return found


@pytest.fixture(scope="module")
def wide(browser: Browser, file: Path) -> Opened:
    return opened(browser, file, WIDE)


def step_time(page: Page) -> str:
    return page.locator(".placement:visible .figures dd").first.inner_text()


def report(browser: Browser, path: Path, profile: Profile, **device: list[int]) -> Opened:
    """Write a report of placements by name to a folder, and open it in a wide window."""
    placements = {name: placed_on(profile, each) for name, each in device.items()}
    (path / "report.html").write_text(api.report(profile, placements), encoding="utf-8")
    return opened(browser, path / "report.html", WIDE)


MARKED_ALONE = ".marked_marks path"
MARKED = f"[data-chart=over_time]:visible {MARKED_ALONE}"
BAR = "[data-chart=over_time] .mark-rect:not(.marked_marks) path"
SCOPE = "as_long_as_in_a_program/" * 4


def time_axis(page: Page) -> Locator:
    """Return the labels of the time axis of the Gantt chart."""
    return page.locator("[data-chart=over_time]:visible .concat_0_group .role-axis-label").first


def ticks(page: Page) -> list[float]:
    return sorted(map(float, time_axis(page).locator("text").all_text_contents()))


def test_it_draws_without_errors_and_requests_nothing(wide: Opened, file: Path) -> None:
    charts = wide.page.locator(".placement:visible [data-chart] svg")
    assert charts.count() == 3
    # A bar for each op that takes time, and one for each of two transfers.
    assert wide.page.locator("[data-chart=over_time]:visible .mark-rect path").count() >= 6
    assert wide.said == []
    assert wide.requested == [file.as_uri()]


def test_hovering_an_op_shows_its_name(wide: Opened) -> None:
    for name in map(printable, AWKWARD):
        box = wide.page.evaluate(
            """(name) => {
              const bars = document.querySelectorAll("#placement-0 [data-chart=over_time] path");
              const bar = [...bars].find((each) => each.__data__?.datum?.name === name);
              return bar.getBoundingClientRect().toJSON();
            }""",
            name,
        )
        wide.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tooltip = wide.page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        shown = tooltip.inner_text()
        assert " ".join(name.split()) in " ".join(shown.split())
        wide.page.mouse.move(1, 1)
        tooltip.wait_for(state="detached")


def test_the_keyboard_reaches_the_search_and_then_the_chart(wide: Opened) -> None:
    page = wide.page
    page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if page.evaluate("document.activeElement.id") == "query":
            break
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.type("<B>")
    assert page.locator("#found").inner_text() == "1 of 5 ops"
    assert page.locator("#ops tbody tr").all_inner_texts() == [
        "\t".join([AWKWARD[0], "MatMul", "GPU:0", "0.000", "40.00", "yes"])
    ]
    before = page.locator("[data-chart=over_time]:visible").text_content()
    while page.evaluate("document.activeElement.innerText") != AWKWARD[0]:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "(before) => document.querySelector('#placement-0 [data-chart]').textContent !== before",
        arg=before,
    )
    page.locator("[data-zoom=all]:visible").click()
    page.fill("#query", "")


def test_the_switch_shows_the_other_placement(wide: Opened) -> None:
    page = wide.page
    both = step_time(page)
    page.locator("#switch label", has_text="one").click()
    page.wait_for_selector("#placement-1 svg")
    assert not page.locator("#placement-0").is_visible()
    assert (both, step_time(page)) == ("202.0 us", "280.0 us")
    assert "GPU:1" not in page.locator("#ops tbody").inner_text()
    page.locator("#switch label", has_text="both").click()
    page.wait_for_selector("#placement-0 svg", state="visible")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_can_be_read_on_any_screen(
    browser: Browser, file: Path, size: dict[str, int], scheme: str
) -> None:
    found = opened(browser, file, size, scheme)
    assert found.said == []
    assert found.page.evaluate("document.documentElement.scrollWidth") == size["width"]
    for selector in ("h1", ".remark", ".figures dd", "#ops button"):
        assert contrast(found.page, selector) >= 4.5, selector
    texts = found.page.locator(
        ".placement:visible :is(.role-legend-label, .role-title-text, .role-title-subtitle) text"
    )
    assert {"critical path of the schedule", "memory held, as a share of the usable memory"} < set(
        texts.all_text_contents()
    )
    for text in texts.all():
        box = text.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= size["width"], text.text_content()
    ground = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    found.page.close()


def contrast(page: Page, selector: str) -> float:
    """Return the contrast ratio of a text with its background (WCAG 2.1, 1.4.3)."""
    ratio: float = page.evaluate(
        """(selector) => {
          const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
          const luminance = (colour) => channels(colour).slice(0, 3).map((each) => each / 255)
            .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
            .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
          let behind = document.querySelector(selector);
          const text = luminance(getComputedStyle(behind).color);
          const colour = () => getComputedStyle(behind).backgroundColor;
          while (channels(colour())[3] === 0) behind = behind.parentElement;
          const ground = luminance(colour());
          return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        }""",
        selector,
    )
    return ratio


def test_a_step_without_time_is_drawn_too(browser: Browser, tmp_path: Path) -> None:
    found = report(browser, tmp_path, Profile(on_gpus(OpGraph.build(["only"]), [0])), alone=[1])
    assert found.said == []
    assert found.page.locator("#ops tbody tr").count() == 1
    found.page.get_by_role("button", name="only").click()
    found.page.locator(MARKED).wait_for(state="attached")
    assert found.said == []
    found.page.close()


def wait_for_tick(page: Page, label: str) -> None:
    time_axis(page).get_by_text(label, exact=True).wait_for(state="attached")


def test_a_chosen_op_is_marked_even_if_it_is_very_short(browser: Browser, tmp_path: Path) -> None:
    graph = OpGraph.build(["long", "short", "last"], [Tensor(0, 8, [1]), Tensor(1, 8, [2])])
    profile = Profile(on_gpus(graph, [90_000, 1, 60_000]))
    found = report(browser, tmp_path, profile, both=[1, 1, 2], one=[1, 1, 1])
    page, name = found.page, "[data-chart=over_time]:visible .marked_name_marks text"
    assert page.locator(MARKED).count() == 0
    page.get_by_role("button", name="short").click()
    page.wait_for_function(f"document.querySelector({MARKED_ALONE!r})?.getBBox().width > 5")
    frame = page.locator(MARKED).evaluate("mark => mark.getBoundingClientRect().toJSON()")
    assert 20 < frame["width"] < 400
    assert page.locator(name).text_content() == "short"
    page.mouse.move(frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "short" in tooltip.inner_text()
    page.get_by_role("button", name="All").click()
    page.wait_for_function(f"document.querySelector({MARKED_ALONE!r}).getBBox().width < 1")
    stroke = page.locator(MARKED).evaluate("mark => getComputedStyle(mark).stroke")
    assert stroke == page.evaluate("getComputedStyle(document.body).color")
    assert page.locator("#ops tr[aria-current] button").all_inner_texts() == ["short"]
    page.locator("#switch label", has_text="one").click()
    page.wait_for_selector("#placement-1 .marked_marks path", state="attached")
    page.set_viewport_size({"width": 380, "height": 800})
    page.wait_for_function("document.querySelector('#placement-1 svg').clientWidth < 400")
    assert page.locator(name).text_content() == "short"
    assert found.said == []
    page.close()


def test_a_click_on_a_bar_finds_the_op_of_this_name(browser: Browser, tmp_path: Path) -> None:
    names = ["MatMul_1", "MatMul", "scope/MatMul"]
    profile = Profile(on_gpus(OpGraph.build(names), [50, 20, 30]))
    page = report(browser, tmp_path, profile, one=[1, 1, 1]).page
    page.locator(".mark-rect path[fill]").nth(1).click()
    current = page.locator("#ops tr[aria-current]")
    assert current.locator("button").all_inner_texts() == ["MatMul"]
    assert page.locator("#ops button").all_inner_texts() == ["MatMul", "MatMul_1", "scope/MatMul"]
    assert contrast(page, "#ops tr[aria-current] button") >= 4.5
    assert page.locator(MARKED).count() == 1
    page.fill("#query", "scope/matmul")
    assert current.count() == 0
    page.close()


def test_another_placement_shows_the_same_part_of_the_step(
    browser: Browser, tmp_path: Path
) -> None:
    profile = Profile(on_gpus(OpGraph.build(["a", "b"]), [600, 600]))
    found = report(browser, tmp_path, profile, us=[1, 2], ms=[1, 1])
    page = found.page
    whole = ticks(page)
    page.locator("[data-zoom=in]:visible").click()
    wait_for_tick(page, "440")
    in_us = ticks(page)
    page.locator("#switch label", has_text="ms").click()
    wait_for_tick(page, "0.44")
    assert [1000 * tick for tick in ticks(page)] == pytest.approx(in_us)
    page.locator("[data-zoom=all]:visible").click()
    page.locator("#switch label", has_text="us").click()
    wait_for_tick(page, "600")
    assert ticks(page) == whole
    assert found.said == []
    page.close()


@pytest.mark.parametrize("by", ["button", "wheel"])
def test_zooming_in_is_limited(browser: Browser, tmp_path: Path, by: str) -> None:
    profile = Profile(on_gpus(OpGraph.build(["a", "b"]), [700, 11]))
    found = report(browser, tmp_path, profile, one=[1, 1])
    page, now = found.page, list[float]()
    if by == "wheel":
        page.locator(".mark-rect path").first.hover()
        page.keyboard.down("Control")
    for _ in range(60):
        if by == "button":
            page.locator("[data-zoom=in]:visible").click()
        else:
            page.mouse.wheel(0, -200)
            page.wait_for_timeout(10)
        before, now = now, ticks(page)
    assert now == before
    # The whole axis spans a hundredth of a microsecond.
    assert 0.005 < now[-1] - now[0] <= 0.01
    assert found.said == []
    page.close()


def test_circles_of_the_graph_are_not_cut_off(browser: Browser, tmp_path: Path) -> None:
    graph = OpGraph.build(
        [f"op_{op}" for op in range(60)], [Tensor(op, 8, [op + 1]) for op in range(59)]
    )
    found = report(browser, tmp_path, Profile(on_gpus(graph, [9.0] * 60)), one=[1] * 60)
    outside = found.page.evaluate(
        """() => {
          const chart = document.querySelector("[data-chart=layers]");
          const frame = chart.querySelector("path.background").getBoundingClientRect();
          return [...chart.querySelectorAll(".role-mark.mark-symbol path")]
            .map((circle) => circle.getBoundingClientRect())
            .filter((circle) => circle.left < frame.left || circle.right > frame.right).length;
        }"""
    )
    assert found.page.locator("[data-chart=layers] .role-mark.mark-symbol path").count() > 30
    assert outside == 0
    found.page.close()


def test_a_table_that_is_cut_off_has_a_shadow_at_its_side(browser: Browser, file: Path) -> None:
    page = opened(browser, file, NARROW).page
    table = page.locator("#compared .wide")
    assert table.evaluate("table => table.scrollWidth > table.clientWidth")
    # At the end of the table, a scrolling background hides the shadow.
    attachment = table.evaluate("table => getComputedStyle(table).backgroundAttachment")
    assert attachment == "local, local, scroll, scroll"
    page.close()


def test_merged_bars_are_split_by_zooming_in(browser: Browser, tmp_path: Path) -> None:
    names = [f"{SCOPE}op_{op}" for op in range(5000)]
    graph = OpGraph.build(names, [Tensor(op, 8, [op + 1]) for op in range(4999)])
    profile = Profile(on_gpus(graph, [1.0] * 5000))
    found = report(browser, tmp_path, profile, cut=[1] * 4000 + [2] * 1000)
    page = found.page

    def drawn() -> set[str]:
        return set(
            page.eval_on_selector_all(BAR, "bars => bars.map((bar) => bar.__data__?.datum?.name)")
        )

    assert page.locator(BAR).count() < 4000
    assert f"{SCOPE}op_4321" not in drawn()
    page.fill("#query", "op_4321")
    page.get_by_role("button", name="op_4321").click()
    wait_for_bar(page, "op_4321")
    assert {f"{SCOPE}op_{op}" for op in range(4310, 4330)} <= drawn()
    page.get_by_role("button", name="All").click()
    wait_for_bar(page, "op_4321", there=False)
    page.locator(BAR).first.hover()
    named = page.locator("#vg-tooltip-element.visible td.value").first
    assert SCOPE in named.inner_text()
    assert named.evaluate("cell => cell.scrollHeight <= cell.clientHeight")
    page.locator(BAR).first.click()
    wait_for_bar(page, "op_0")
    assert found.said == []
    page.close()


def wait_for_bar(page: Page, name: str, *, there: bool = True) -> None:
    page.wait_for_function(
        """([bar, name, there]) => there === [...document.querySelectorAll(bar)]
               .some((bar) => bar.__data__?.datum?.name === name)""",
        arg=[BAR, SCOPE + name, there],
    )


@pytest.fixture(scope="module")
def split_files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("split"))


@pytest.fixture
def split(browser: Browser, split_files: Files, tmp_path: Path) -> Iterator[Page]:
    """A report of a placement that splits ops, and of one with whole ops."""
    profile = api.load(split_files.profile)
    placed = {"split": api.load(split_files.placement), "whole": api.load(split_files.whole)}
    (tmp_path / "report.html").write_text(api.report(profile, placed), encoding="utf-8")
    found = opened(browser, tmp_path / "report.html", WIDE)
    yield found.page
    assert found.said == []
    found.page.close()


FOLD, NAMES = "#ops .fold", "#ops th button:not(.fold)"


def test_the_ops_of_a_split_op_are_folded(split: Page) -> None:
    split.fill("#query", "product")
    assert split.locator(NAMES).first.inner_text() == "product"
    assert "product.part_0" not in split.locator(NAMES).all_inner_texts()
    assert "MatMul, 2 parts" in split.locator("#ops tbody tr").first.inner_text()
    split.locator(FOLD).first.click()
    assert split.locator(NAMES).all_inner_texts()[:3] == [
        "product",
        "product.part_0",
        "product.part_1",
    ]
    assert split.locator(f"{FOLD}[aria-expanded=true]").count() == 1
    assert split.evaluate("document.activeElement.ariaLabel") == "ops of product"
    split.keyboard.press("Enter")
    assert "product.part_0" not in split.locator(NAMES).all_inner_texts()


def test_a_query_for_a_part_unfolds_its_op(split: Page) -> None:
    split.fill("#query", "product.part_1")
    assert split.locator(NAMES).all_inner_texts()[:3] == [
        "product",
        "product.part_0",
        "product.part_1",
    ]
    split.locator(FOLD).first.click()
    assert split.locator(NAMES).all_inner_texts()[0:1] == ["product"]
    assert "product.part_1" not in split.locator(NAMES).all_inner_texts()


def test_all_parts_of_an_op_are_marked_in_the_chart(split: Page) -> None:
    name = "[data-chart=over_time]:visible .marked_name_marks text"
    split.fill("#query", "product")
    split.locator(NAMES).first.click()
    split.locator(name).nth(1).wait_for(state="attached")
    assert set(split.locator(name).all_text_contents()) == {"product.part_0", "product.part_1"}
    assert split.locator("#ops tr[aria-current]").count() == 1
    split.locator("#switch label", has_text="whole").click()
    split.wait_for_selector("#placement-1 .marked_name_marks text", state="attached")
    assert split.locator(name).all_text_contents() == ["product"]
    assert split.locator("#ops tr[aria-current] button").all_inner_texts() == ["product"]


def test_a_click_on_the_bar_of_a_part_finds_it_among_the_parts(split: Page) -> None:
    bars = "[data-chart=over_time]:visible .mark-rect path"
    place = split.eval_on_selector_all(
        bars, "bars => bars.findIndex((bar) => bar.__data__?.datum?.name === 'product.part_1')"
    )
    split.locator(bars).nth(place).click()
    assert split.locator("#ops tr[aria-current] button").all_inner_texts() == ["product.part_1"]


def test_ops_that_a_plan_adds_have_their_own_colour(split: Page) -> None:
    legend = split.locator("[data-chart=over_time]:visible .role-legend-label text")
    texts = [text for text in legend.all_text_contents() if text.startswith("added")]
    assert texts == ["added: cuts, joins, copies", "added: sums of parts"]
    colour = split.eval_on_selector_all(
        BAR,
        """bars => Object.fromEntries(bars.map((bar) => [bar.__data__?.datum?.type, bar])
            .filter(([type]) => ["Split", "AddN"].includes(type))
            .map(([type, bar]) => [type, bar.getAttribute("fill")]))""",
    )
    assert colour == {"Split": colours.CONVERSION, "AddN": colours.SUM}
    split.locator("#switch label", has_text="whole").click()
    split.wait_for_selector("#placement-1 svg")
    assert not [text for text in legend.all_text_contents() if text.startswith("added")]


def test_a_print_has_charts_and_no_controls(wide: Opened) -> None:
    wide.page.emulate_media(media="print")
    assert wide.page.locator(".placement:visible svg").count() == 3
    for control in ("#switch", ".tools", "#find", "#theme"):
        assert not wide.page.locator(control).first.is_visible()
    wide.page.emulate_media(media="screen")
