"""Counterparts of figures 4.5 to 4.10 of the thesis (M. Chiosa, ETH Zurich, no. 29551) from the numbers of the suite
`sketch-accuracy`: relative errors by number of distinct values.

The thesis shows one run of each sketch. Here lines are means over the seeds, and the 95th percentile is dashed or
shaded. Figures 4.7 and 4.8 show single seeds, as in the thesis.
"""

from figure_style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, caption, legend, panels_of, plain_log, short, ticks
from matplotlib.ticker import FixedLocator

# Occurrences of each value. If values were unique, the number of rows, which is known, would bound the number of
# distinct values and the second moment: estimates beyond it would be capped, and half of the errors would be zero.
TIMES = 20

COLOURS = (SKY, GREEN, ORANGE, BLACK, PINK, RED, BLUE)
MARKERS = "v^sDoPX"


def hll(results: dict):
    """Draws figure 4.5."""
    figure, axes = panels_of(1, "HyperLogLog: error of the number of distinct values")
    shapes = [(f"distinct={p}", f"2^{p} registers") for p in (10, 12, 14, 16)]
    curves(axes[0], results, shapes)
    goal(axes[0], 0.5, "0.5 %")
    axes[0].set_ylim(bottom=0.05)
    axes[0].set_ylabel("relative error")
    about = "line: mean over the seeds, shade: up to what 95 of 100 do not exceed"
    legend(figure, axes, results, about)
    return figure


def agms(results: dict):
    """Draws figure 4.6."""
    figure, axes = panels_of(2, "Fast-AGMS: error of the second moment")
    rows = [(f"second_moment={r}x13", f"R = {r}") for r in (4, 5, 6, 7, 8)]
    precisions = [(f"second_moment=6x{p}", f"P = {p}") for p in (12, 13, 14, 15, 16)]
    curves(axes[0], results, rows, shade=False)
    axes[0].set_title("a) 2^13 counters, R rows")
    curves(axes[1], results, precisions, shade=False)
    axes[1].set_title("b) 6 rows of 2^P counters")
    for axis in axes:
        goal(axis, 2, "2 %")
        look = {"frameon": False, "fontsize": 9, "ncols": 5, "columnspacing": 0.8, "handletextpad": 0.3, "handlelength": 1.4}
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), **look)
        axis.set_ylim(bottom=0.1)
    axes[0].set_ylabel("relative error, mean over the seeds")
    below(figure, results, f"up to {results['seeds']} seeds")
    return figure


def seeds(results: dict):
    """Draws figures 4.7 and 4.8."""
    figure, axes = panels_of(4, "Fast-AGMS: error of the second moment, single seeds", columns=2, height=3.3)
    for axis, (rows, seed) in zip(axes, ((6, 0), (6, 1), (5, 0), (5, 1))):
        for place, precision in enumerate((12, 13, 14, 15, 16)):
            found = of_sketch(results, f"second_moment={rows}x{precision}")
            points = [(line["distinct"], 100 * line["error_of_seed"][seed]) for line in found if len(line["error_of_seed"]) > seed]
            style = style_of(place)
            axis.plot([x for x, _ in points], [y for _, y in points], label=f"P = {precision}", **style)
        goal(axis, 2, "2 %")
        sizes(axis, [line["distinct"] for line in of_sketch(results, f"second_moment={rows}x13")])
        axis.set_title(f"{rows} rows, {('first', 'second')[seed]} seed")
        axis.set_ylim(0, 5)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    for axis in axes[:2]:
        axis.set_xlabel("")
    for axis in axes[::2]:
        axis.set_ylabel("relative error")
    legend(figure, axes, results, "6 and 5 rows of 2^P counters", columns=5)
    return figure


def countmin(results: dict):
    """Draws figures 4.9 and 4.10."""
    figure, axes = panels_of(2, "Count-Min, rows of 2^13 counters: error of how often a value occurs")
    for place, rows in enumerate((2, 4, 6, 8)):
        found = [line for line in of_sketch(results, f"frequency={rows}x13") if line["distinct"] <= 10**6]
        places, style = [line["distinct"] for line in found], style_of(place)
        means = [max(100 * line["error_mean"], 1e-3) for line in found]
        axes[0].plot(places, means, label=f"{rows} rows", **style)
        axes[0].plot(
            places, [max(100 * line["error_most"], 1e-3) for line in found], **(style | {"linestyle": ":", "linewidth": 1.2})
        )
        absolute = [max(line["absolute_mean"], 1e-5) for line in found]
        axes[1].plot(places, absolute, label=f"{rows} rows", **style)
    places = [line["distinct"] for line in of_sketch(results, "frequency=6x13") if line["distinct"] <= 10**6]
    for axis in axes:
        axis.set_yscale("log")
        sizes(axis, places)
    axes[0].set_ylim(0.08, None)
    axes[0].yaxis.set_major_locator(FixedLocator([0.1, 1, 10, 100, 1000, 10_000, 100_000]))
    axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:,g} %")
    axes[0].set_title("a) relative: full line mean, dotted largest")
    axes[1].set_ylim(1e-3, None)
    axes[1].yaxis.set_major_locator(FixedLocator([1e-3, 1e-2, 0.1, 1, 10, 100, 1000]))
    axes[1].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[1].set_title("b) absolute: mean")
    legend(figure, axes, results, f"every value {TIMES} times; b) also of values that do not occur")
    return figure


def curves(axis, results: dict, shapes: list[tuple[str, str]], shade: bool = True) -> None:
    """Draws a line for each shape: mean errors in percent."""
    places: list[int] = []
    for place, (sketch, label) in enumerate(shapes):
        found = of_sketch(results, sketch)
        if not found:
            continue
        places = max(places, [line["distinct"] for line in found], key=len)
        x, style = [line["distinct"] for line in found], style_of(place)
        axis.plot(x, [100 * line["error_mean"] for line in found], label=label, **style)
        if shade:
            many = [line for line in found if line["seeds"] >= 20]
            high = [100 * line["error_95"] for line in many]
            low = [100 * line["error_mean"] for line in many]
            axis.fill_between([line["distinct"] for line in many], low, high, color=style["color"], alpha=0.13, linewidth=0)
    axis.set_yscale("log")
    plain_log(axis, " %")
    sizes(axis, places)


def of_sketch(results: dict, sketch: str) -> list[dict]:
    """Returns the measurements of a sketch over uniform data sets, smallest first."""
    family = {"uniform": {"times": TIMES}}
    found = [line for line in results["lines"] if line["sketch"] == sketch and line["family"] == family]
    return sorted(found, key=lambda line: line["distinct"])


def style_of(place: int) -> dict:
    return {"color": COLOURS[place], "marker": MARKERS[place], "linewidth": 1.7, "markersize": 5.5}


def goal(axis, percent: float, text: str) -> None:
    axis.axhline(percent, color=RED, linestyle="--", linewidth=1, zorder=1)
    axis.annotate(text, (1, percent), xycoords=("axes fraction", "data"), color=RED, fontsize=9, va="bottom", ha="right")
    axis.texts[-1].set_bbox({"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5})


def sizes(axis, places: list[int]) -> None:
    axis.set_xscale("log")
    axis.set_xlabel("distinct values")
    if places:
        ticks(axis, places)
        # Only powers of ten are labelled.
        tens = [place for place in places if short(place)[0] == "1" and str(place).strip("0") == "1"]
        axis.xaxis.set_major_locator(FixedLocator(tens))


def below(figure, results: dict, about: str) -> None:
    figure.supxlabel(caption(results, about), fontsize=8.5)


FIGURES = (hll, agms, seeds, countmin)
