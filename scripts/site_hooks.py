"""MkDocs hooks: publish what the repository keeps outside of ``docs/``.

The pages link to each other, to the pages at the root of the repository, to examples and to source
files, with relative links that work in a clone. The site contains the first three: the pages at the
root and the examples become pages of the site, and links to them are rewritten. Links to other
files are replaced by their text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OPENAPI = "<!-- openapi: the documentation site lists every operation here -->"

#: Pages at the root of the repository, and where they are in the site.
ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
EXAMPLES = {
    f"examples/{path.name}": f"examples/{path.stem}.md"
    for path in sorted((ROOT / "examples").glob("*.py"))
}
#: Each page of the site that is not a file in ``docs/``, and the path that it has in a clone.
SOURCES = {page: source for source, page in (ROOT_PAGES | EXAMPLES).items()}

FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root, one page per example, and a list of the examples."""
    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    lines = []
    for source, page in EXAMPLES.items():
        code = (ROOT / source).read_text("utf-8")
        name = Path(source).name
        text = f"# {name}\n\n```python\n{code}```\n"
        files.append(File.generated(config, page, content=text))
        summary = code.partition('"""')[2].partition("\n")[0].removesuffix('"""')
        lines.append(f"| [{name}]({page}) | {summary} |")
    intro = "# Examples\n\nEach file runs without an API key, in an empty folder.\n"
    table = "\n".join(["", "| file | what it shows |", "|---|---|", *lines, ""])
    files.append(File.generated(config, "examples.md", content=intro + table))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave ``docs/``, and write the list of HTTP operations."""
    here = page.file.src_uri
    if here == "examples.md":
        return markdown
    source = SOURCES.get(here, f"docs/{here}")

    def rewrite(match: re.Match[str]) -> str:
        bang, text, target = match.groups()
        if re.match(r"[a-z][a-z+.-]*:|#", target):
            return match[0]
        path, _, fragment = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if path in ("examples", "examples/"):
            site = "examples.md"
        elif path in ROOT_PAGES or path in EXAMPLES:
            site = (ROOT_PAGES | EXAMPLES)[path]
        elif path.startswith("docs/"):
            site = path.removeprefix("docs/")
        else:
            return text
        relative = posixpath.relpath(site, posixpath.dirname(here) or ".")
        return f"{bang}[{text}]({relative}{'#' + fragment if fragment else ''})"

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):  # code is left as it is
        parts += [LINK.sub(rewrite, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    parts.append(LINK.sub(rewrite, markdown[end:]))
    return "".join(parts).replace(OPENAPI, operations() if OPENAPI in markdown else "")


def operations() -> str:
    """Return the operations of the server's OpenAPI document as Markdown, one table per tag."""
    from sayso import create_app

    document: dict[str, Any] = create_app(store="memory://").openapi()
    tables: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["API"])[0]
            statuses = ", ".join(sorted(operation["responses"]))
            summary = operation.get("description") or operation.get("summary", "")
            summary = " ".join(summary.split()).replace("|", "\\|")
            row = f"| `{method.upper()} {path}` | {summary} | {statuses} |"
            tables.setdefault(tag, ["| operation | what it does | answers |", "|---|---|---|"])
            tables[tag].append(row)
    return "\n\n".join(f"## {tag.capitalize()}\n\n" + "\n".join(t) for tag, t in tables.items())
