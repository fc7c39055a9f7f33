"""Run an audit: read the sets, measure coverage, find groups and verify them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import (
    SensitiveFeatures,
    check_columns,
    check_same_order,
    check_table,
    select_columns,
)
from fareg._drift import doubtful_columns
from fareg._encoding import cut_huge
from fareg._labels import check_labels
from fareg._rows import check_seed, hash_key
from fareg._validation import (
    MAX_COUNT,
    InvalidInputError,
    check_confidence_level,
    check_count,
    check_flag,
    check_fraction,
    check_function,
    check_same_length,
)
from fareg._words import clusters as in_clusters
from fareg._words import percent, rows
from fareg.auditing._rate import Audited, Promise, Rate
from fareg.auditing._reading import read_clusters, read_sets, warn_of_repeats
from fareg.auditing._result import AuditResult
from fareg.auditing._search import Finding, SearchPlan, search, simulated_power
from fareg.auditing._tables import (
    SLABS,
    first_table,
    group_picture,
    label_table,
    level_tables,
    slab_curve,
)
from fareg.groups import Rule
from fareg.metrics import ExcessRisk, excess_risk_parts, tally

MAX_CALIBRATION = 2**53  # larger whole numbers are not exact as floats
MAX_SPLITS = 10_000
MAX_ROWS_ERT = 50_000  # more rows are sampled


def audit(
    X: Any,
    y: Any,
    sets: Any,
    *,
    classes: Any = None,
    sensitive_features: SensitiveFeatures = None,
    confidence_level: float = 0.9,
    significance: float = 0.05,
    clusters: Any = None,
    n_calibration: int | None = None,
    n_splits: int = 20,
    predicted: Any = None,
    groups: Sequence[Rule | str] = (),
    n_directions: int = 100,
    n_permutations: int = 100,
    measures: bool = True,
    random_state: Any = None,
    progress: Callable[[str], Any] | None = None,
) -> AuditResult:
    """Find who is covered less often than promised, whoever made the prediction sets.

    Groups are proposed on random halves of the rows and tested on the other halves, exactly. If
    the rows are independent and coverage is at least ``confidence_level`` in every group,
    ``P(any finding) <= significance``, however many groups were searched. Groups with much larger
    sets are found in the same way.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        The audited rows; the sets must come from a model that was neither trained nor calibrated
        on them.
    y : array of shape (n_samples,)
        True labels.
    sets : array, frame, or list of lists
        Prediction sets: a table of True and False (or 1 and 0) of shape (n_samples, n_classes), as
        fareg makes, or (n_samples, n_classes, 1), as MAPIE does; or one list of labels per row, as
        crepes does, also as a column of a frame.
    classes : array of shape (n_classes,), optional
        The label of each column of ``sets``. None takes the column names of a frame, or the sorted
        labels of ``y`` if there is one per column; for lists, all labels that occur.
    sensitive_features : names, positions, callable or frame, optional
        Columns of ``X`` that may define groups, or a frame with as many rows; None for all columns.
    confidence_level : float, default=0.9
        Coverage that the sets promise.
    significance : float, default=0.05
        Allowed probability of any false finding.
    clusters : name or position of a column of ``X``, or array of shape (n_samples,), optional
        Which rows belong together: rows with the same id may depend on each other in any way, rows
        with different ids are independent. Every coverage is that of a random row of a random
        cluster: a row of a cluster with m rows counts 1/m. The column defines no groups. None means
        that all rows are independent; copies of rows then give a warning.
    n_calibration : int, optional
        How many rows calibrated the predictor; with clusters, how many clusters. A valid predictor
        has the promised coverage on average over calibrations, and the tests then allow for the
        luck of its own calibration. If None, coverage must reach ``confidence_level`` itself.
    n_splits : int, default=20
        How many random halves propose and test. With more, the answer depends less on the seed.
    groups : sequence of Rule or of words, default=()
        Groups to show in the first table whatever is found, such as those that a model protects.
        Their columns must be among the sensitive features.
    predicted : array of shape (n_samples,), optional
        The top label of each row; the tables then show how often it is right in each group.
    n_directions, n_permutations : int, default=100 and 100
        Effort of the worst-slab search: random directions next to the fitted one, and permutations
        behind its null band.
    measures : bool, default=True
        Whether to compute worst slabs and excess risk too. They take most of the time, and the
        verdict needs neither.
    random_state : int, RandomState, Generator or None
        Seed of the random halves and of all other random draws.
    progress : function, optional
        Called with the name of each stage when it begins.

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> from fareg import audit
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(400, random_state=0)
    >>> guess = [[label] if easy else [] for label, easy in zip(data.y, ~data.group)]
    >>> print(audit(data.X, data.y, guess, sensitive_features=["Color", "Gender"],
    ...             random_state=0).findings[0].rule)
    Color = Blue and Gender = Male
    """
    check_confidence_level(confidence_level)
    check_fraction("significance", significance)
    check_count("n_splits", n_splits, maximum=MAX_SPLITS)
    check_count("n_directions", n_directions, maximum=MAX_COUNT)
    check_count("n_permutations", n_permutations, minimum=0, maximum=MAX_COUNT)
    check_flag("measures", measures)
    check_seed("random_state", random_state)
    if progress is not None:
        check_function("progress", progress)
    if n_calibration is not None:
        check_count("n_calibration", n_calibration, maximum=MAX_CALIBRATION)
    confidence_level = float(confidence_level)
    promise = Promise(confidence_level, n_calibration)
    X = check_table(X)
    cluster, selection = read_clusters(X, clusters, sensitive_features)
    columns, notes = _without_infinities(select_columns(X, selection))
    group_rules = _parsed_rules(groups)
    for rule in group_rules:
        check_columns(rule.features, list(map(str, columns)), "sensitive_features")
    check_same_length(X=columns, y=y)
    check_same_order(X=X, y=y, sets=sets, clusters=clusters, sensitive_features=sensitive_features)
    notes += doubtful_columns(columns)
    table = read_sets(sets, y, classes)
    is_right = None if predicted is None else _is_right(predicted, check_labels(y))
    people = Audited(columns, table.covered, table.size, cluster, is_right)
    if clusters is None:
        notes += warn_of_repeats(X, y)
    rng = np.random.default_rng(hash_key(random_state))
    begin_stage = progress or (lambda stage: None)
    begin_stage("looking for groups on random halves, testing them on the others")
    plan = SearchPlan(promise, significance, n_splits)
    found, unequal = search(people, plan, rng)
    power = tuple(simulated_power(people, plan, rng))
    # Measures that assume independent rows get one row of each cluster.
    independent = people.one_of_each_cluster(rng)
    levels, pairs = level_tables(people, confidence_level)
    by_label = label_table(y, people, confidence_level)
    listed = None if selection is None else list(map(str, columns))
    slabs, risk = pd.DataFrame(columns=list(SLABS)), ExcessRisk(*[float("nan")] * 3)
    if measures and len(independent) > 1:
        begin_stage("searching for the worst slabs")
        slabs = slab_curve(
            independent, n_directions=n_directions, n_permutations=n_permutations, rng=rng
        )
        begin_stage("measuring the excess risk")
        sample = independent.sample(MAX_ROWS_ERT, rng)
        risk = excess_risk_parts(
            sample.columns,
            sample.covered,
            confidence_level=confidence_level,
            n_splits=min(5, len(sample)),
            random_state=rng,
        )
    seed = int(random_state) if isinstance(random_state, int | np.integer) else None
    result = AuditResult(
        confidence_level=confidence_level,
        significance=float(significance),
        n_samples=len(people),
        n_splits=n_splits,
        classes=table.classes,
        sensitive_features=tuple(map(str, columns)),
        rate=people.rate(),
        mean_size=people.mean_size(),
        set_sizes=_set_sizes(people),
        groups=found,
        unequal=unequal,
        table=first_table(people, group_rules, found, unequal, by_label, listed),
        levels=levels,
        pairs=pairs,
        by_label=by_label,
        slabs=slabs,
        excess_risk=risk.total,
        excess_risk_under=risk.under,
        power=power,
        picture=None,
        notes=(*table.notes, *notes, *_notes_on_rows(people, promise)),
        least_coverage=promise.least_coverage,
        rest=_rate_outside(people, found),
        about={"date": date.today().isoformat(), "seed": seed, "n_permutations": n_permutations},
    )
    if (main := result.facts.main) is None:
        return result
    return replace(result, picture=group_picture(people, main.mask, main.features))


def _parsed_rules(groups: Any) -> list[Rule]:
    """Return groups as rules; each may be a rule, a finding or words."""
    groups = list(groups) if isinstance(groups, list | tuple) else [groups]
    rules = [Rule.parse(g) if isinstance(g, str) else getattr(g, "rule", g) for g in groups]
    if wrong := [rule for rule in rules if not isinstance(rule, Rule)]:
        raise InvalidInputError(
            f"groups must be a list of rules or of words, got {wrong[0]!r}; write "
            '"sex = Female and age > 60"'
        )
    return rules


def _rate_outside(people: Audited, groups: Sequence[Finding]) -> Rate | None:
    """Return the rate of everyone outside all findings, None if nobody is or nothing was found."""
    masks = [group.mask for group in groups if group.is_finding]
    outside = ~np.any(masks, axis=0) if masks else np.zeros(len(people), dtype=bool)
    return people.rate(outside) if outside.any() else None


def _is_right(predicted: Any, labels: Any) -> Any:
    """Return whether the predicted label of each row is its true label."""
    predicted = np.asarray(predicted)
    if predicted.shape != labels.shape:
        raise InvalidInputError(
            f"predicted must be one label per row, of shape {labels.shape}, got shape "
            f"{predicted.shape}; pass model.predict(X)"
        )
    return predicted == labels


def _notes_on_rows(people: Audited, promise: Promise) -> list[str]:
    """Return notes on clusters and calibration rows, as far as the caller named them."""
    notes = []
    unit: Callable[[int], str] = rows
    if people.clusters is not None:
        unit = in_clusters
        notes.append(
            f"{rows(len(people))} in {unit(len(np.unique(people.clusters)))}: every coverage is "
            "that of a random row of a random cluster, so a row of a cluster with m rows counts 1/m"
        )
    if promise.n_calibration is not None:
        notes.append(
            f"these sets were calibrated on {unit(promise.n_calibration)}; an unlucky draw of "
            f"these can lower overall coverage to {percent(promise.least_coverage)} although the "
            "promise is kept. Overall coverage is called low only if its whole 95% interval lies "
            "below that; the tests of groups allow for it too"
        )
    return notes


def _without_infinities(columns: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Treat infinite numbers as missing, and huge ones as the largest that every model can hold."""
    numeric = columns.select_dtypes("number").columns
    infinite = columns[numeric].isin([np.inf, -np.inf])
    columns = columns.copy()
    columns[numeric] = cut_huge(columns[numeric].mask(infinite))
    names = [str(name) for name in numeric if infinite[name].any()]
    return columns, [f"infinite values count as missing in {', '.join(names)}"] if names else []


def _set_sizes(people: Audited) -> pd.DataFrame:
    n_sizes = int(people.size.max(initial=0)) + 1
    table = tally(people.size, n_sizes, people.covered, people.clusters)
    table.insert(0, "size", np.arange(n_sizes))
    return table[["size", "n", "share", "coverage"]]
