# Entry points. Every target says what it does and installs what it needs; all are idempotent.
#   make            build/release/trine
#   make demo       fetch SmolLM2-135M (98 MB) and answer a question with it
#   make test       what CI runs: lint, release everything, asan unit+property, tsan threaded, fuzz replay + 10 s each
#   make test-all   every test in every preset, and the tidy build
#   make test-clients   the server with clients that users have: lm-eval, langchain-openai, AIPerf (fetches from PyPI, once: 2 GB on disk)
#   make bench      micro benchmarks, and the packed kernels beside the limits of the machine
#   make bench-peers    Trine and llama.cpp side by side (builds llama.cpp once; hours, ARGS=--quick: minutes; docs/benchmarks.md)
#   make bench-peers-serve   Trine's server and llama.cpp's under the same load (ARGS='--models smollm2-135m --tests streams'; docs/benchmarks.md)
#   make lint       format, layers, symbols, file sizes
#   make format     rewrite sources with clang-format 16
#   make golden     regenerate golden files with the pinned Python oracles (needs network and ~6 GB)
#   make golden-llama   the same for the llama.cpp logits (builds llama-cpp-python)
#   make fuzz-long  30 minutes of fuzzing per target (FUZZ_SECONDS to change)
#   make soak       load tests of the server in their long form (SOAK_SECONDS=1800 of mixed requests, storms, overload)
#   make clean      remove build/

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all
.PHONY: all setup demo test test-all test-clients bench bench-peers bench-peers-serve lint format golden golden-llama fuzz-long soak clean

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 1800
SOAK_SECONDS ?= 1800
# -P keeps tools/golden out of the import path: tokenizers.py has the name of a package.
GOLDEN_PYTHON := .venv/golden/bin/python -P

all: setup
	@tools/build.sh release trine

setup:
	@tools/setup.sh packages.txt

demo:
	@tools/demo.sh

test: setup
	@tools/test.sh standard

test-all: setup
	@tools/test.sh all

test-clients: setup
	@tools/build.sh release trine
	@tests/http/venv.sh build/venv-clients tests/clients/requirements.txt
	@tests/http/venv.sh build/venv-aiperf tests/clients/requirements-aiperf.txt
	@for test in clients/lm_eval clients/langchain aiperf/aiperf; do \
	  file=tests/clients/$${test#*/}_test.py; echo "== $$file"; build/venv-$${test%/*}/bin/python -B -W ignore $$file build/release/trine; done

bench: setup
	@tools/build.sh release all
	@tools/bench.sh

bench-peers: setup
	@tools/build.sh release trine synthetic_gguf
	@bench/peers/setup.sh
	@python3 bench/peers/run.py $(ARGS)

bench-peers-serve: setup
	@tools/build.sh release trine synthetic_gguf
	@bench/peers/setup.sh
	@python3 bench/peers/serve.py $(ARGS)

lint: setup
	@python3 tools/check_tree.py
	@tools/format.sh --check

format: setup
	@tools/format.sh

.venv/golden/.done: tools/golden/requirements.txt
	python3 -m venv .venv/golden
	.venv/golden/bin/pip install -r tools/golden/requirements.txt
	touch $@

golden: all .venv/golden/.done
	@for script in loadgen dequant tokenizers chat_templates sampling grammar families docs_models embeddings convert eval; do \
	  echo "== tools/golden/$$script.py"; $(GOLDEN_PYTHON) tools/golden/$$script.py; done

golden-llama: all .venv/golden/.done
	.venv/golden/bin/pip install -r tools/golden/requirements-llama.txt
	$(GOLDEN_PYTHON) tools/golden/llama_cpp_logits.py
	$(GOLDEN_PYTHON) tools/golden/llama_cpp_convert.py

fuzz-long: setup
	@tools/fuzz_long.sh $(FUZZ_SECONDS)

soak: all
	TRINE_SOAK_SECONDS=$(SOAK_SECONDS) python3 -B -W ignore::ResourceWarning tests/http/load_test.py build/release/trine

clean:
	rm -rf build
