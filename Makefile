# One command each: `make demo` shows the tool on this machine, `make test` checks it.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
FOR_DEMO := .venv/.for-demo
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check -c requirements.lock
PYTEST = $(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist worksteal
DEMO := --workload 1x320-ce-short --time-steps 20 --out traces/demo --force

# On the machine with the GPU: its own Python, with torch or JAX for CUDA; nothing is installed.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# Not taken from the environment, where others may mean another folder by them.
BUDGET = 480s
OUT = traces/gpu
MINUTES ?= 10
SAMPLE_RUNS = $(sort $(dir $(shell git ls-files 'traces/*/run.json')))
WHEELS ?= $(wildcard build/wheels)

.PHONY: help demo test test-all golden fuzz bombs faults damages interrupts bench samples sweep analyses gpu gpu-smoke gpu-tests gpu-questions gpu-rest gpu-wheels docs pictures site sentences mutants core clean

help:
	@echo "make demo   install PyTorch and TensorFlow, capture three LSTMs on a small workload, say where each step goes"
	@echo "make test   install the rest, then ruff, mypy and the fast tests"
	@echo "make test-all  the slow tests"
	@echo "make golden write tests/golden/ anew: what the commands print of the samples; read the diff"
	@echo "make fuzz   attack every reader with damaged inputs for MINUTES=10"
	@echo "make bombs  measure memory and time that small hostile files need"
	@echo "make faults kill and fill the disk at every change of files that a command makes"
	@echo "make damages  damage 310 runs, and give each to five commands"
	@echo "make interrupts  interrupt each of six commands 100 times"
	@echo "make bench  what the harness itself costs"
	@echo "make analyses  write analyses/README.md and its charts: what benchmark studies said, beside the samples in traces/"
	@echo "make sweep     capture what analyses/measured/ lacks of the kernel study's sweeps, on an idle machine"
	@echo "make samples   capture the samples in traces/ anew, on an idle machine"
	@echo "make gpu    on a machine with a GPU: its tests, then captures for BUDGET=480s into OUT=traces/gpu"
	@echo "make gpu-smoke, gpu-tests, gpu-questions, gpu-rest  the same in four calls, 30 minutes in all"
	@echo "make gpu-wheels  what such a machine lacks without a network, into build/wheels"
	@echo "make docs   write docs/tables.md, docs/causes.md, the table of docs/diagnosis.md and the schemas from the code"
	@echo "make pictures  draw the pictures of README and docs/ anew, by Chromium, of the samples in traces/"
	@echo "make site   the documentation as pages, into build/site"
	@echo "make sentences  every sentence that diagnose, breakdown and the report can print"
	@echo "make mutants  plant 200 small faults in a copy of the code: which do the tests notice?"
	@echo "make core PYTHON=python3.13   the tests that need no framework, under another Python"
	@echo "make clean  remove .venv and the demo's runs"

demo: $(FOR_DEMO)
	@echo "Runs to look at before anything is captured: $(BIN)/lstmprof breakdown traces/ and $(BIN)/lstmprof diagnose traces/ (traces/README.md)"
	$(BIN)/lstmprof capture --impl torch-nn-lstm --impl torch-lstmcell-basic --impl tf-lstmcell $(DEMO)
	$(BIN)/lstmprof breakdown traces/demo --top 3
	$(BIN)/lstmprof diagnose traces/demo

test: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy docs/tables.py docs/diagnosis.py docs/causes.py docs/schema.py docs/sentences.py docs/site_pages.py docs/pictures.py
	$(BIN)/python -m compileall -q lstmprof  # a thousand processes of the tests import it
	$(PYTEST) -m "not slow"

test-all: $(INSTALLED)
	$(BIN)/python -m compileall -q lstmprof
	$(PYTEST) -m slow

golden: $(INSTALLED)
	PYTHONPATH=.:tests $(BIN)/python tests/test_golden.py

# atheris stands apart: without it, inputs are drawn from numbers alone.
fuzz: $(INSTALLED) build/atheris/.tried
	PYTHONPATH=tests $(BIN)/python -W error -m attack --minutes $(MINUTES) --atheris build/atheris $(FUZZ_FLAGS)

bombs: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -W error -m attack.bombs

faults: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -W error -m attack.faults

damages: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -W error -m attack.damages

interrupts: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -W error -m attack.signals

build/atheris/.tried: $(INSTALLED)
	mkdir -p build/atheris
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/atheris 'atheris>=3'
	touch $@

bench: $(INSTALLED)
	$(BIN)/python benchmarks/harness.py
	$(BIN)/python benchmarks/own_code.py

samples: $(INSTALLED)
	$(BIN)/python -m benchmarks.samples $(SAMPLES)

sweep: $(INSTALLED)
	$(BIN)/python -m benchmarks.kernel_sweep

analyses: $(INSTALLED)
	$(BIN)/python -m analyses $(SAMPLE_RUNS) --charts analyses/charts > analyses/README.md.partial
	mv analyses/README.md.partial analyses/README.md

# What else: make gpu GPU_FLAGS=--dry-run, or --help.
gpu:
	$(GPU_PYTHON) -m benchmarks.gpu --budget $(BUDGET) --out $(OUT) $(if $(WHEELS),--wheels $(WHEELS)) $(GPU_FLAGS)

# The session in four calls of at most ten minutes each: docs/gpu.md.
gpu-smoke:
	$(MAKE) gpu BUDGET=230s GPU_FLAGS="--no-tests --most 9 $(GPU_FLAGS)"

gpu-tests:
	$(MAKE) gpu BUDGET=360s GPU_FLAGS="--most 0 $(GPU_FLAGS)"

gpu-questions:
	$(GPU_PYTHON) -m benchmarks.gpu.questions --out $(OUT)

gpu-rest:
	$(MAKE) gpu BUDGET=570s GPU_FLAGS="--no-tests $(GPU_FLAGS)"

gpu-wheels: $(INSTALLED)
	$(BIN)/python -m benchmarks.gpu.wheels build/wheels

docs: $(INSTALLED)
	$(BIN)/python docs/tables.py > docs/tables.md.partial
	mv docs/tables.md.partial docs/tables.md
	$(BIN)/python docs/diagnosis.py
	$(BIN)/python docs/causes.py
	$(BIN)/python docs/schema.py

pictures: $(INSTALLED)
	$(BIN)/python docs/pictures.py

# mkdocs's Material tells of its successor on every build otherwise.
site: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "$(BIN)/python -m http.server -d build/site shows it"

sentences: $(INSTALLED)
	@$(BIN)/python docs/sentences.py

# What else: make mutants MUTANTS="--number 40 --area formats".
mutants: $(INSTALLED)
	$(INSTALL) --quiet -e '.[mutants]'
	$(BIN)/python -m benchmarks.mutants $(MUTANTS)

# What needs no framework, under another Python: make core PYTHON=python3.13.
core:
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[cluster,dev]'
	build/core/bin/pytest --numprocesses logical --maxprocesses 4 --dist worksteal

# Each stamp is written last: an install that was cut short is done again.
$(FOR_DEMO): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lstmprof needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; give make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	@echo "Installing lstmprof with PyTorch and TensorFlow, which the demo runs, into .venv; make test adds the rest"
	$(INSTALL) -e '.[torch,tensorflow]'
	touch $@

$(INSTALLED): $(FOR_DEMO)
	$(INSTALL) --quiet -e '.[torch,tensorflow,jax,pytensor,onnxruntime,openvino,cluster,dev]'
	touch $@

clean:
	rm -rf .venv traces/demo
