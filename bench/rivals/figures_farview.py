"""Counterparts of Farview's figures 7 to 12 from the numbers of the suite `farview`.

Times are medians; error bars span the fastest and the slowest counted run. Axes of times and sizes are logarithmic,
because sides differ by more than a factor of ten. Local engines have solid lines.
"""

from figure_style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    OLIVE,
    ORANGE,
    PINK,
    RED,
    SKY,
    caption as caption_of,
    panels_of,
    plain_log,
    short,
    ticks,
)

STYLES = {
    "farpool": {"color": BLACK, "marker": "o", "linewidth": 2.6, "markersize": 7, "zorder": 5},
    "DuckDB": {"color": ORANGE, "marker": "s"},
    "Polars": {"color": SKY, "marker": "^"},
    "DataFusion": {"color": GREEN, "marker": "v"},
    "chDB": {"color": PINK, "marker": "D"},
    "RE2": {"color": OLIVE, "marker": "P"},
    "Quack": {"color": RED, "marker": "X", "linestyle": "--"},
    "Flight": {"color": BLUE, "marker": "*", "markersize": 9, "linestyle": "--"},
    "LiquidCache": {"color": GREY, "marker": "h", "linestyle": "--"},
}
ENCRYPTION_STYLES = {
    "farpool": STYLES["farpool"],
    "farpool, encrypted": {"color": BLUE, "marker": "v"},
    "farpool, encrypted results": {"color": GREEN, "marker": "^"},
    "farpool, both encrypted": {"color": PINK, "marker": "D"},
    "DuckDB": STYLES["DuckDB"],
    "DuckDB file": {"color": OLIVE, "marker": "P", "linestyle": "--"},
    "DuckDB encrypted": {"color": RED, "marker": "X", "linestyle": "--"},
}
BASE = {"linewidth": 1.5, "markersize": 6, "capsize": 2.5}


def projection(results: dict):
    """Draws figure 7."""
    return by_size(results, "Projecting 3 columns of 64", [("project 3 of 64", "")])


def selection(results: dict):
    """Draws figure 8; the paper has no panel for 1 %."""
    shares = ["100 %", "50 %", "25 %", "1 %"]
    panels = [(f"select {share}", f"{letter}) {share} selected") for letter, share in zip("abcd", shares)]
    return by_size(results, "SELECT * FROM s WHERE a < X AND b < Y", panels)


def grouping(results: dict):
    """Draws figure 9."""
    panels = [
        ("distinct 1 M", "a) DISTINCT, up to 1 M values"),
        ("group by 16", "c) SUM with GROUP BY, 16 groups"),
    ]
    found = [(cases_of(results, name), title) for name, title in panels]
    groups = [largest(results, f"group by {count}") for count in ("16", "1 M", "8 M")]
    groups = sorted((case for case in groups if case), key=lambda case: case["result_rows"])
    if not groups or not all(cases for cases, _ in found):
        return None
    figure, axes = panels_of(3, "Grouping")
    lines(axes[0], found[0][0], lambda case: case["table_rows"])
    size_axis(axes[0], found[0][0], found[0][1])
    lines(axes[1], groups, lambda case: case["result_rows"])
    axes[1].set_title(f"b) SUM with GROUP BY, {short(groups[0]['table_rows'])} rows")
    axes[1].set_xlabel("groups")
    ticks(axes[1], [case["result_rows"] for case in groups])
    lines(axes[2], found[1][0], lambda case: case["table_rows"])
    size_axis(axes[2], found[1][0], found[1][1])
    return finished(figure, axes, results)


def patterns(results: dict):
    """Draws figure 10."""
    lengths = [16, 64, 256]
    panels = []
    for kind, title in (("like", "a) LIKE '%fox%bar%'"), ("regex", "b) fox[0-9]{2}.*ba[rz]")):
        cases = [largest(results, f"{kind}, {length} bytes") for length in lengths]
        if not all(cases):
            return None
        panels.append((cases, title))
    rows = short(panels[0][0][0]["table_rows"])
    figure, axes = panels_of(2, f"Patterns that half of {rows} strings match")
    for axis, (cases, title) in zip(axes, panels):
        length = {case["name"]: bytes_ for case, bytes_ in zip(cases, lengths)}
        lines(axis, cases, lambda case, length=length: length[case["name"]])
        axis.set_title(title)
        axis.set_xlabel("bytes of a string")
        ticks(axis, lengths)
    return finished(figure, axes, results)


