# SPDX-License-Identifier: BSD-3-Clause
"""What was measured, as data. Each JSON file of this folder is a section of
docs/results.md, and the one place that has its numbers:

  title     the section's heading
  commands  what measured it; a blank line parts two of them
  needs     why a reader does not just run them
  body      what follows, in order: a string is a paragraph, or an item of a list
            (`- `) or a heading of its own (`### `); {"table": name, "head": [...],
            "rows": [[...], ...]}; {"picture": file in docs/charts, "says": text}

tools/charts draws from the same tables, by their names. Next: bench/report,
which writes the page."""
import glob
import json
import os
import re
import textwrap

FOLDER = os.path.dirname(os.path.abspath(__file__))


def load():
    """{name of the file without .json: section}, in the order of the names."""
    found = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)[:-5]] = json.load(file)
    return found


def save(name, section):
    """Writes a section; a row of a table is a line, so that changes read well."""
    parts = []
    for key, value in section.items():
        if key == "body":
            items = ",\n  ".join(_text(item) for item in value)
            parts.append('"body": [\n  %s\n ]' % items)
        else:
            parts.append("%s: %s" % (json.dumps(key), _lines(value)))
    with open(os.path.join(FOLDER, name + ".json"), "w",
              encoding="utf-8") as file:
        file.write("{\n %s\n}\n" % ",\n ".join(parts))


def _plain(value):
    return json.dumps(value, ensure_ascii=False)


def _lines(value):
    if isinstance(value, list):
        return "[%s\n ]" % ",".join("\n  " + _plain(one) for one in value)
    return _plain(value)


def _text(item):
    if isinstance(item, dict) and "table" in item:
        rows = ",\n    ".join(_plain(row) for row in item["rows"])
        return '{"table": %s,\n   "head": %s,\n   "rows": [\n    %s]}' % (
            _plain(item["table"]), _plain(item["head"]), rows)
    return _plain(item)


def table(name):
    """The head and the rows of the table of that name, head first."""
    for section in load().values():
        for item in section["body"]:
            if isinstance(item, dict) and item.get("table") == name:
                return [item["head"]] + item["rows"]
    raise LookupError("bench/results has no table %s" % name)


def read(lines, name):
    """The body that lines of Markdown are; tables are called name, name-2 ..."""
    body, paragraph, n_tables = [], [], 0

    def end():
        if paragraph:
            body.append(" ".join(paragraph))
            paragraph.clear()

    rows = []
    for line in lines + [""]:
        if line.startswith("|"):
            end()
            if not re.match(r"\|[ :|-]+\|$", line):
                rows.append([cell.strip() for cell in
                             line.strip()[1:-1].split("|")])
            continue
        if rows:
            n_tables += 1
            body.append({"table": name if n_tables == 1 else
                         "%s-%d" % (name, n_tables),
                         "head": rows[0], "rows": rows[1:]})
            rows = []
        picture = re.match(r"!\[(.*)\]\(.*?([\w-]+\.(?:svg|png))\)$", line)
        if picture:
            end()
            body.append({"picture": picture[2], "says": picture[1]})
        elif not line.strip():
            end()
        else:
            if line.startswith(("- ", "#")):
                end()
            paragraph.append(line.strip())
    return body


def _wrap(text, is_item):
    """Lines of a paragraph; what is code stays on one."""
    text = re.sub(r"`[^`]*`", lambda m: m[0].replace(" ", "\0"), text)
    return [line.replace("\0", " ") for line in textwrap.wrap(
        text, 80, subsequent_indent="  " if is_item else "",
        break_long_words=False, break_on_hyphens=False)]


def write(body):
    """Lines of Markdown for docs/results.md."""
    lines = []
    for k, item in enumerate(body):
        if isinstance(item, str):
            is_item = item.startswith("- ")
            if not (is_item and k and isinstance(body[k - 1], str) and
                    body[k - 1].startswith("- ")):
                lines.append("")
            lines += [item] if item.startswith("#") else _wrap(item, is_item)
        elif "table" in item:
            lines += ["", "| %s |" % " | ".join(item["head"]),
                      "|%s" % (" --- |" * len(item["head"]))]
            lines += ["| %s |" % " | ".join(row) for row in item["rows"]]
        else:
            lines += ["", "![%s](charts/%s)" % (item["says"],
                                               item["picture"])]
    return lines
