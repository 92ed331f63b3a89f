# Everything a developer or CI runs. "make" alone lists the targets.

SHELL := /usr/bin/env bash -o pipefail
comma := ,
.DEFAULT_GOAL := help

# What tests and the demo install (Envoy, Dynamo) goes here; git ignores it.
export WARMPATH_CACHE ?= $(CURDIR)/.cache

GO ?= go
TOOL := $(GO) tool -modfile=hack/tools/go.mod
GOLANGCI_LINT := $(TOOL) golangci-lint
# The same build as that of the tests, which keep theirs.
HELM_TOOL := GOFLAGS="$(GOFLAGS) -trimpath" $(GO) tool -modfile=$(CURDIR)/hack/helm/go.mod
HELM_DOCS ?= $(HELM_TOOL) helm-docs
KUSTOMIZE ?= $(HELM_TOOL) kustomize
KUBECTL ?= kubectl
CONTROLLER_GEN := $(TOOL) controller-gen
# Numbers with a fraction are numbers for people who write policies.
CRD_OPTIONS := crd:allowDangerousTypes=true

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS ?= -s -w -X github.com/warmpath/warmpath/pkg/telemetry.version=$(VERSION)

TEST_TIMEOUT ?= 20m
RACE_COUNT ?= 50
# Packages that compare a pure function with the reference on large files, in one
# goroutine: the race detector finds nothing there and takes minutes.
ONE_THREAD = /pkg/prompt/(tokenizer|encoder)|/test/tokens$$
# Packages whose state is shared between goroutines.
RACE_PACKAGES ?= ./pkg/index/... ./pkg/load/... ./pkg/pick/... ./pkg/extproc/... ./pkg/eventplane/... ./pkg/render/... ./pkg/discovery/... ./pkg/kube/... ./pkg/app/... ./pkg/recovery/... ./pkg/simengine/... ./pkg/parity/... ./pkg/modelfiles/... ./pkg/scrape/... ./pkg/prompt/encoder/...
BENCH_PACKAGES ?= ./pkg/block/... ./pkg/index/... ./pkg/load/... ./pkg/pick/... ./pkg/prompt/... ./pkg/kvevent/... ./pkg/eventplane/... ./pkg/extproc/... ./pkg/scrape/... ./pkg/app/...
BENCH_COUNT ?= 6
BENCH_ARGS ?=
# Mooncake's conversation trace, for a replay; docs/benchmarks.md says where it is.
TRACE ?=
FUZZ_TIME ?= 30s
SOAK_TIME ?= 3m
# What happens in which order.
SOAK_SEED ?= 1
DEMO_ARGS ?=
# Strings that fuzz-tokens compares per tokenizer, and which.
TOKEN_STRINGS ?= 1000000
TOKEN_SEED ?= 1
# What hack/oracle/compare.py measures: --rounds N, --tokenizers A,B, --json FILE.
TOKEN_ARGS ?=

# What "make deploy" installs: the picker of this pool, in its namespace.
NAMESPACE ?= default
POOL ?= warmpath

CONTAINER_TOOL ?= docker
IMG ?= warmpath/epp:$(VERSION)
# What the image is made of: the commit, its time, the platforms, and a base image
# (a folder with an OCI layout or a reference in a registry) where none is too little.
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
PLATFORMS ?= linux/amd64,linux/arm64
BASE ?=
DIST ?= dist
IMAGE_TOOL := $(GO) run -C hack/image .
IMAGE_ARCHIVE = $(abspath $(DIST))/warmpath-epp.oci.tar

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-zA-Z_-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Build and run

.PHONY: build
build: ## Build bin/epp and bin/warmpath, static.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/epp ./cmd/epp
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/warmpath ./cmd/warmpath

.PHONY: demo
demo: build ## Watch prefix routing work: NATS, workers, picker and Envoy on this machine (DEMO_ARGS).
	bin/warmpath demo $(DEMO_ARGS)

