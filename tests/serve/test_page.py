"""The page at /, in a real browser: what a person sees, on a desk and on a phone."""

import base64

import pytest

from serving import picture

PHONE = {"width": 390, "height": 844}


class Seen:
    """A page, and what it complained about or asked others for."""

    def __init__(self, browser, server, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.errors, self.outside = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("request", lambda asked: self._note(asked.url, server.address))
        self.page.goto(server.address)
        self.page.locator("#task option").first.wait_for(state="attached")

    def _note(self, url, address):
        if not url.startswith((address, "blob:", "data:")):
            self.outside.append(url)

    def drop(self, name, content, kind="image/png"):
        """Let go of a file over the page, as a mouse does."""
        made = (
            "([name, kind, text]) => { const held = new DataTransfer(); const bytes = Uint8Array.from(atob(text), (one) => "
        )
        made += "one.charCodeAt(0)); held.items.add(new File([bytes], name, { type: kind })); return held; }"
        held = self.page.evaluate_handle(made, [name, kind, base64.b64encode(content).decode()])
        self.page.dispatch_event("#drop", "drop", {"dataTransfer": held})

    def answered(self, count=1):
        self.page.locator(".chart, .wrong").nth(count - 1).wait_for()
        self.page.locator(".waiting").first.wait_for(state="detached")

    def wider_than_the_screen(self):
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.fixture
def seen(browser, server):
    found = Seen(browser, server)
    yield found
    found.context.close()


def test_a_dropped_image_gets_its_label_and_two_tasks_are_compared(seen, server):
    content = picture(1)
    expected = {task: server.predict(task, ("a", content))[1]["predictions"][0] for task in ("birds", "boats")}
    seen.page.select_option("#task", "birds")
    assert "3 classes by mapping gaussian" in seen.page.inner_text("#about")
    seen.page.select_option("#other", "boats")
    seen.drop("mine <b>.png", content)
    seen.answered(2)
    assert seen.page.locator(".label").all_inner_texts() == [expected[task]["label"] for task in ("birds", "boats")]
    share = f"{100 * expected['birds']['probability']:.1f} %"
    assert share in seen.page.locator(".answer").first.inner_text()
    assert seen.page.locator(".chart").first.locator("rect").count() == 5
    assert seen.page.inner_text("figcaption") == "mine <b>.png"  # as text, not as markup
    assert (seen.errors, seen.outside) == ([], [])


def test_a_prediction_set_says_how_sure_it_is(seen, server):
    content = picture(1)
    expected = server.predict("birds", ("a", content), coverage=0.8)[1]["predictions"][0]["set"]
    seen.page.select_option("#task", "birds")
    seen.page.click("details.options summary")
    seen.page.select_option("#coverage", "0.8")
    seen.drop("a.png", content)
    seen.answered()
    assert seen.page.inner_text(".set") == f"Prediction set at 80 %: {', '.join(expected) or 'no class fits'}"
    assert seen.errors == []


def test_a_bad_file_gets_a_readable_message(seen):
    seen.drop("notes.txt", b"hello", "text/plain")
    seen.answered()
    message = seen.page.inner_text(".wrong")
    assert message.startswith("Image notes.txt is no image")
    assert message.endswith(".")
    assert all("415" in error for error in seen.errors)  # the browser's own note of the answer
    assert seen.outside == []


def test_a_phone_scrolls_in_one_direction_and_its_camera_works(browser, server):
    phone = Seen(browser, server, viewport=PHONE, has_touch=True, permissions=["camera"])
    assert phone.wider_than_the_screen() <= 0
    phone.page.select_option("#other", "padded")
    one, other = (phone.page.locator(place).bounding_box() for place in ("#task", "#other"))
    assert one["x"] == other["x"]  # one above the other: beside each other the names would be cut off
    phone.page.click("#camera")
    phone.page.locator("#shot").wait_for()
    phone.page.locator("#video").evaluate(
        "(video) => new Promise((done) => video.videoWidth ? done() : video.onplaying = done)"
    )
    phone.page.click("#shot")
    phone.answered(2)
    assert phone.page.inner_text("figcaption") == "camera.jpg"
    phone.page.click("#stop")
    assert phone.page.is_hidden("#stage")
    assert phone.wider_than_the_screen() <= 0
    smallest = phone.page.evaluate(
        "Math.min(...[...document.querySelectorAll('button, .button, select')].filter((one) => "
        "one.offsetHeight).map((one) => one.offsetHeight))"
    )
    assert smallest >= 44
    phone.page.goto(f"{server.address}/docs")
    assert phone.wider_than_the_screen() <= 0
    assert (phone.errors, phone.outside) == ([], [])
    phone.context.close()


def test_the_keyboard_reaches_everything(seen):
    reached = []
    for _ in range(8):
        seen.page.keyboard.press("Tab")
        reached.append(seen.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert [name for name in reached if name in ("task", "other", "files", "camera", "SUMMARY")] == [
        "task",
        "other",
        "files",
        "camera",
        "SUMMARY",
    ]
