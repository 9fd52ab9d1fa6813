# make app    the workbench on http://127.0.0.1:8501 (make app PORT=9000 for another port)
# make test   the suite, a real browser included; make test-slow: the quick laboratory, SmolLM2, several processes
# make check  style, types, rooms

PORT ?= 8501
PYTHON ?= python3
TEST_WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# An NVIDIA machine gets the GPU builds; anything else the CPU builds. EXTRA=base leaves torch out.
EXTRA ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
UV_INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --index-strategy unsafe-best-match \
	$(if $(PIP_FIND_LINKS),--find-links "$(PIP_FIND_LINKS)")
# vLLM's CPU build wants PyTorch's CPU wheels; where the configured indexes lack them, PyTorch's own has them.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
with_extras = $(if $(filter base,$(EXTRA)),$(if $(1),[$(1)]),[$(EXTRA)$(if $(1),$(comma)$(1))])
comma := ,
define install
	$(UV_INSTALL) -e '.$(call with_extras,$(1))' || \
	  $(UV_INSTALL) --extra-index-url $(TORCH_INDEX) -e '.$(call with_extras,$(1))'
endef

.PHONY: app test test-slow check clean
.DELETE_ON_ERROR:

app: $(VENV)/.app-$(EXTRA)
	@exec $(BIN)/stepwiser app --port $(PORT)

# Bytecode is kept, whatever the environment says: the tests start processes by the dozen, and one that has to compile
# vLLM's modules again spends as long on that as on loading them.
test test-slow: export PYTHONDONTWRITEBYTECODE =
test test-slow: export PYTHONPYCACHEPREFIX = $(abspath $(VENV))/pycache

test: $(VENV)/.dev-$(EXTRA)
	@$(BIN)/python -m tests.browser_setup
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile -m "not slow"

test-slow: $(VENV)/.dev-$(EXTRA)
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.dev-$(EXTRA)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_rooms.py

clean:
	rm -rf $(VENV)

$(BIN)/uv:
	@echo "Making the virtual environment in $(VENV) …"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet uv

$(VENV)/.app-$(EXTRA): pyproject.toml | $(BIN)/uv
	@echo "Installing StepWiser Studio [$(EXTRA)] (once; a few minutes at most) …"
	@$(call install,)
	@touch $@

$(VENV)/.dev-$(EXTRA): pyproject.toml | $(BIN)/uv
	@echo "Installing StepWiser Studio [$(EXTRA),dev] (once; a few minutes at most) …"
	@$(call install,dev)
	@touch $@ $(VENV)/.app-$(EXTRA)
