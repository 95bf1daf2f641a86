"""Display of rows as a table: text for terminals, HTML for notebooks."""

from __future__ import annotations

import datetime
import html
from typing import Any, Sequence

#: Rows that are shown.
ROWS = 20
#: Characters of a value that are shown.
WIDTH = 60

_STYLE = "text-align:right;white-space:nowrap"


def shown(value: Any) -> str:
    """Formats a value as one line of text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if value == value and abs(value) < 1e15 else str(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    text = str(value).replace("\n", "⏎").replace("\r", "␍").replace("\t", "→")
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def table(columns: Sequence[tuple[str, str]], rows: Sequence[tuple], has_more: bool) -> str:
    """Formats rows as lines of text."""
    cells = [[name for name, _ in columns], [kind for _, kind in columns]]
    cells += [[shown(value) for value in row] for row in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    is_number = [_is_number(kind) for _, kind in columns]
    lines = [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, is_number)
        ).rstrip()
        for line in cells
    ]
    lines.insert(2, "  ".join("─" * width for width in widths))
    lines.append(_told(len(rows), has_more))
    return "\n".join(lines)


def html_table(columns: Sequence[tuple[str, str]], rows: Sequence[tuple], has_more: bool) -> str:
    """Formats rows as HTML; all text from the data is escaped."""
    escape = html.escape
    head = "".join(
        f'<th style="{_STYLE if _is_number(kind) else "text-align:left"}">{escape(name)}'
        f'<br><small style="font-weight:normal">{escape(kind)}</small></th>'
        for name, kind in columns
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_STYLE if _is_number(kind) else "text-align:left"}">'
            + ("<i>NULL</i>" if value is None else escape(shown(value)))
            + "</td>"
            for value, (_, kind) in zip(row, columns)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div><table class="dataframe"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"<p><small>{escape(_told(len(rows), has_more))}</small></p></div>"
    )


def _is_number(kind: str) -> bool:
    return kind.upper().startswith(
        ("TINYINT", "SMALLINT", "INT", "BIGINT", "UINT", "DOUBLE", "FLOAT", "REAL", "DECIMAL", "NUMERIC")
    ) or "UNSIGNED" in kind.upper()


def _told(count: int, has_more: bool) -> str:
    if has_more:
        return f"(the first {count} rows)"
    return "(1 row)" if count == 1 else f"({count} rows)"
