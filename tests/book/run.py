#!/usr/bin/env python3
"""Builds the book and checks every link of its pages.

    tests/book/run.py [MDBOOK]

MDBOOK is the path of mdBook (default: `mdbook`). mdBook writes the pages to target/book.
"""

import html.parser
import pathlib
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOK = ROOT / "target/book"
# Pages that mdBook generates. print.html has the anchors of all pages in one document.
OWN_PAGES = ("404.html", "print.html", "toc.html")


class Page(html.parser.HTMLParser):
    """Parser that collects the links and anchors of a page."""

    def __init__(self, file):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name == "id":
                self.anchors.add(value)


def problems(pages):
    """Yields an error message for each broken link."""
    for file, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (file.parent / urllib.parse.unquote(url.path)).resolve() if url.path else file
            name = file.relative_to(BOOK)
            if not target.is_relative_to(BOOK):
                yield f"{name}: {link} leads out of the book"
            elif not target.is_file():
                yield f"{name}: {link} leads to a file that the book does not have"
            elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].anchors:
                yield f"{name}: {link} has a fragment without an anchor"


def main():
    mdbook = sys.argv[1] if len(sys.argv) > 1 else "mdbook"
    completed = subprocess.run([mdbook, "build", ROOT / "host/docs"], capture_output=True, text=True)
    sys.stderr.write(completed.stderr)
    if completed.returncode or "WARN" in completed.stderr or "ERROR" in completed.stderr:
        sys.exit("error: mdBook failed or printed a warning")
    files = [file for file in BOOK.rglob("*.html") if file.name not in OWN_PAGES]
    pages = {file: Page(file) for file in files}
    if len(pages) < 20:
        sys.exit(f"error: the book has only {len(pages)} pages")
    found = sorted(set(problems(pages)))
    print("\n".join(found))
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(found)} broken")
    sys.exit(bool(found))


main()
