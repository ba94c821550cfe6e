# make help lists the targets. Everything but a system Python 3.11+ comes from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
READY_DEV := .venv/.ready-dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export OMP_WAIT_POLICY ?= PASSIVE
DEMO ?=    # what `make demo` is to do otherwise, such as DEMO='seed=0 trainer.max_steps=5 evaluation.limit=5'

.PHONY: help setup demo studies picture test test-slow lint format report bench slurm-packages slurm-test docs reference reference-check audit release-check

help:    ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup: $(READY_DEV)    ## make .venv and install lossbench, with what tests need, at pinned versions

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $(READY)

$(READY_DEV): $(READY)
	$(INSTALL) -e '.[dev]'
	touch $(READY_DEV)

demo: $(READY)    ## 4 losses x 3 seeds on the embedded model, then the report (about 6 minutes on 2 cores after the set-up)
	$(BIN)/python train.py -m sweep=demo $(DEMO)
	$(BIN)/lossbench report runs/demo --out results/demo

picture: $(READY)    ## draw the top of the demo's report for the README, with headless Chromium
	$(BIN)/python scripts/picture.py

STUDIES := vision_losses emo_lm emo_llama fused_head_7b label_noise small_data calibration memorisation
WORKERS ?= 1

studies: $(STUDIES:%=study-%)    ## the small version of every study, and its report in results/ (about an hour; WORKERS=2: runs at a time)

study-calibration: SHOWN := test/em,test/confidence/ece,test/confidence/brier,test/confidence/mean,test/nll
study-label_noise: SHOWN := test/ppl,test/token_accuracy,val/nll
study-fused_head_7b: SHOWN := val/nll,test/nll,time/train_s,perf/tokens_per_s,perf/peak_memory_mb
study-%: $(READY_DEV)
	$(BIN)/python train.py -m sweep=$*_tiny hydra.launcher.workers=$(WORKERS)
	$(BIN)/lossbench report runs/$*_tiny --out results/$*_tiny --strict $(if $(SHOWN),--metrics $(SHOWN)) \
	  --format html --format md --format csv --format json

report: $(READY)    ## write results/ from all runs/
	$(BIN)/lossbench report runs --out results

bench: $(READY_DEV)    ## speed and memory of the fused LM head, of training and of reports, into benchmarks/results (about an hour)
	$(INSTALL) -e '.[bench]'
	$(INSTALL) --no-deps cut-cross-entropy segmentation-models-pytorch
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/report.py

PYTEST := HF_HUB_OFFLINE=1 WANDB_MODE=offline $(BIN)/python -m pytest --numprocesses auto --dist loadfile
test: $(READY_DEV)    ## the test suite but for what is slow
	$(PYTEST) -m 'not slow and not slurm'

test-slow: $(READY_DEV)    ## the slow rest: real signals, two processes, the page in a browser, wandb's client, docs, examples
	$(PYTEST) -m 'slow and not slurm'

SLURM := slurm-wlm munge slurmdbd mariadb-server-core mariadb-client-core

slurm-packages:    ## install what slurm-test needs; as root, on Debian or Ubuntu
	@test "$$(id -u)" = 0 || { echo "A private SLURM cluster needs root; run this as root." >&2; exit 1; }
	@command -v apt-get >/dev/null || { echo "Packages of Debian or Ubuntu are needed: $(SLURM)." >&2; exit 1; }
	dpkg -s $(SLURM) >/dev/null 2>&1 || { apt-get update --quiet && \
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends $(SLURM); }

slurm-test: $(READY_DEV) slurm-packages    ## sweeps on a real SLURM cluster in a temporary folder; as root (12 minutes)
	HF_HUB_OFFLINE=1 WANDB_MODE=offline $(BIN)/python -m pytest tests/slurm -m slurm --numprocesses 5 --dist loadfile --no-loadscope-reorder $(AGAIN)

lint: $(READY_DEV)    ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY_DEV)    ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY_DEV)    ## the documentation as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

REFERENCE := loss_docs cli_docs config_docs metric_docs

reference: $(READY_DEV)    ## write the generated pages of docs/ again
	for page in $(REFERENCE); do $(BIN)/python scripts/$$page.py || exit 1; done

reference-check: $(READY_DEV)    ## exit 1 and name the generated pages that are not current
	for page in $(REFERENCE); do $(BIN)/python scripts/$$page.py --check || exit 1; done

audit:    ## known vulnerabilities of the pinned dependencies (needs the API of pypi.org)
	test -x build/audit/bin/pip-audit || $(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

RELEASE := build/release

release-check: $(READY_DEV)    ## build sdist and wheel, install the wheel in a fresh environment, run the demo on one seed
	rm -rf $(RELEASE)
	$(BIN)/python -m build --no-isolation --outdir $(RELEASE)/dist
	$(PYTHON) -m venv $(RELEASE)/venv
	$(RELEASE)/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(RELEASE)/dist/*.whl
	cd $(RELEASE) && venv/bin/lossbench losses check cross_entropy emo focal lovasz_softmax > checks.txt
	cd $(RELEASE) && venv/bin/lossbench train -m sweep=demo $(or $(DEMO),seed=0)
	cd $(RELEASE) && venv/bin/lossbench report runs/demo --strict --out results
