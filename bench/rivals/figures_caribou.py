"""Counterparts of figures 7, 8, 9, 11, 12 and 13 of the Caribou paper (István, Sidler, Alonso, PVLDB 10(11), 2017) from
the numbers of the suite `caribou`, and throughput by pipeline depth and by connections.

Points and bars are medians; error bars span the slowest and the fastest run.
"""

from figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, legend, panels_of, plain_log, quantiles, ticks

SIDES = {
    "farpool": {"color": BLACK, "marker": "o"},
    "Redis": {"color": ORANGE, "marker": "s"},
    "memcached": {"color": GREEN, "marker": "^"},
}
MIXES = {
    "100/0": "reads",
    "90/10": "90 % reads, 10 % updates",
    "50/50": "50 % reads, 50 % updates",
    "0/100": "updates",
}
SKEWS = {
    "uniform": "all",
    "zipf": "Zipf 0.99",
    "hot 5000": "5 k",
    "hot 500": "500",
    "hot 128": "128",
}


def response(results: dict):
    """Draws figures 7a and 7b: one client, one request at a time."""
    found = results.get("response", [])
    if not found:
        return None
    mixes = list(dict.fromkeys(case["mix"] for case in found))
    figure, axes = panels_of(len(mixes), "Response times of one client, loopback TCP")
    for axis, mix in zip(axes, mixes):
        cases = [case for case in found if case["mix"] == mix]
        for name, style in SIDES.items():
            for value, line in (("p50_us", "-"), ("p99_us", ":")):
                points = [(case["value_bytes"], side[value]) for case in cases if (side := one(case, name))]
                label = f"{name}, {'median' if value == 'p50_us' else '99 of 100'}"
                axis.plot(*zip(*points), linestyle=line, label=label, **style)
        ticks_of(axis, [case["value_bytes"] for case in cases])
        axis.set_title(MIXES.get(mix, mix))
        axis.set_xlabel("bytes of a value")
        axis.set_yscale("log")
        plain_log(axis)
    axes[0].set_ylabel("microseconds")
    legend(figure, axes, results, about(results), columns=3)
    return figure


def load(results: dict):
    """Draws figure 7c: latency by load, in an open loop."""
    found = results.get("load", [])
    if not found:
        return None
    figure, axes = panels_of(2, "Latency from when requests are due, half updates")
    for axis, value, title in zip(axes, ("p50_us", "p99_us"), ("median", "99 of 100")):
        for name, style in SIDES.items():
            points = [(case["rate"] / 1e3, side[value]) for case in found if (side := one(case, name))]
            axis.plot(*zip(*points), label=name, **style)
        axis.set_title(title)
        axis.set_xlabel("thousands of requests due a second")
        axis.set_xlim(left=0)
        axis.set_yscale("log")
        plain_log(axis)
    axes[0].set_ylabel("microseconds")
    legend(figure, axes, results, about(results))
    return figure


def mixes(results: dict):
    """Draws figure 8: throughput by value size and mix."""
    found = series(results, "value size")
    if not found:
        return None
    names = list(dict.fromkeys(case["mix"] for case in found))
    figure, axes = panels_of(len(names), f"Throughput, {found[0]['depth']} commands at a time")
    for axis, mix in zip(axes, names):
        cases = [case for case in found if case["mix"] == mix]
        for name in SIDES:
            lines(axis, cases, "value_bytes", name)
        ticks_of(axis, [case["value_bytes"] for case in cases])
        axis.set_title(MIXES.get(mix, mix))
        axis.set_xlabel("bytes of a value")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("thousands of operations a second")
    legend(figure, axes, results, about(results))
    return figure


def skew(results: dict):
    """Draws figure 9: throughput by the number of keys that are requested."""
    found = series(results, "skew")
    if not found:
        return None
    figure, axes = panels_of(1, f"Skew: 10 % updates, values of {found[0]['value_bytes']} B")
    grouped(axes[0], found, [SKEWS.get(case["skew"], case["skew"]) for case in found])
    axes[0].set_xlabel(f"keys asked for, of {results['keys'] / 1e3:g} thousand")
    axes[0].set_ylabel("thousands of operations a second")
    legend(figure, axes, results, about(results))
    return figure


def conditional(results: dict):
    """Draws figure 11, reads with eight conditions by value size, and figure 13, their throughput relative to plain
    reads."""
    found = results.get("conditional", [])
    if not found:
        return None
    figure, axes = panels_of(2, "Reads with eight conditions")
    kinds = {"get": ("GET", BLACK), "matching": ("FP.CGET, value matches", BLUE), "missing": ("FP.CGET, it does not", SKY)}
    sizes = [case["value_bytes"] for case in found]
    for kind, (label, color) in kinds.items():
        axes[0].plot(sizes, [case[kind]["per_cpu"] / 1e3 for case in found], color=color, marker="o", label=label)
        axes[1].plot(
            sizes, [100 * case[kind]["per_cpu"] / case["get"]["per_cpu"] for case in found], color=color, marker="o", label=label
        )
    for axis, title, unit in zip(
        axes, ("operations", "of plain reads"), ("thousands per CPU-second", "%")
    ):
        ticks_of(axis, sizes)
        axis.set_title(title)
        axis.set_ylabel(unit)
        axis.set_xlabel("bytes of a value")
        axis.set_ylim(bottom=0)
    legend(figure, axes, results, about(results))
    return figure


