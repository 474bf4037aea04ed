"""The page at `/` loads nothing from other servers, chats, and shows the state of the engine."""

from __future__ import annotations

import re
from shutil import which

import httpx
import pytest

from tests.serve.server_process import fake

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run", "--disable-quic"]


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, step_s=0.02, max_model_len=1024, pages=256, api_key="secret") as made:
        yield made


def test_the_page_is_one_file_that_loads_nothing_else(server):
    found = httpx.get(server.url)
    assert found.status_code == 200 and found.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert not re.search(r"https?:|//\w|<link|src=|@import|url\(", found.text)


def test_every_element_that_the_script_names_is_there(server):
    text = httpx.get(server.url).text
    named = set(re.findall(r'\$\("(\w+)"\)', text))
    assert named and named == set(re.findall(r'\bid="(\w+)"', text))


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if which("chromium") is None:
        pytest.skip("there is no chromium on this machine")
    with sync.sync_playwright() as p:
        made = p.chromium.launch(executable_path=which("chromium"), args=FLAGS)
        yield made
        made.close()


def test_one_chats_in_a_browser_and_sees_what_the_engine_does(server, browser):
    from playwright.sync_api import expect

    page = browser.new_page()

    def has_text(what, text):
        expect(page.locator(what)).to_have_text(text, timeout=20000)

    problems = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(server.url)
    has_text("#model", "tiny")
    page.fill("#text", "Hello")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.error")
    assert "API key" in page.inner_text("article.error")

    page.click("summary")
    page.fill("#key", "secret")
    page.fill("#most", "20")
    page.fill("#temperature", "0")  # so that it is known how long answers are
    page.fill("#text", "Hello again")
    page.click("#send")
    page.wait_for_selector("article.assistant small")
    assert re.search(r"\d+ tokens, first after \d+ ms", page.inner_text("article.assistant small"))
    assert page.inner_text("article.user:nth-of-type(1)") == "Hello"

    page.fill("#most", "400")
    page.fill("#text", "A long one")
    page.click("#send")
    has_text("#running", "1")
    assert float(page.inner_text("#percent")) > 0
    page.click("#send")  # it says Stop now
    has_text("#send", "Send")
    has_text("#running", "0")
    server.at_rest()
    page.click("#fresh")
    assert page.locator("article").count() == 0 and not problems