def encryption(results: dict):
    """Draws figure 11."""
    cases = cases_of(results, "read all")
    if not cases:
        return None
    figure, axes = panels_of(1, "Reading all of a table, encrypted")
    lines(axes[0], cases, lambda case: case["table_rows"], ENCRYPTION_STYLES)
    size_axis(axes[0], cases, "8 columns of 8 bytes")
    return finished(figure, axes, results, ENCRYPTION_STYLES, {"farpool, encrypted": "farpool, encrypted table"})


def clients(results: dict):
    """Draws figure 12."""
    one, six = largest(results, "distinct 16"), largest(results, "distinct 16, 6 clients")
    if not one or not six:
        return None
    figure, axes = panels_of(1, f"DISTINCT of 16 values in {short(six['table_rows'])} rows")
    axis, sides = axes[0], [side for side in STYLES if side in six["sides"]]
    width = 0.38
    for offset, case, label, alpha in ((-width / 2, one, "one client", 0.45), (width / 2, six, "6 clients", 1)):
        for place, side in enumerate(sides):
            ms = case["sides"].get(side, {}).get("median_ms")
            if ms is None:
                continue
            bar = axis.bar(place + offset, ms, width, color=STYLES[side]["color"], alpha=alpha)
            axis.bar_label(bar, fmt=lambda value: f"{value:.3g}", fontsize=9, padding=2)
    axis.set_xticks(range(len(sides)), sides)
    axis.set_yscale("log")
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("ms until the last client has its result")
    axis.set_title("pale: one client alone; full: six at once")
    plain_log(axis)
    axis.set_xlabel(caption(results), fontsize=8.5, labelpad=10)
    return figure


def by_size(results: dict, title: str, panels: list[tuple[str, str]]):
    """Draws a panel for each case: times by table size."""
    found = [(cases_of(results, name), panel) for name, panel in panels]
    found = [(cases, panel) for cases, panel in found if cases]
    if not found:
        return None
    figure, axes = panels_of(len(found), title)
    for axis, (cases, panel) in zip(axes, found):
        lines(axis, cases, lambda case: case["table_rows"])
        size_axis(axis, cases, panel)
    return finished(figure, axes, results)


def lines(axis, cases: list[dict], place, styles: dict = STYLES) -> None:
    """Draws a line for each side through the cases."""
    for side, style in styles.items():
        points = [(place(case), case["sides"][side]) for case in cases if side in case["sides"]]
        if not points:
            continue
        ms = [times["median_ms"] for _, times in points]
        low = [median - min(times["times_ms"]) for median, (_, times) in zip(ms, points)]
        high = [max(times["times_ms"]) - median for median, (_, times) in zip(ms, points)]
        axis.errorbar([x for x, _ in points], ms, yerr=[low, high], label=side, **(BASE | style))
    axis.set_xscale("log")
    axis.set_yscale("log")
    plain_log(axis)


def size_axis(axis, cases: list[dict], title: str) -> None:
    axis.set_title(title)
    axis.set_xlabel("rows of the table")
    ticks(axis, [case["table_rows"] for case in cases])


def finished(figure, axes: list, results: dict, styles: dict = STYLES, renamed: dict | None = None):
    """Labels the time axes at the left and adds one legend below all panels."""
    columns = axes[0].get_subplotspec().get_gridspec().ncols
    for axis in axes[::columns]:
        axis.set_ylabel("ms to the last byte")
    labels: dict = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            labels.setdefault(label, handle)
    order = [side for side in styles if side in labels]
    names = {name: f"{name} (remote)" for name in ("farpool", "Quack", "Flight", "LiquidCache")} | (renamed or {})
    figure.legend(
        [labels[side] for side in order],
        [names.get(side, side) for side in order],
        loc="outside lower center",
        ncols=4,
        columnspacing=1.0,
        fontsize=9,
        frameon=False,
        title=caption(results),
        title_fontproperties={"size": 8.5},
    )
    return figure


def cases_of(results: dict, name: str) -> list[dict]:
    """Returns the measurements of a case at all sizes, smallest first."""
    found = [case for case in results["cases"] if case["name"] == name]
    return sorted(found, key=lambda case: case["table_rows"])


def largest(results: dict, name: str) -> dict | None:
    return next((case for case in reversed(cases_of(results, name))), None)


def caption(results: dict) -> str:
    return caption_of(results, f"median of {results['runs']} runs, {results['threads']} threads a side")


FIGURES = (projection, selection, grouping, patterns, encryption, clients)
