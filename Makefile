# make demo    set up .venv and show what fareg does
# make quick   the tests without the marker slow, for the inner loop
# make test    set up what the tests need and run them
# make check   format, lint, types
# make bench   timings and ratios against peers
# make docs    the documentation site
# make pages   every page with numbers, from the stored rows of benchmarks
# make gallery the page of examples, with what they print and draw
# make dist    wheel and sdist, and the quick tests on the installed wheel
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
OPTIONS := install --quiet --disable-pip-version-check -c $(CONSTRAINTS)
INSTALL := $(BIN)/pip $(OPTIONS)

.PHONY: demo quick test check bench docs pages gallery dist clean

demo: .venv/installed
	$(BIN)/fareg demo

# one thread per process: pytest-xdist keeps both cores busy; what a file prepares is prepared once
test: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# without the marker slow: while you work; make test before you hand over
quick: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" tests

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pip check

# peers live in an environment of their own: they are no dependency
bench: .bench-venv/installed
	.bench-venv/bin/python benchmarks/run.py

docs: pages
	$(INSTALL) -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: .venv/installed-dev
	$(BIN)/python docs/_build.py

gallery: .venv/installed-dev
	$(BIN)/python docs/_gallery.py

# the wheel alone first, then with the extras that the tests need, in an environment of its own;
# other versions: make dist PYTHON=python3.13, make dist CONSTRAINTS=constraints-oldest.txt
dist:
	rm -rf dist .dist-venv
	$(PYTHON) -m venv .dist-venv
	.dist-venv/bin/pip $(OPTIONS) build
	.dist-venv/bin/python -m build --outdir dist .
	.dist-venv/bin/pip $(OPTIONS) dist/*.whl
	.dist-venv/bin/fareg --version
	.dist-venv/bin/pip $(OPTIONS) torch==2.13.0
	.dist-venv/bin/pip $(OPTIONS) "$$(echo dist/*.whl)[dev,dask]"
	OMP_NUM_THREADS=1 .dist-venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" tests

.venv/created:
	$(PYTHON) -m venv .venv
	touch $@

# compiled at once, as pip does with every other package
.venv/installed: .venv/created pyproject.toml constraints.txt
	$(INSTALL) -e .
	$(BIN)/python -m compileall -q src
	touch $@

# a peer among the metrics of the tests needs torch; by its exact version pip finds a small build
.venv/installed-dev: .venv/installed
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e ".[dev,dask]"
	touch $@

.bench-venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .bench-venv
	.bench-venv/bin/pip $(OPTIONS) torch==2.13.0
	.bench-venv/bin/pip $(OPTIONS) -e ".[bench]"
	.bench-venv/bin/python -m compileall -q src
	touch $@

clean:
	rm -rf .venv .bench-venv .dist-venv build dist site out