.PHONY: image
image: ## Write dist/warmpath-epp.oci.tar, without a container engine (IMG, BASE, PLATFORMS).
	$(IMAGE_TOOL) build -source '$(CURDIR)' -archive '$(IMAGE_ARCHIVE)' -name '$(IMG)' -base '$(BASE)' \
		-platforms '$(PLATFORMS)' -version '$(VERSION)' -revision '$(REVISION)'

.PHONY: image-push
image-push: ## Push what "make image" wrote to a registry (IMG=registry/repository:tag).
	$(IMAGE_TOOL) push -archive '$(IMAGE_ARCHIVE)' -to '$(IMG)'

.PHONY: image-docker
image-docker: ## Build the image from the Dockerfile instead (IMG, CONTAINER_TOOL).
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) -t $(IMG) .

# GOPROXY and GOSUMDB off: nobody is asked about the modules in the binary, which were
# checked when it was built. Those of the tool itself may have to be fetched first.
.PHONY: sbom
sbom: image ## Write dist/epp-*.cdx.json, a CycloneDX list of what is in each binary of the image.
	@$(GO) build -modfile=hack/image/go.mod -o /dev/null github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	@set -eu; for p in $(subst $(comma), ,$(PLATFORMS)); do \
		binary="$(abspath $(DIST))/epp-$${p/\//-}"; \
		GOPROXY=off GOSUMDB=off $(GO) tool -modfile=hack/image/go.mod cyclonedx-gomod bin -json -std -licenses -noserial -notimestamp \
			-version '$(VERSION)' -output "$$binary.cdx.json" "$$binary"; \
	done

.PHONY: clean
clean: ## Remove what was built. What was installed stays in WARMPATH_CACHE.
	rm -rf bin dist

##@ Test

.PHONY: test
test: vet gateway-assets ## Run every test, whole-system tests included; with the race detector but for comparisons of one thread with large files.
	$(GO) test -race -timeout $(TEST_TIMEOUT) $$($(GO) list ./... | grep -vE '$(ONE_THREAD)')
	$(GO) test -race -run 'Concurrently|AtOnce' -timeout $(TEST_TIMEOUT) ./pkg/prompt/tokenizer ./pkg/prompt/encoder
	$(GO) test -timeout $(TEST_TIMEOUT) $$($(GO) list ./... | grep -E '$(ONE_THREAD)')
	$(GO) test -C hack/image -timeout $(TEST_TIMEOUT) ./...

.PHONY: test-race
test-race: ## Run the concurrent packages RACE_COUNT times with the race detector.
	$(GO) test -race -count=$(RACE_COUNT) -timeout 60m $(RACE_PACKAGES)

.PHONY: test-interop
test-interop: ## Run against real Dynamo workers and frontends.
	$(GO) test -race -count=1 -timeout $(TEST_TIMEOUT) -v ./test/interop/...

.PHONY: envtest-assets
envtest-assets: ## Build etcd and kube-apiserver for the tests that need a cluster (about 5 minutes the first time).
	$(GO) run ./internal/testcluster/build

.PHONY: gateway-assets
gateway-assets: ## Build what the test with a real gateway needs besides: Istio's control plane and a controller.
	$(GO) run ./internal/testcluster/build -gateway

.PHONY: soak
soak: ## Make trouble for the event plane and a real nats-server for SOAK_TIME.
	$(GO) test -race -count=1 -timeout 0 -v -run 'Soak$$' ./test/chaos -args -soak $(SOAK_TIME) -seed $(SOAK_SEED)

.PHONY: bench
bench: build ## Run the benchmarks: the core packages, the index (TRACE), events, decisions, ext-proc round trips (BENCH_ARGS).
	$(GO) test -run '^$$' -bench . -benchmem -count=$(BENCH_COUNT) -timeout 60m $(BENCH_PACKAGES)
	bin/warmpath bench index $(if $(TRACE),--trace $(TRACE))
	bin/warmpath bench events
	bin/warmpath bench pick
	bin/warmpath bench extproc $(BENCH_ARGS)

