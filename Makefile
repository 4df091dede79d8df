# What CI runs, a person can run: each target does one thing, and .ci/run calls the same ones.
# Versions of tools live in go.mod and in hack/tools/*.mod, and nowhere else.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

# Binaries depend on their sources alone, so that two machines build the same bytes.
# Tests are built with the same flags: one build cache then serves image, tests and demo.
export CGO_ENABLED ?= 0
export GOFLAGS := $(GOFLAGS) -trimpath
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARCH ?= $(shell go env GOARCH)
GO_BUILD = GOOS=linux GOARCH=$(ARCH) go build -buildvcs=false -ldflags="-s -w"
IMAGE ?= localhost/kraft-operator:$(VERSION)

LINT := go tool -modfile=hack/tools/lint.mod golangci-lint

##@ General

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
		/^[a-zA-Z0-9_-]+:.*?##/ {printf "  \033[36m%-16s\033[0m%s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try it

.PHONY: demo
demo: ## Bring up a real Kubernetes and show the main job on real pods (root, or a Docker engine)
	@hack/demo/run

.PHONY: demo-down
demo-down: ## Remove all that demo left: the cluster, its data and images
	@hack/demo/down

##@ Build

.PHONY: build
build: ## Build both programs into bin/, for this machine
	go build -buildvcs=false -o bin/manager .
	go build -buildvcs=false -o bin/quorum ./quorum

.PHONY: image
image: ## Build the image IMAGE=name:tag into dist/image.tar, without Docker; IMAGE may be several names
	@mkdir -p dist/$(ARCH)
	$(GO_BUILD) -o dist/$(ARCH)/manager .
	$(GO_BUILD) -o dist/$(ARCH)/quorum ./quorum
	@go run ./hack/image $(addprefix --name ,$(IMAGE)) --arch $(ARCH) --out dist/image.tar \
		--user 65532:65532 --entrypoint /manager --label org.opencontainers.image.version=$(VERSION) \
		--label org.opencontainers.image.licenses=Apache-2.0 --label org.opencontainers.image.title=kraft-operator \
		/manager=dist/$(ARCH)/manager /quorum=dist/$(ARCH)/quorum

.PHONY: generate
generate: ## Run all generators: deep copies, apply configurations, CRD, RBAC
	go generate ./...

.PHONY: manifests
manifests: generate ## The same: the generators of CRD and RBAC are go:generate lines, too

.PHONY: fmt
fmt: ## Format all Go files as lint wants them
	$(LINT) fmt

##@ Test

.PHONY: test
test: ## Run all fast tests, envtest included
	KUBEBUILDER_ASSETS="$${KUBEBUILDER_ASSETS:-$$(hack/localkube/build)}" go test -shuffle=on -timeout=15m ./...

.PHONY: race
race: ## Run the quorum's and the planner's tests with the race detector and costly assertions on
	CGO_ENABLED=1 go test -race -tags=invariants -short -shuffle=on -timeout=20m ./quorum/... ./controllers/plan/...

SEEDS ?= 2000
SEED ?=
SIM = GOGC=2000 go test ./quorum/sim -count=1 -timeout=0 -v
.PHONY: sim
sim: ## Simulate SEEDS=n quorums under faults, or one with a trace: SEED=n
	$(SIM) -run 'TestSimulation$$' $(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS))

HOURS ?= 8
.PHONY: sim-nightly
sim-nightly: ## Simulate fresh seeds for HOURS=n, or until one fails
	$(SIM) -run 'TestSimulation$$' -hours=$(HOURS)

.PHONY: sim-bugs
sim-bugs: ## Plant bugs, one after the other, and see how many seeds it takes to find each
	$(SIM) -run 'TestPlantedBugsAreFound$$'

.PHONY: sim-handoff
sim-handoff: ## Hand over in 10,000 quorums each of 3, 5 and 7 voters, and show how long it takes
	$(SIM) -run 'TestHandoffStatistics$$' -handoffs=10000

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME=30s
	@hack/fuzz $(FUZZTIME)

.PHONY: golden
golden: ## Rewrite all golden files, and show which have changed
	@hack/golden

.PHONY: bench
bench: ## Run the benchmarks of the quorum
	go test ./quorum/... -run '^$$' -bench . -benchmem -count=$(or $(COUNT),6)

RUNS ?= 10
.PHONY: e2e
e2e: ## Do to real processes and real pods what happens to them: kills, a bad image, a node's power failure (root)
	go test -tags=e2e -count=1 -timeout=30m -v ./quorum/e2e -runs=$(RUNS)
	@hack/demo/run --faults

.PHONY: e2e-quick
e2e-quick: ## The same to processes alone, and briefly: two minutes
	go test -tags=e2e -count=1 -timeout=10m -v ./quorum/e2e -runs=7 -chaos=10s -idempotence=10s -histories=8 -kcats=2 -kills=4 -starve=8s

.PHONY: interop
interop: ## Test beside real Apache Kafka and kcat; what is missing on the machine is skipped
	@hack/interop/run

.PHONY: envtest-assets
envtest-assets: ## Build etcd, API server and kubectl, and print the folder for KUBEBUILDER_ASSETS
	@hack/localkube/build

##@ Check

.PHONY: lint
lint: ## Run the linters and the import rules
	$(LINT) run

.PHONY: verify
verify: ## Check that generated files, go.mod, formatting, docs and import rules are up to date
	@hack/verify/run

.PHONY: hooks
hooks: ## Have git check format and commit subjects from now on
	git config core.hooksPath hack/githooks
