"""Reproduce one table of the paper, small and rough: FaReG with and without CondCP.

Every finished piece is stored at once; a second run with the same folder only reads. Without
``quick`` and ``sizes`` you get the paper's table, with ten repetitions.

Run: ``python 04_reproduce_one_table.py [folder]``
"""

import sys
import tempfile

import pandas as pd

from fareg.experiments import reproduce

if __name__ == "__main__":  # other processes import this file when jobs is above 1
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    done = reproduce(["condcp"], out=folder, quick=True, sizes=[300], jobs=1)

    tables, *figures = done.files["condcp"]
    summary = pd.read_csv(tables)
    methods = ["Marginal", "CondCP", "FaReG (paper)", "CondCP + FaReG (paper)", "FaReG (levels)"]
    shown = summary.set_index("method").loc[methods, ["group_coverage", "coverage", "size"]]
    print(shown.round(3))
    print("written:", done.page, tables, *figures)