.PHONY: bench-tokens
bench-tokens: build ## Measure prompts to tokens beside Hugging Face tokenizers (TOKEN_ARGS). Fetches models, texts and the latter.
	$(GO) run ./hack/oracle/run hack/oracle/texts.py "$(WARMPATH_CACHE)/texts" "$$($(GO) env GOROOT)"
	$(GO) run ./hack/oracle/run hack/oracle/compare.py bin/warmpath "$(WARMPATH_CACHE)/texts" $(TOKEN_ARGS)

.PHONY: fuzz-tokens
fuzz-tokens: ## Compare TOKEN_STRINGS odd strings per tokenizer with the reference tokenizers (TOKEN_SEED).
	$(GO) test -count=1 -timeout 0 -v -run 'Tokenizers//differential' ./test/tokens -args -strings $(TOKEN_STRINGS) -seed $(TOKEN_SEED)

# go test fuzzes one target of one package at a time: find them by name.
.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZ_TIME.
	@set -eu; \
	targets="$$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' api cmd hack pkg test | sed 's/:func /:/' | sort)"; \
	test -n "$$targets" || { echo "no fuzz targets found" >&2; exit 1; }; \
	for t in $$targets; do \
		dir="./$$(dirname "$${t%%:*}")"; name="$${t##*:}"; \
		echo "$$dir $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 10x "$$dir"; \
	done

##@ Check

.PHONY: fmt
fmt: ## Format the code.
	$(GOLANGCI_LINT) fmt

.PHONY: vet
vet: ## Run go vet.
	$(GO) vet ./...

.PHONY: lint
lint: ## Run the linters, import directions included.
	$(GOLANGCI_LINT) run
	cd hack/image && $(GO) tool -modfile=../tools/go.mod golangci-lint run --config ../../.golangci.yml

.PHONY: lint-config
lint-config: ## Check the linters' configuration.
	$(GOLANGCI_LINT) config verify

