"""Style shared by all figures: colours, panels, axes, and the caption with the date and the machine."""

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

# The palette of Okabe and Ito, which is distinguishable with colour blindness.
BLACK, ORANGE, SKY, GREEN, PINK, OLIVE, RED, BLUE, GREY = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#CC79A7",
    "#8A8A00",
    "#D55E00",
    "#0072B2",
    "#9A9A9A",
)


def prepare() -> None:
    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 11,
            "axes.titlesize": 11.5,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.alpha": 0.3,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "farpool",
        }
    )


def panels_of(count: int, title: str, columns: int | None = None, height: float = 3.9, width: float = 7.6):
    columns = columns or (count if count <= 3 else 2)
    rows = -(-count // columns)
    size = (max(4.2 * columns, width), height * rows + 1.1)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    figure.suptitle(title, fontsize=14, fontweight="bold")
    return figure, list(axes.flat)


def ticks(axis, places: list[int]) -> None:
    low, high = min(places), max(places)
    # Of labels that would overlap, only the first is shown.
    apart = (high / low) ** 0.12
    labelled: list[int] = []
    for place in sorted(set(places)):
        if not labelled or place >= labelled[-1] * apart:
            labelled.append(place)
    axis.xaxis.set_major_locator(FixedLocator(labelled))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(round(value))))
    axis.xaxis.set_minor_locator(NullLocator())
    margin = 1.25 if high > low else 2
    axis.set_xlim(low / margin, high * margin)


def plain_log(axis, unit: str = "") -> None:
    """Labels a logarithmic axis with plain numbers instead of powers."""
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def legend(figure, axes: list, results: dict, about: str, names: dict | None = None, columns: int = 4) -> None:
    """Draws one legend below all panels, in the order of first appearance, and the caption."""
    labels: dict = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            labels.setdefault(label, handle)
    figure.legend(
        list(labels.values()),
        [(names or {}).get(label, label) for label in labels],
        loc="outside lower center",
        ncols=columns,
        fontsize=10,
        frameon=False,
        title=caption(results, about),
        title_fontproperties={"size": 8.5},
    )


def caption(results: dict, about: str) -> str:
    return f"{results['date']}, {about}, {results['machine']['processor']}"


def short(count: int) -> str:
    """Formats a count with a binary or decimal suffix for thousands and millions."""
    for unit, suffix in ((1 << 20, " Mi"), (1 << 10, " Ki"), (10**9, " B"), (10**6, " M"), (10**3, " k")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{suffix}"
    return f"{count / 1e6:.3g} M" if count >= 10**6 else f"{count / 1e3:.3g} k" if count >= 10**4 else str(count)


def quantiles(times: list[float]) -> tuple[float, float, float]:
    """Returns the median, and its distances to the 5th and 95th percentiles, or to the extremes if there are few
    runs."""
    ordered = sorted(times)
    at = lambda part: ordered[round(part * (len(ordered) - 1))]
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return middle, middle - at(0.05), at(0.95) - middle


def save(figure, stem: pathlib.Path) -> None:
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=150)
    plt.close(figure)
    print(f"wrote {stem}.svg and .png")
