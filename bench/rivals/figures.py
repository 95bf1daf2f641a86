"""Draws the papers' figures from recorded numbers.

    python figures.py FOLDER NUMBERS.json...

Every figure is written as SVG and PNG. The suite of the numbers determines the figures.
"""

import json
import pathlib
import sys

import figures_accuracy
import figures_caribou
import figures_correlation
import figures_farview
import figures_sketches
from figure_style import prepare, save

SUITES = {
    "farview": ("farview", figures_farview.FIGURES),
    "sketches": ("sketches", figures_sketches.FIGURES),
    "sketch-accuracy": ("accuracy", figures_accuracy.FIGURES),
    "correlation": ("correlation", figures_correlation.FIGURES),
    "caribou": ("caribou", figures_caribou.FIGURES),
}


def main(folder: str, *files: str) -> None:
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    prepare()
    for file in files:
        results = json.loads(pathlib.Path(file).read_text())
        stem, figures = SUITES[results["suite"]]
        for draw in figures:
            figure = draw(results)
            if figure is not None:
                save(figure, target / f"{stem}-{draw.__name__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
