"""Counterparts of figures 3.11 to 3.14 of the thesis (M. Chiosa, ETH Zurich, no. 29551) from the numbers of the suite
`correlation`: the time until the last correlation coefficient of all pairs of columns.

Lines and bars are medians; error bars span the fastest and the slowest counted run.
"""

from figure_style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    SKY,
    legend,
    panels_of,
    plain_log,
    short,
    ticks,
)

STYLES = {
    "farpool": {"color": BLACK, "marker": "o", "linewidth": 2.6, "markersize": 7, "zorder": 5},
    "farpool, one thread": {"color": BLUE, "marker": "o", "linestyle": "--"},
    "numpy": {"color": GREEN, "marker": "v"},
    "Polars": {"color": SKY, "marker": "^"},
    "DuckDB": {"color": ORANGE, "marker": "s"},
    "plain loop": {"color": GREY, "marker": "X"},
}
NAMES = {"farpool": "farpool, two threads", "plain loop": "plain loop, one thread"}
WIDTHS = (("16 x int32", "a) 16 columns of int32"), ("32 x int16", "b) 32 of int16"), ("64 x uint8", "c) 64 of uint8"))


def lengths(results: dict):
    """Draws figures 3.11 and 3.13: times by number of rows."""
    panels = [(of_name(results, name), title) for name, title in WIDTHS]
    if not all(len(cases) > 1 for cases, _ in panels):
        return None
    figure, axes = panels_of(3, "Correlations of all pairs of columns")
    for axis, (cases, title) in zip(axes, panels):
        for side in STYLES:
            line(axis, side, [(case["rows"], found) for case in cases if (found := side_of(case, side))])
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(title)
        axis.set_xlabel("rows")
        ticks(axis, [case["rows"] for case in cases])
        plain_log(axis)
    axes[0].set_ylabel("ms until all coefficients are there")
    legend(figure, axes, results, about(results), NAMES, columns=3)
    return figure


def columns(results: dict):
    """Draws figure 3.12: times by number of columns, for engines that compute one pair at a time."""
    cases = [largest(results, f"{count} x int32") for count in (2, 4, 8, 16)]
    if not all(cases):
        return None
    figure, axes = panels_of(1, f"Correlations of all pairs of int32 columns, {short(cases[0]['rows'])} rows")
    axis = axes[0]
    for side in STYLES:
        line(axis, side, [(case["columns"], found) for case in cases if (found := side_of(case, side))])
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("columns")
    ticks(axis, [case["columns"] for case in cases])
    plain_log(axis)
    axis.set_ylabel("ms until all coefficients are there")
    legend(figure, axes, results, about(results), NAMES, columns=3)
    return figure


def throughput(results: dict):
    """Draws figures 3.13 and 3.14: bytes of columns per second."""
    cases = [(largest(results, name), title[3:]) for name, title in WIDTHS]
    if not all(case for case, _ in cases):
        return None
    figure, axes = panels_of(1, f"Correlations of all pairs of columns, {short(cases[0][0]['rows'])} rows")
    axis = axes[0]
    for place, (case, _) in enumerate(cases):
        there = [side for side in STYLES if side_of(case, side)]
        width = 0.86 / max(len(there), 5)
        for number, side in enumerate(there):
            found = side_of(case, side)
            rates = [case["bytes"] / ms / 1e6 for ms in found["times_ms"]]
            middle = case["bytes"] / found["median_ms"] / 1e6
            error = [[middle - min(rates)], [max(rates) - middle]]
            at = place + (number - (len(there) - 1) / 2) * width
            look = {"ecolor": "#555555", "elinewidth": 1, "capsize": 2}
            drawn = axis.bar(at, middle, width * 0.94, color=STYLES[side]["color"], yerr=error, error_kw=look, label=side)
            axis.bar_label(drawn, labels=[f"{middle:.2g}"], fontsize=8, padding=1)
    axis.set_xticks(range(len(cases)), [label for _, label in cases])
    axis.set_yscale("log")
    plain_log(axis)
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("GB/s of the columns")
    axis.axhline(results["limits"]["memory_read_2"], color=RED, linestyle="--", linewidth=1)
    axis.annotate(
        "reading memory, two threads",
        (0, results["limits"]["memory_read_2"]),
        xycoords=("axes fraction", "data"),
        color=RED,
        fontsize=9,
        va="bottom",
    )
    legend(figure, axes, results, about(results), NAMES, columns=3)
    return figure


def line(axis, side: str, points: list[tuple[int, dict]]) -> None:
    if not points:
        return
    ms = [found["median_ms"] for _, found in points]
    low = [median - min(found["times_ms"]) for median, (_, found) in zip(ms, points)]
    high = [max(found["times_ms"]) - median for median, (_, found) in zip(ms, points)]
    style = {"linewidth": 1.5, "markersize": 6, "capsize": 2.5} | STYLES[side]
    axis.errorbar([x for x, _ in points], ms, yerr=[low, high], label=side, **style)


def side_of(case: dict, name: str) -> dict | None:
    return next((side for side in case["sides"] if side["name"] == name), None)


def of_name(results: dict, name: str) -> list[dict]:
    found = [case for case in results["cases"] if case["name"] == name]
    return sorted(found, key=lambda case: case["rows"])


def largest(results: dict, name: str) -> dict | None:
    return next(reversed(of_name(results, name)), None)


def about(results: dict) -> str:
    return f"median of {results['runs']} runs, engines with {results['threads']} threads"


FIGURES = (lengths, columns, throughput)
