# Every target makes its own environment: `make demo` and `make test` work in a fresh clone.

PYTHONS ?= python3.13 python3.12 python3.11 python3
WORKERS ?= 4
ARGS    ?=
AGENTS  ?= $(HOME)/.cache/sayso-agents
UV      := 0.13.7

BIN   := .venv/bin
READY := .venv/.ready
LIGHT := .venv/.light
STATIC := src/sayso/server/static
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
UNITS := $(wildcard $(addprefix tests/, channels/test_card.py engine gate inbox policy schema \
	test_codec.py test_keys.py test_sync.py test_text.py test_types.py))

.DEFAULT_GOAL := help
.PHONY: demo quick test test-all programs test-agents versions check lint types imports generated pages pictures bench chaos ui docs site release release-check update clean help

demo: $(LIGHT) ## play with a scripted agent, no key needed; pass options as ARGS="--terminal"
	$(BIN)/sayso demo $(ARGS)

quick: $(READY) ## run the unit tests on SQLite, without servers and browsers, in less than a minute
	$(PYTEST) -k "not postgres and not memory and not process" $(UNITS) $(ARGS)

test: $(READY) programs ## run the tests, and every snippet of the documentation (ten minutes on two cores)
	$(PYTEST) $(ARGS)

test-all: $(READY) programs ## run what `make test` runs and the long tests, as CI does
	$(PYTEST) -m "not chaos and not agents" $(ARGS)

programs: $(READY)
	@$(BIN)/python scripts/programs.py chromium >/dev/null || [ -z "$$CI" ]
	@[ -z "$$CI" ] || for program in nginx pgbouncer; do $(BIN)/python scripts/programs.py $$program >/dev/null || true; done

check: $(READY) ## lint, types, imports, the web app, the documentation site, and whether generated pages are up to date
	@$(MAKE) --no-print-directory --jobs=2 $(TOGETHER) types pages site lint imports generated

# The output of each target in one piece, where make can do that.
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

versions: $(READY) ## run each adapter's story at both ends of its range of versions, in fresh environments; one as ARGS="dspy"
	$(BIN)/python scripts/adapter_versions.py $(ARGS)

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	$(BIN)/mypy

imports: $(READY) ## import-linter: arrows point down
	$(BIN)/lint-imports

generated: $(READY) ## whether generated pages are up to date
	$(BIN)/python scripts/state_chart.py --check
	$(BIN)/python scripts/cli_page.py --check
	$(BIN)/python scripts/configuration_page.py --check
	$(BIN)/python scripts/adapter_table.py --check
	$(BIN)/python scripts/tamper_table.py --check
	$(BIN)/python scripts/api_types.py --check

test-agents: $(READY) ## the hooks with the real Claude Code, Codex, Copilot, Gemini CLI and OpenCode (npm, about 1.5 GB, kept in ~/.cache), and the Claude Agent SDK's story
	@mkdir -p $(AGENTS)
	npm install --silent --no-audit --no-fund --force --prefix $(AGENTS) \
	    @anthropic-ai/claude-code@2.1.325 @openai/codex@0.166.0 @github/copilot@1.0.102 \
	    @google/gemini-cli@0.61.0 opencode-ai@1.18.18
	SAYSO_AGENTS=$(AGENTS) $(BIN)/pytest -v -m agents tests/hooks/test_real_agents.py tests/hooks/test_real_switches.py \
	    tests/adapters/test_story_claude_agent.py $(ARGS)

bench: $(READY) ## measure beside the peers; writes docs/benchmarks.md, some rows as ARGS="once agent"
	$(BIN)/python -m benchmarks $(ARGS)

chaos: $(READY) ## the long fault tests, for hours: kills, stops, power cuts, load; ARGS="-k load"
	$(BIN)/pytest -v -m chaos tests/chaos tests/hooks $(ARGS)

ui: ui/node_modules/.ready $(READY) ## build the web app into src/sayso/server/static
	$(BIN)/python scripts/api_types.py
	cd ui && npm run --silent build

pages: ui/node_modules/.ready ## types and tests of the web app, and whether the committed build is a fresh one
	cd ui && npm run --silent check && npm test --silent && npm run --silent build -- --outDir ../build/static
	@diff -rq build/static $(STATIC) || { echo "The web app has changed: run make ui, and commit what it builds."; exit 1; }

# Not `npm ci`: it refuses a lock that leaves out the binaries of platforms it was not made on.
ui/node_modules/.ready: ui/package-lock.json
	cd ui && npm install --no-save --silent --no-audit --no-fund
	@touch $@

docs: $(READY) ## rewrite the generated pages
	$(BIN)/python scripts/state_chart.py
	$(BIN)/python scripts/cli_page.py
	$(BIN)/python scripts/configuration_page.py
	$(BIN)/python scripts/adapter_table.py
	$(BIN)/python scripts/tamper_table.py
	$(BIN)/python scripts/api_types.py

site: $(READY) ## build the documentation site into build/site; a broken link or a warning fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

release: release-check
release-check: $(READY) ## build dist/ and use it in new environments: each Python, each extra, newest and lowest versions
	$(BIN)/python scripts/release_check.py $(ARGS)

pictures: $(READY) ## render the screenshots of the documentation again
	@mkdir -p docs/images
	SAYSO_PICTURES=$(CURDIR)/docs/images $(BIN)/pytest -q tests/pages -k pictures

clean: ## remove the environment, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | awk -F '\t' '{ printf "make %-13s %s\n", $$1, $$2 }'

# The environment, made again when the pinned versions change: with everything for the tests, or with
# just what the demo needs. Each candidate is really started, because a version manager may put
# names on the path that lead nowhere. Where there is no uv, a pinned one is installed into .venv.
define install
	@if [ ! -x $(BIN)/python ]; then \
	    for python in $(PYTHONS); do \
	        $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	        python=; \
	    done; \
	    if [ -z "$$python" ]; then \
	        echo "Sayso needs Python 3.11 or later, and none of these is one: $(PYTHONS)." >&2; \
	        echo "Install one, or name it: make PYTHONS=/path/to/python ..." >&2; \
	        exit 1; \
	    fi; \
	    rm -rf .venv; \
	    if command -v uv >/dev/null; then uv venv --quiet --python "$$(command -v $$python)" .venv; \
	    else $$python -m venv .venv; fi || { rm -rf .venv; exit 1; }; \
	fi
	@echo "Installing $(2) into .venv ..."
	@uv=$$(command -v uv || echo $(BIN)/uv); \
	if [ ! -x "$$uv" ]; then \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV); \
	fi && \
	"$$uv" pip install --quiet --python $(BIN)/python -r requirements/$(1).txt && \
	"$$uv" pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@
endef

$(READY): pyproject.toml requirements/dev.txt
	$(call install,dev,Sayso with its tools and every framework that it is tested with)

$(LIGHT): pyproject.toml requirements/demo.txt
	$(call install,demo,Sayso)

COMPILE = uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-header \
	--no-annotate --no-emit-package sayso pyproject.toml

update: ## move the pinned versions in requirements/ to the newest that pyproject.toml allows
	$(COMPILE) --extra dev --output-file requirements/dev.txt
	$(COMPILE) --extra server --output-file requirements/demo.txt
	$(COMPILE) requirements/langgraph.in --extra langchain --output-file requirements/langgraph.txt
