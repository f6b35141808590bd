# make install | demo | test | check | bench | docs: each sets up .venv first where it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test check bench docs clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# the S3 service of the tests wants other versions of our packages
.venv-s3/installed: constraints-s3.txt
	test -x .venv-s3/bin/python || $(PYTHON) -m venv .venv-s3
	.venv-s3/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-s3.txt "moto[server]"
	touch $@

demo: install
	$(BIN)/searchformer run quickstart --out runs/quickstart

test: install .venv-s3/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

bench: install
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv .venv-s3 build dist site src/*.egg-info
