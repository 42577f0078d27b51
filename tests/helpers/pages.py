"""What a web page holds besides text."""

from html.parser import HTMLParser

ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "span", "b", "i", "img", "mark"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.problems, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in ALLOWED:
            self.problems.append(tag)
        for name, value in attrs:
            outside = name in ("src", "href") and not (value or "").startswith("data:image/png;base64,")
            if outside or name.startswith("on") or "url(" in (value or ""):
                self.problems.append((tag, name, value))

    def handle_data(self, data):
        self.text += data


def problems_of(page):
    """Elements that no page of ours has, and attributes that run code or load anything; and the text of the page."""
    reader = _Reader()
    reader.feed(page)
    return reader.problems, reader.text