.PHONY: verify
verify: ## Fail when generated files, formatting or go.mod are not as they should be.
	@set -eu; tmp="$$(mktemp -d)"; trap 'rm -rf "$$tmp"' EXIT; \
	$(GO) run ./hack/genschema -reference "$$tmp/config.md" -schemas "$$tmp/schema"; \
	diff -u docs/reference/config.md "$$tmp/config.md" || { echo "run: make generate" >&2; exit 1; }; \
	diff -ru config/schema "$$tmp/schema" || { echo "run: make manifests" >&2; exit 1; }; \
	$(CONTROLLER_GEN) $(CRD_OPTIONS) paths=./api/... output:crd:dir="$$tmp/crd"; \
	for f in "$$tmp"/crd/*.yaml; do diff -u "config/crd/$${f##*/}" "$$f" || { echo "run: make manifests" >&2; exit 1; }; done; \
	$(CONTROLLER_GEN) object paths=./api/... output:object:dir="$$tmp/object"; \
	diff -u api/v1alpha1/zz_generated.deepcopy.go "$$tmp/object/zz_generated.deepcopy.go" || { echo "run: make generate" >&2; exit 1; }; \
	for f in config/crd/routing.warmpath.dev_*.yaml; do cmp "$$f" "charts/warmpath/files/crds/$${f##*/}" || { echo "run: make manifests" >&2; exit 1; }; done; \
	(cd hack/helm && $(GO) run ./valuesschema -values ../../charts/warmpath/values.yaml -config ../../config/schema/endpointpickerconfig.schema.json -out "$$tmp/values.json"); \
	diff -u charts/warmpath/values.schema.json "$$tmp/values.json" || { echo "run: make chart" >&2; exit 1; }; \
	bad="$$(gofmt -l api cmd hack internal pkg test)"; \
	test -z "$$bad" || { echo "not formatted, run make fmt:" >&2; echo "$$bad" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff
	$(GO) -C hack/image mod tidy -diff
	$(GO) mod verify

##@ Generate

.PHONY: generate
generate: ## Write docs/reference and the methods that copy objects from the Go types.
	$(GO) run ./hack/genschema -reference docs/reference/config.md
	$(CONTROLLER_GEN) object paths=./api/...

.PHONY: golden-tokens
golden-tokens: ## Write the golden token ids of pkg/prompt/tokenizer from the reference tokenizers.
	$(GO) run ./hack/oracle/run hack/oracle/golden.py pkg/prompt/tokenizer/testdata

.PHONY: golden-templates
golden-templates: ## Write the golden prompts of chat templates, and snippets, from jinja2.
	@set -eu; \
	dir="$$($(GO) list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)/testdata/templates"; list=""; \
	for f in "$$dir"/*.jinja; do list="$$list $$(basename "$$f" .jinja)=$$f"; done; \
	for m in deepseek_v3 gemma3 llama3_1 qwen3; do list="$$list npm-$$m=\$$MODELS/$$m/tokenizer_config.json"; done; \
	$(GO) run ./hack/oracle/run hack/templates/golden.py pkg/prompt/chat/testdata/requests.json pkg/prompt/chat/testdata/golden.json $$list; \
	PYTHONHASHSEED=0 $(GO) run ./hack/oracle/run hack/templates/snippets.py pkg/prompt/internal/jinja/testdata/snippets.jsonl

.PHONY: manifests
manifests: ## Write config/schema (JSON Schemas for editors), config/crd and the chart's copy of it from the Go types.
	$(GO) run ./hack/genschema -schemas config/schema
	$(CONTROLLER_GEN) $(CRD_OPTIONS) paths=./api/... output:crd:dir=config/crd
	cp config/crd/routing.warmpath.dev_*.yaml charts/warmpath/files/crds/

##@ Chart

.PHONY: chart
chart: ## Write the chart's values.schema.json and README from its values; lint it.
	cd hack/helm && $(GO) run ./valuesschema -values ../../charts/warmpath/values.yaml \
		-config ../../config/schema/endpointpickerconfig.schema.json -out ../../charts/warmpath/values.schema.json
	$(HELM_DOCS) --chart-search-root charts --log-level warning
	$(HELM_TOOL) helm lint --strict charts/warmpath

.PHONY: chart-golden
chart-golden: ## Write what the chart renders for each of its example values.
	$(GO) test -count=1 ./test/chart -run 'TestExamples' -update

.PHONY: deploy-manifests
deploy-manifests: ## Write dist/deploy: what deploy applies (NAMESPACE, POOL, IMG).
	@set -eu; rm -rf dist/deploy; mkdir -p dist/deploy; \
	sed 's/pool: {name: warmpath}/pool: {name: $(POOL)}/' config/picker/config.yaml > dist/deploy/config.yaml; \
	printf '%s\n' 'namespace: $(NAMESPACE)' 'resources: [../../config/default]' \
		'configMapGenerator: [{name: warmpath, behavior: replace, files: [config.yaml]}]' \
		'patches:' '- target: {kind: Role}' \
		'  patch: "- {op: replace, path: /rules/8/resourceNames/0, value: $(POOL)-warmpath}"' > dist/deploy/kustomization.yaml; \
	(cd dist/deploy && $(KUSTOMIZE) edit set image ghcr.io/warmpath/epp=$(IMG)); \
	$(KUSTOMIZE) build dist/deploy > dist/deploy/all.yaml

.PHONY: deploy
deploy: deploy-manifests ## Install the picker of POOL in NAMESPACE with kubectl (IMG).
	$(KUBECTL) apply --server-side -f dist/deploy/all.yaml

.PHONY: undeploy
undeploy: deploy-manifests ## Remove it again. The CRD stays, and with it all policies.
	sed -i.old 's|^- ../../config/default|- ../../config/rbac\n- ../../config/picker|' dist/deploy/kustomization.yaml
	$(KUSTOMIZE) build dist/deploy | $(KUBECTL) delete --ignore-not-found -f -
