"""The picture of a membership can be read, however long names are and however many levels."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg.groups import plot_membership


def test_plot_groups_of_many_long_levels_stays_readable():
    rng = np.random.default_rng(0)
    n, name = 4000, "what the person did for a living before the interview, by major group"
    jobs = np.array([f"occupation number {i} with a long description" for i in range(30)])
    schools = np.array(
        [f"{i} years of school or an equivalent of any other kind" for i in range(12)]
    )
    columns = pd.DataFrame({name: rng.choice(jobs, n), "school": rng.choice(schools, n)})
    learner = SimpleNamespace(
        found_=True,
        check_membership=lambda asked: None,
        latent=lambda columns: rng.normal(size=(1, len(columns), 1)),
        membership_of_latent=lambda z: 1 / (1 + np.exp(-z[:, :, 0])),
    )
    figure = plot_membership(learner, canonical(columns), (name, "school"), (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that does not fit is a warning
        figure.draw_without_rendering()
    for ax in figure.axes[:2]:
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) == 20 * 12
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert ax.get_window_extent().width > 0.25 * figure.bbox.width
    whole = figure.get_tightbbox().padded(-0.02)
    assert figure.bbox_inches.containsx(whole.x0)
    assert figure.bbox_inches.containsy(whole.y0)
    assert figure.axes[0].get_ylabel().endswith("\n(10 rare levels hidden)")
    shown = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert len(set(shown)) == 20
