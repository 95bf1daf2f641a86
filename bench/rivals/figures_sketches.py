"""Counterparts of figures 4.12 and 4.13 of the thesis (M. Chiosa, ETH Zurich, no. 29551) from the numbers of the suite
`sketches`: throughput of sketch updates, from memory, in a pool and over TCP.

Bars are medians; error bars span the 5th to the 95th percentile of the runs.
"""

from figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, legend, panels_of, quantiles

SIDES = {
    "library": {"color": BLACK},
    "pool": {"color": BLUE},
    "remote": {"color": SKY},
    "naive": {"color": GREY},
    "DuckDB": {"color": ORANGE},
    "chDB": {"color": PINK},
    "DataSketches": {"color": GREEN},
}
NAMES = {
    "library": "farpool: column in memory",
    "pool": "farpool: pool in the process",
    "remote": "farpool: node, over TCP",
    "naive": "naive loops, in memory",
    "DuckDB": "DuckDB, own estimator",
    "chDB": "chDB uniqHLL12",
    "DataSketches": "DataSketches from Python",
}
COLUMNS = {"uniform": "uniform", "zipf15": "Zipf 1.5", "zipf2": "Zipf 2", "zipf3": "Zipf 3"}
CASES = ["HLL", "CM", "AGMS", "all three"]

# Throughput of the thesis' software for all three sketches with one thread.
THESIS = 0.3


def throughput(results: dict):
    """Draws figure 4.12: uniform values."""
    threads = sorted({case["threads"] for case in results["cases"]})
    title = f"Sketches of {millions(results)} M uniform 32-bit values"
    figure, axes = panels_of(len(threads), title, columns=1, height=2.9, width=9.4)
    for axis, count in zip(axes, threads):
        cases = [one(results, name, "uniform", count) for name in CASES]
        grouped(axis, [case["sides"] if case else [] for case in cases], CASES)
        axis.set_title("one thread" if count == 1 else "two threads" if count == 2 else f"{count} threads")
    last = CASES.index("all three")
    axes[0].hlines(THESIS, last - 0.45, last + 0.45, color=RED, linestyle="--", linewidth=1.2)
    axes[0].annotate(f"thesis: {THESIS}", (last + 0.45, THESIS), color=RED, fontsize=9, va="bottom", ha="right")
    axes[0].texts[-1].set_bbox({"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5})
    for axis in axes:
        axis.set_ylabel("GB/s")
    legend(figure, axes, results, f"median of {results['runs']} runs", NAMES, columns=3)
    return figure


def skew(results: dict):
    """Draws the measurements of figure 4.12 for skewed columns, one thread."""
    figure, axes = panels_of(4, "Sketches of columns with skew, one thread", columns=1, height=2.2, width=9.4)
    for axis, name in zip(axes, CASES):
        cases = [one(results, name, column, 1) for column in COLUMNS]
        grouped(axis, [case["sides"] if case else [] for case in cases], list(COLUMNS.values()))
        axis.set_title(name)
    for axis in axes:
        axis.set_ylabel("GB/s")
    legend(figure, axes, results, f"{millions(results)} M 32-bit values, median of {results['runs']} runs", NAMES, columns=3)
    return figure


def ingest(results: dict):
    """Draws figure 4.13: loads over TCP, with and without a profile of the rows."""
    found = results.get("ingest", [])
    if not found:
        return None
    figure, axes = panels_of(1, f"Loading {millions(results)} M 32-bit values over TCP")
    axis, width = axes[0], 0.38
    for offset, key, label, color in (
        (-width / 2, "without", "rows are encoded", SKY),
        (width / 2, "with_tap", "rows are encoded and profiled", BLACK),
    ):
        for place, column in enumerate(found):
            bar(axis, place + offset, width, column[key]["times_ms"], 4e-9 * results["rows"], color, label)
    axis.axhline(results["limits"]["loopback_tcp"], color=RED, linestyle="--", linewidth=1)
    limit = results["limits"]["loopback_tcp"]
    axis.annotate(
        "loopback TCP alone", (1, limit), xycoords=("axes fraction", "data"), color=RED, fontsize=9, va="bottom", ha="right"
    )
    axis.set_xticks(range(len(found)), [COLUMNS.get(column["column"], column["column"]) for column in found])
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("GB/s")
    legend(figure, axes, results, f"median of {results['runs']} runs; client and node share two cores")
    return figure


def grouped(axis, groups: list[list[dict]], labels: list[str]) -> None:
    """Draws a group of bars for each list of sides."""
    for place, sides in enumerate(groups):
        there = [side for name in SIDES for side in sides if side["name"] == name]
        width = 0.86 / max(len(there), 5)
        for number, side in enumerate(there):
            offset = (number - (len(there) - 1) / 2) * width
            gigabytes = 4e-9 * side["rows"]
            bar(axis, place + offset, width, side["times_ms"], gigabytes, SIDES[side["name"]]["color"], side["name"])
    axis.set_xticks(range(len(labels)), labels)
    axis.grid(axis="x", visible=False)


def bar(axis, place: float, width: float, times: list[float], gigabytes: float, color: str, label: str) -> None:
    middle, low, high = quantiles([gigabytes / (ms / 1e3) for ms in times])
    error = {"elinewidth": 1, "ecolor": "#555555", "capsize": 2}
    drawn = axis.bar(place, middle, width * 0.94, color=color, yerr=[[low], [high]], error_kw=error, label=label)
    axis.bar_label(drawn, labels=[f"{middle:.2f}" if middle < 1 else f"{middle:.1f}"], fontsize=8, padding=1)


def one(results: dict, name: str, column: str, threads: int) -> dict | None:
    wanted = (name, column, threads)
    return next((c for c in results["cases"] if (c["name"], c["column"], c["threads"]) == wanted), None)


def millions(results: dict) -> str:
    return f"{results['rows'] / 1e6:g}"


FIGURES = (throughput, skew, ingest)
