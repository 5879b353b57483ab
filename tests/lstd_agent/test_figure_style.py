"""The style of figures, and charts that say what they show."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose
from study.figures import sampling_curves
from study.sampling import PANELS, SCHEMES

from lstd_agent.figure_style import COLORS, DASHES, MARKERS


def luminance(color: str) -> float:
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_curves_differ_in_more_than_color() -> None:
    assert len(set(map(str, DASHES))) == len(set(MARKERS)) == len(COLORS) == len(set(COLORS))
    assert max(map(luminance, COLORS)) < 0.75  # on white


def test_the_sampled_study_has_a_row_for_each_error_and_a_name_for_each_curve() -> None:
    rows = [
        {
            "env": panel.env, "n_features": panel.n_features, "scheme": scheme, "seed": seed,
            "n_trials": n, "total_repb": 10.0 * k + seed + 1, "total_rems": 1e3 * k + seed + 1,
        }
        for panel in PANELS
        for k, scheme in enumerate(SCHEMES)
        for seed in range(3)
        for n in (1000, 2000)
    ]  # fmt: skip
    figure = sampling_curves(rows)
    assert len(figure.axes) == 2 * len(PANELS)
    for axes in figure.axes:
        assert axes.get_legend_handles_labels()[1] == list(SCHEMES)
        assert axes.get_yscale() == "log"
    assert figure.axes[0].get_ylabel() == "total repb (in units of reward)"
    assert figure.axes[len(PANELS)].get_ylabel() == "total rems (in units of reward)"
    lines = [line for line in figure.axes[0].lines if line.get_linewidth() > 2]
    means = np.array([line.get_ydata() for line in lines])
    assert_allclose(means, 10.0 * np.arange(len(SCHEMES))[:, None] + np.full((1, 2), 2.0))
