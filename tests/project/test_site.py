"""The built site in a browser, at a laptop's and a phone's width. `CUDML_TEST_SITE` is where it was built.

Nothing is broken, cut off or reported in the console, and the search finds things.
"""

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SITE = Path(os.environ.get("CUDML_TEST_SITE", ""))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

#: What a script finds wrong with a page: images that did not load, and elements beyond their container or the
#: screen that nothing lets the reader scroll to.
PROBLEMS = """() => {
  const found = [];
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const told = (element) => `${element.tagName} ${(element.alt || element.textContent).trim().slice(0, 40)}`;
  for (const image of document.images)
    if (!image.complete || !image.naturalWidth) found.push(`broken image ${image.src}`);
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width)
    found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const article = document.querySelector("article") ?? document.body;
  for (const element of article.querySelectorAll("table, pre, img, p, li, dt, dd, h1, h2, h3, td, th")) {
    const box = element.getBoundingClientRect();
    if (!box.width) continue;
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX === "hidden")
      found.push(`cut off inside: ${told(element)}`);
    let around = element.parentElement;
    while (around && !scrolls(around) && around !== document.body) around = around.parentElement;
    const right = around === document.body || !around ? width : Infinity;
    if (box.right > right + 1 || box.left < -1) found.push(`cut off: ${told(element)}`);
  }
  for (const text of document.querySelectorAll(".prev-next-title, nav .nav-link")) {
    const link = text.closest("a") ?? text;
    if (link.clientWidth && link.scrollWidth > link.clientWidth + 1) found.push(`cut off: ${told(text)}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a server of the site answers."""
    if not SITE.joinpath("index.html").is_file():
        pytest.skip("no built site: CUDML_TEST_SITE=build/site, after `sphinx-build docs build/site`")
    handler = functools.partial(_Silent, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a screen."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="pip install --group browser")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *told: Any) -> None:
        """Nothing."""


def opened(browser: Any, width: int) -> tuple[Any, list[str]]:
    """A tab of a width, and a list to which it adds what its console reports, missing files among it."""
    tab = browser.new_page(viewport={"width": width, "height": 900})
    reported: list[str] = []
    tab.on("console", lambda message: reported.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: reported.append(str(error)))
    return tab, reported


@pytest.mark.parametrize("width", [1360, 400])
def test_no_page_has_a_broken_image_a_cut_table_or_an_error(browser: Any, address: str, width: int) -> None:
    pages = sorted(
        path.relative_to(SITE).as_posix()
        for path in SITE.rglob("*.html")
        if not {"_static", "files"} & set(path.relative_to(SITE).parts)
    )
    assert {"index.html", "performance/gru.html", "_api/cudml.top_k.html"} <= set(pages)
    tab, reported = opened(browser, width)
    problems = []
    for page in pages:
        tab.goto(f"{address}/{page}", wait_until="load")
        problems += [f"{page}: {problem}" for problem in (*tab.evaluate(PROBLEMS), *reported)]
        reported.clear()
    assert not problems, "\n".join(problems)


def test_what_is_wrong_is_found(browser: Any, tmp_path: Path) -> None:
    """Each kind of problem, planted."""
    page = tmp_path / "page.html"
    wide = "<table><tr><td style='min-width: 900px'>a table</td></tr></table>"
    page.write_text(
        f"<article><img src='none.png' alt=''>{wide}<div style='overflow-x: auto'>{wide}</div>"
        "<p style='overflow: hidden; white-space: nowrap; width: 50px'>a long line of text</p></article>"
        "<script>missing()</script>"
    )
    tab, reported = opened(browser, 400)
    tab.goto(page.as_uri(), wait_until="load")
    found = tab.evaluate(PROBLEMS)
    assert [problem.partition(" file:")[0] for problem in found] == [
        "broken image",
        f"the page is {found[1].split()[3]} wide",
        "cut off: TABLE a table",
        "cut off: TD a table",
        "cut off inside: P a long line of text",
    ]
    assert any("missing is not defined" in text for text in reported)
    assert any("Failed to load resource" in text for text in reported)


@pytest.mark.parametrize(
    ("width", "word", "page"), [(1360, "reverse_subsequences", "_api/"), (400, "ragged", "")]
)
def test_the_search_finds(browser: Any, address: str, width: int, word: str, page: str) -> None:
    """Typed into the field that the bar's button opens."""
    tab, reported = opened(browser, width)
    tab.goto(f"{address}/index.html", wait_until="load")
    tab.locator(".search-button:visible").first.click()
    tab.locator("input[type=search]:visible").first.fill(word)
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#search-results li a", timeout=20_000)
    links = [link.get_attribute("href") for link in tab.locator("#search-results li a").all()]
    assert links
    assert any(page in link for link in links)
    tab.goto(f"{address}/search.html?q=zzzzqqqq", wait_until="load")
    tab.wait_for_function("document.querySelector('#search-results').textContent.includes('did not match')")
    assert not reported
