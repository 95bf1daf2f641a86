"""Progress of loads: a line in terminals, a bar in notebooks, and no output elsewhere or for short loads."""

from __future__ import annotations

import sys
import time
from typing import Any

#: Seconds that pass before anything is shown.
PATIENCE = 0.5
#: Seconds between two lines.
REFRESH = 0.1


class Progress:
    """Context manager that shows the progress of a load."""

    def __init__(self, label: str, show: bool | None = None) -> None:
        self._label = label
        self._start = time.monotonic()
        self._last = 0.0
        self._width = 0
        self._handle: Any = None
        self._notebook = _notebook()
        self.is_shown = show if show is not None else self._notebook is not None or sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        return self

    def __call__(self, done: int, total: int, rows: int) -> None:
        """Shows that ``done`` of ``total`` bytes, and ``rows`` rows, have been read."""
        now = time.monotonic()
        if not self.is_shown or now - self._start < PATIENCE or now - self._last < REFRESH:
            return
        self._last = now
        text = f"{self._label}: {rows:,} rows"
        if total:
            text += f", {done / total:.0%} of {_size(total)}"
        if self._notebook is not None:
            self._show_html(text, done / total if total else None)
        else:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.update(_Html(""))
        elif self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()

    def _show_html(self, text: str, part: float | None) -> None:
        import html

        value = "" if part is None else f' value="{part:.3f}"'
        shown = _Html(f"<progress{value}></progress> {html.escape(text)}")
        if self._handle is None:
            self._handle = self._notebook(shown, display_id=True)
        else:
            self._handle.update(shown)


class _Html:
    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return ""


def _notebook() -> Any:
    """Returns the display function of the notebook, or ``None`` outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
