"""Edit stored estimators and classifiers at random, and ask them: a program, which may die.

It prints the case before it is tried, so that whoever started it knows which one killed it. A file
that is refused may raise any error, because ``fareg.load`` tells it in one sentence, and so may a
prediction; memory that grows, and answers that take for ever, are failures.
"""

import copy
import faulthandler
import resource
import signal
import sys
import warnings

import numpy as np

from stored_zoo import CONFORMAL, ZOO, answers, read, stored

TEXTS = ("", "predict", "tofile", "__class__", "transform", "_in_fit", "O", "<U999999999", "brute")
TEXTS += ("kd_tree", "precomputed", "minkowski", "drop", "passthrough", "fareg.scores.aps", "1")
NUMBERS = (None, True, False, 0, 1, -1, 2, 7, 255, 256, -(2**31), 2**31, 2**40, 2**63, 10**30)
NUMBERS += (0.5, -1.0, 1e300)
FLOATS = (np.nan, np.inf, -np.inf, 0, 1, -1, 2, 3, 7, 255, 1e3, -1e3, 2**31, 2**40, 1e300)


def main(seed, n_edits, *names):
    """Try so many edits of every estimator, or of those that are named."""
    rng = np.random.default_rng(seed)
    warnings.simplefilter("ignore")
    faulthandler.enable()
    names = names or [*ZOO, *CONFORMAL]
    for name in names:
        stored(name)
    limit = 4 << 30  # a stored table of a few rows must not ask for more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    n_answered = 0
    for name in names:
        thing = stored(name)
        n_same = 0
        for number in range(n_edits):
            print(name, number, flush=True)
            node, arrays = edited(thing, rng)
            signal.alarm(20)  # whatever takes longer is ended by a signal
            n_same += asked(node, arrays, thing.table, thing.beside)
            signal.alarm(0)
        n_answered += n_same
    print("answered", n_answered, "of", n_edits * len(names))


def asked(node, arrays, table, beside):
    """Tell whether an edited estimator is read and answers."""
    try:
        model = read(node, arrays)
        if hasattr(model, "check"):  # a conformal classifier, as ``fareg.load`` checks it
            model.check()
        answers(model, table, **beside)
    except MemoryError:
        raise
    except Exception:
        return False
    return True


def edited(thing, rng):
    """Return the stored form with one to three edits."""
    node, arrays = copy.deepcopy(thing.node), {k: a.copy() for k, a in thing.arrays.items()}
    for _ in range(rng.integers(1, 4)):
        kind = rng.random()
        if kind < 0.5 and arrays:
            name = list(arrays)[rng.integers(len(arrays))]
            edit_array(arrays, name, rng)
            for owner, key in list(places_of(node)):  # someone who edits well edits the shape too
                if key == "at" and owner[key] == name:
                    shape = list(arrays[name].shape)
                    owner["shape"] = shape[::-1] if owner.get("transposed") else shape
        else:
            edit_node(node, rng)
    return node, arrays


def edit_array(arrays, name, rng):
    """Change a number, the size or the type of an array."""
    array, kind = arrays[name], rng.random()
    with np.errstate(all="ignore"):
        if kind < 0.7 and array.size:
            flat = array.reshape(-1)
            few = rng.integers(array.size, size=rng.integers(1, 4))
            flat[few] = np.float64(FLOATS[rng.integers(len(FLOATS))]).astype(array.dtype)
        elif kind < 0.8:
            arrays[name] = array[: len(array) // 2] if array.ndim else array
        elif kind < 0.9:
            arrays[name] = np.concatenate([array, array]) if array.ndim else array
        else:
            dtype = ("i8", "f8", "u1", "f4", "i4", "?", "u4")[rng.integers(7)]
            arrays[name] = array.astype(dtype)


def edit_node(root, rng):
    """Change a value, a name or a part of the tree."""
    places = list(places_of(root))
    owner, key = places[rng.integers(len(places))]
    kind = rng.random()
    if kind < 0.3:
        owner[key] = NUMBERS[rng.integers(len(NUMBERS))]
    elif kind < 0.5:
        owner[key] = TEXTS[rng.integers(len(TEXTS))]
    elif kind < 0.8:  # something from elsewhere in the same tree
        other, where = places[rng.integers(len(places))]
        owner[key] = copy.deepcopy(other[where])
    elif kind < 0.9:
        del owner[key]
    elif isinstance(owner, dict):
        owner[TEXTS[rng.integers(len(TEXTS))]] = owner.pop(key)
    else:
        owner.append(owner[key])


def places_of(node):
    """Yield every place in nested JSON, as its owner and key."""
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places_of(node[key])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
