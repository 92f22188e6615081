#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when a page of the site links to a page, an image or an anchor that is not there. Contacts nothing.

  docs/site/check_links.py SITE
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append((value, self.getpos()[0]))


def faults_of(site, pages):
    for path, page in pages.items():
        for link, line in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_relative_to(site):
                yield f"{path.relative_to(site)}:{line}: {link} leads out of the site"
            elif not target.is_file():
                yield f"{path.relative_to(site)}:{line}: {link} is not there"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site)}:{line}: {link}: the page has no such anchor"


def main():
    site = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    faults = sorted(set(faults_of(site, pages)))
    for fault in faults:
        print(f"check_links: {fault}", file=sys.stderr)
    print(f"check_links: {len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
