#!/usr/bin/env python3
"""Preprocessor of mdBook: replaces links to files outside of the book by the files' paths in the source tree.

If CONDUCTOR_SOURCE_URL is set, such a link leads to that URL followed by the path.

mdBook's protocol: the command `supports RENDERER` reports by its exit code whether the renderer is supported. Without a
command, the preprocessor reads the context and the book as JSON from stdin and writes the changed book to stdout.
"""

import json
import os
import pathlib
import posixpath
import re
import sys

LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")


def source_path(page, target, book):
    """Returns the path of a link's target in the source tree. Returns None if the target is a page or a URL."""
    path, _, fragment = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return None
    in_book = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if not in_book.startswith("../") and in_book != "SUMMARY.md":
        return None
    in_tree = posixpath.normpath(posixpath.join(book, in_book))
    return in_tree + (f"#{fragment}" if fragment else "")


def rewrite(text, page, book):
    """Returns the text of a page with rewritten links to the source tree. Code blocks stay unchanged."""
    def replace(match):
        path = source_path(page, match["target"], book)
        if path is None:
            return match[0]
        if url := os.environ.get("CONDUCTOR_SOURCE_URL"):
            return f'[{match["text"]}]({url.rstrip("/")}/{path})'
        name = path.partition("#")[0]
        return f"`{name}`" if match["text"].strip("`") == name else f'{match["text"]} (`{name}`)'

    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def rewrite_chapters(items, book):
    """Rewrites the links of chapters and their sub-chapters in place."""
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            if chapter.get("path"):
                chapter["content"] = rewrite(chapter["content"], chapter["path"], book)
            rewrite_chapters(chapter["sub_items"], book)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    root = pathlib.Path(context["root"]).resolve()
    folder = root.relative_to(pathlib.Path(__file__).resolve().parents[2]).as_posix()
    rewrite_chapters(book.get("items") or book.get("sections"), folder)
    json.dump(book, sys.stdout)


main()
