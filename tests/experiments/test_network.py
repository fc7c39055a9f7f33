"""The base network of the paper: its best epoch, and which rows choose it."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from fareg.datasets import Dataset, make_synthetic
from fareg.experiments._config import BaseConfig
from fareg.experiments._network import train_network
from fareg.experiments._plan import Plan
from fareg.experiments._problems import train_base_model

CONFIG = BaseConfig(hidden=(16, 8), learning_rate=0.01, max_epochs=30, batch_size=50)


def halves(seed=0, n=300):
    data = make_synthetic(2 * n, random_state=seed)
    return data.take(np.arange(n)), data.take(np.arange(n, 2 * n))


def relabelled(data, seed=1):
    y = np.random.default_rng(seed).permutation(data.y)
    return Dataset(X=data.X, y=y, sensitive=data.sensitive, group=data.group, name=data.name)


def test_the_epoch_of_lowest_loss_is_kept():
    train, stop = halves()

    def loss(config):
        model = train_network(config, train.X, train.y, 0, stop=(stop.X, stop.y))
        return log_loss(stop.y, model.predict_proba(stop.X), labels=range(6))

    losses = [loss(replace(CONFIG, max_epochs=epochs)) for epochs in (1, 5, 30, 60)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[2]
    patient = replace(CONFIG, max_epochs=60, patience=60)
    assert loss(patient) <= losses[-1]


@pytest.mark.parametrize(("protocol", "sees"), [("exact", False), ("published", True)])
def test_only_the_published_protocol_looks_at_calibration_labels(protocol, sees):
    config = replace(CONFIG, stopped_on=Plan(protocol=protocol).base.stopped_on)
    train, calibration = halves()
    first, second = (
        train_base_model(config, train, rows, 0).predict_proba(calibration.X)
        for rows in (calibration, relabelled(calibration))
    )
    assert (not np.array_equal(first, second)) == sees


def test_every_feature_is_one_raw_number_and_classes_not_trained_on_do_not_count():
    train, stop = halves()
    few = train.take(np.flatnonzero(train.y != 5))
    model = train_network(CONFIG, few.X, few.y, 0, stop=(stop.X, stop.y))
    assert model[0].transform(stop.X).shape == stop.X.shape
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