def scans(results: dict):
    """Draws figure 12: scan rate by value size and selectivity."""
    found = results.get("scans", [])
    if not found:
        return None
    figure, axes = panels_of(2, "Scans by SQL with eight conditions, two threads")
    colors = dict(zip((0, 1, 10, 100), (BLACK, BLUE, SKY, ORANGE)))
    sizes = sorted({scan["value_bytes"] for scan in found})
    for axis, fetches, title in zip(axes, (False, True), ("rows that pass are counted", "rows that pass are fetched")):
        for percent, color in colors.items():
            of = [scan for scan in found if scan["percent"] == percent and scan["fetches"] == fetches]
            points = [(scan["value_bytes"], scan["rows"] / scan["ms"] / 1e3) for scan in of]
            axis.plot(*zip(*points), color=color, marker="o", label=f"{percent} % of rows pass")
        bandwidth = results["limits"]["memory_read_2"]
        axis.plot(sizes, [bandwidth * 1e3 / size for size in sizes], color=GREY, linestyle="--", label="memory read bandwidth")
        ticks_of(axis, sizes)
        axis.set_title(title)
        axis.set_xlabel("bytes of a value")
        axis.set_yscale("log")
        plain_log(axis)
    axes[0].set_ylabel("millions of rows a second")
    legend(figure, axes, results, about(results), columns=3)
    return figure


def pipeline(results: dict):
    """Draws throughput, and operations per second of CPU time, by pipeline depth."""
    found = series(results, "pipeline")
    if not found:
        return None
    names = list(dict.fromkeys(case["mix"] for case in found))
    figure, axes = panels_of(2 * len(names), "Commands sent at a time, values of 64 B", columns=2)
    for place, mix in enumerate(names):
        cases = [case for case in found if case["mix"] == mix]
        labels = [str(case["depth"]) for case in cases]
        grouped(axes[2 * place], cases, labels)
        grouped(axes[2 * place + 1], cases, labels, value="per_cpu")
        for axis, unit in zip(axes[2 * place :], ("thousands a second", "thousands per CPU-second")):
            axis.set_title(MIXES.get(mix, mix))
            axis.set_ylabel(unit)
    legend(figure, axes, results, about(results))
    return figure


def connections(results: dict):
    """Draws throughput by connections."""
    found = series(results, "connections")
    if not found:
        return None
    figure, axes = panels_of(1, "Connections, one request at a time each")
    for name in SIDES:
        lines(axes[0], found, "connections", name)
    axes[0].set_xscale("log")
    ticks(axes[0], [case["connections"] for case in found])
    axes[0].set_xlabel("connections")
    axes[0].set_ylabel("thousands of operations a second")
    axes[0].set_ylim(bottom=0)
    legend(figure, axes, results, about(results))
    return figure


def lines(axis, cases: list[dict], by: str, name: str) -> None:
    points = [(case[by], quantiles(side["rates"])) for case in cases if (side := one(case, name))]
    if points:
        places = [place for place, _ in points]
        middle, low, high = zip(*([value / 1e3 for value in found] for _, found in points))
        axis.errorbar(places, middle, yerr=[low, high], capsize=2, label=name, **SIDES[name])


def grouped(axis, cases: list[dict], labels: list[str], value: str = "rate") -> None:
    """Draws a group of bars for each case."""
    width = 0.86 / len(SIDES)
    for number, (name, style) in enumerate(SIDES.items()):
        offset = (number - (len(SIDES) - 1) / 2) * width
        found = [(place + offset, side) for place, case in enumerate(cases) if (side := one(case, name))]
        if not found:
            continue
        places = [place for place, _ in found]
        heights = [side[value] / 1e3 for _, side in found]
        error = None
        if value == "rate":
            spread = [quantiles(side["rates"]) for _, side in found]
            error = [[low / 1e3 for _, low, _ in spread], [high / 1e3 for _, _, high in spread]]
        style_of_error = {"elinewidth": 1, "ecolor": "#555555", "capsize": 2}
        axis.bar(places, heights, width * 0.94, color=style["color"], yerr=error, error_kw=style_of_error, label=name)
    axis.set_xticks(range(len(labels)), labels)
    axis.grid(axis="x", visible=False)


def ticks_of(axis, sizes: list[int]) -> None:
    axis.set_xscale("log")
    ticks(axis, sizes)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")


def one(case: dict, name: str) -> dict | None:
    """Returns a side of a case, or `None` if it was not measured."""
    return next((side for side in case["sides"] if side["name"] == name and side["rate"]), None)


def series(results: dict, name: str) -> list[dict]:
    return [case for case in results.get("cases", []) if case["series"] == name]


def about(results: dict) -> str:
    return f"median of {results['runs']} runs; server and generator have a processor each"


FIGURES = (response, load, mixes, skew, conditional, scans, pipeline, connections)
