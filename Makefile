# The commands of this repository; `make help` lists them. What is built or fetched is kept under FOREBAY_HOME (~/.cache/forebay).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONPATH :=

.PHONY: help python demo demo-down clean test test-long sanitize lint types unit e2e evaluate bench-operator kernels-report model kube cluster native

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0])'

demo: python ## from a clone to a language model that streams an answer, on a real Kubernetes
	@$(PYTHON) e2e/lib/demo.py up

demo-down: python ## stop what the demo and the tests started, and keep what was built
	@$(PYTHON) e2e/lib/demo.py down

clean: python ## stop what runs and remove what was built
	@$(PYTHON) e2e/lib/demo.py clean
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis kernels/forebay_kernels/cpu/_native.so kernels/forebay_kernels/cpu/_objects

test: lint types unit e2e ## everything but the long suites

test-long: native model kube cluster ## the suites that are too long for `make test`
	KUBECONFIG= $(BIN)/pytest -m long tests e2e

sanitize: $(VENV)/made ## the CPU kernels' tests, with every memory access watched
	$(BIN)/python kernels/forebay_kernels/cpu/build.py --sanitize
	LD_PRELOAD="$$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 $(BIN)/pytest -p no:cacheprovider tests/kernels/cpu
	$(BIN)/python kernels/forebay_kernels/cpu/build.py

lint: $(VENV)/made ## style, formatting and the import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(VENV)/made ## mypy, strict
	$(BIN)/mypy
	$(BIN)/mypy e2e/lib/*.py

unit: native model kube ## unit, property, component and contract tests
	$(BIN)/pytest -m 'not long' tests

e2e: $(VENV)/made cluster ## the stories, on a cluster that this makes if there is none
	KUBECONFIG= $(BIN)/pytest -m 'not long' e2e

evaluate: $(VENV)/made model ## lm-eval's answers of a served model, as a client would get them
	$(BIN)/python bench/evaluate.py

bench-operator: $(VENV)/made kube ## what the operator costs with 1,000 services and 3,000 pods, as a table
	$(BIN)/python bench/operator_scale.py

kernels-report: $(VENV)/made ## what each GPU kernel takes, for every architecture, without a GPU
	$(BIN)/python -m forebay_kernels.gpu.compiling.report docs/kernels-report.md

model: python ## fetch the real model of the tests and the demo
	@$(PYTHON) e2e/lib/model.py

kube: python ## the control plane that component tests start: Kubernetes' own, kwok's played nodes, and Flux's applier
	@e2e/cluster/cluster build kube kwok helm kustomize-controller

cluster: python ## a cluster with the operator in it, and nothing served
	@$(PYTHON) e2e/lib/demo.py cluster

native: $(VENV)/made ## the CPU's kernels, compiled again where their source has changed
	@$(BIN)/python kernels/forebay_kernels/cpu/build.py --quiet

$(VENV)/made: pyproject.toml constraints.txt | python
	@$(PYTHON) e2e/lib/environments.py $(VENV)
	@touch $@
