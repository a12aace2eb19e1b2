"""A reader of cards that knows what one may hold: a few tags, no scripts, nothing from outside."""

from html.parser import HTMLParser

TAGS = {"div", "style", "img", "span", "i", "table", "tr", "th", "td", "bdi"}
ATTRIBUTES = {"class", "scope", "style", "alt", "title", "src", "aria-hidden"}


class Card(HTMLParser):
    """A card that was read; texts are `words`, pictures `sources`."""

    def __init__(self, html):
        super().__init__()
        self.open, self.words, self.titles, self.sources, self.style = [], [], [], [], ""
        html.encode()  # no half of a character
        assert len(html.splitlines()) == 1
        self.feed(html)
        self.close()
        assert self.open == []
        assert "url(" not in self.style
        assert "@import" not in self.style

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS
        assert {name for name, _ in attributes} <= ATTRIBUTES
        found = dict(attributes)
        assert (tag == "img") == ("src" in found)
        if tag == "img":
            assert found["src"].startswith("data:image/png;base64,")
            self.sources.append(found["src"])
        else:
            self.open.append(tag)
        if tag == "i":
            assert found["style"].startswith("width:")
        else:
            assert "style" not in found
        self.titles += [found["title"]] if "title" in found else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    def handle_data(self, data):
        if self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)
