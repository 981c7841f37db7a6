# Highwater. `make help` lists the targets; the two that matter first are `make demo` and `make test`.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The same flags everywhere, so that the Kubernetes libraries compile once for the product, the tools and the
# API server of the tests.
export GOFLAGS := -trimpath
export CGO_ENABLED ?= 0
export GOTOOLCHAIN := local

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/highwater-io/highwater/internal/buildinfo.Version=$(VERSION)
BIN := $(CURDIR)/bin
TOOL = go tool -modfile=hack/tools/go.mod
LINT = go tool -modfile=hack/tools/lint/go.mod

##@ Start here

.PHONY: demo
demo: build ## Run the whole product on this machine and narrate what happens to an in-sync replica set.
	go run ./test/demo $(DEMO_ARGS)

.PHONY: test
test: ## Unit, property, simulation, API server and process tests, race detector on.
	hack/test.sh

.PHONY: help
help: ## This list.
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*##/ {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Tests that have a target of their own

# The seed of what is random; 0: a fresh one, which is printed.
SEED ?= 0

.PHONY: envtest
envtest: ## Controllers on a real API server only; FOCUS=text picks specs.
	KUBEBUILDER_ASSETS=$$(go run ./cmd/highwater dev assets) go test $(if $(FOCUS),./controllers -ginkgo.focus='$(FOCUS)',./api/... ./controllers/...)

.PHONY: sim
sim: ## Simulate 20,000 schedules of the quorum and 2,000 of the ISR protocol under faults; SEED=n (0: a random one, printed).
	go build -o $(BIN)/proofs/sim ./test/sim
	$(BIN)/proofs/sim -seed=$(SEED) $(SIM_ARGS)

.PHONY: sim-mutants
sim-mutants: ## Show that the simulator catches each of 26 broken rules of the quorum, and by which invariant; SEED=n.
	go build -o $(BIN)/proofs/sim ./test/sim
	$(BIN)/proofs/sim -mutants -seed=$(SEED) $(SIM_ARGS)

.PHONY: bench-log
bench-log: ## Append, read, look up, roll, recover, send and flush: a table, and a failure when one allocates too much.
	go test -count=1 -run Allocations ./pkg/log ./pkg/wire ./pkg/node/exec
	go run ./hack/benchlog $(BENCH_ARGS)

.PHONY: bench-quorum
bench-quorum: build ## 100,000 partitions: a change, snapshots, installs; commits beside etcd, as ratios: tables, and a failure when a bound is missed.
	go test -count=1 -run Allocations ./pkg/metadata ./pkg/quorum/controller
	@mkdir -p $(BIN)/proofs
	go build -o $(BIN)/proofs/bench-quorum ./hack/benchquorum
	$(BIN)/proofs/bench-quorum $(BENCH_ARGS)

.PHONY: kafka-decode
kafka-decode: build ## Apache Kafka's own decoder reads our metadata log, snapshots and segments (needs Java and Maven).
	hack/kafka/verify.sh
	go build -o $(BIN)/proofs/kafka-decode ./test/kafkadecode/live
	$(BIN)/proofs/kafka-decode

CRASH_LOG ?= -for=5m -cases=200000
.PHONY: crash-log
crash-log: ## Take the power away before every change of a log's disk, hundreds of thousands of times; CRASH_LOG="-for=1m -cases=10000".
	go run ./test/crashlog $(CRASH_LOG)

.PHONY: crash-log-mutants
crash-log-mutants: ## Show that crash-log catches syncs left out, checksums not looked at, orders turned round.
	go run ./test/crashlog -mutants $(CRASH_LOG_MUTANTS)

.PHONY: fuzz-log
fuzz-log: ## Fuzz every decoder of what lies on a disk, and the recovery of whole directories; FUZZTIME=30s each.
	hack/fuzz-log.sh

.PHONY: kafka-data
kafka-data: build ## Apache Kafka and our node take turns on copies of one data directory, and serve the same bytes (needs Java and Maven).
	go build -o $(BIN)/proofs/kafka-data ./test/kafkadata
	$(BIN)/proofs/kafka-data

.PHONY: kafka-peer
kafka-peer: build ## Apache Kafka's tools ask our quorum, and its stock broker lives, dies and catches up in our cluster (needs Java and Maven).
	go build -o $(BIN)/proofs/kafka-peer ./test/kafkapeer
	$(BIN)/proofs/kafka-peer

##@ Build

.PHONY: build
build: ## Build highwater, highwater-node and highwater-operator into bin/.
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/highwater ./cmd/highwater
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/highwater-node ./cmd/node
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/highwater-operator ./cmd/operator

.PHONY: apiserver
apiserver: ## Find, fetch or build the API server that the tests and the local cluster run (minutes when cold).
	go run ./cmd/highwater dev assets

.PHONY: generate
generate: ## Deep copies of the API types.
	$(TOOL) controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: manifests
manifests: ## CRDs and RBAC from the markers in the code.
	$(TOOL) controller-gen crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(TOOL) controller-gen rbac:roleName=highwater-operator paths=./controllers/... output:rbac:artifacts:config=config/rbac

.PHONY: docs
docs: build ## The reference page from the code.
	go run ./hack/docgen

.PHONY: generated-clean
generated-clean: generate manifests docs chart-files ## Fail when generated files differ from what is committed.
	git diff --exit-code -- api config docs/reference.md charts/highwater/files
	go mod tidy -diff
	go -C hack/etcdload mod tidy -diff

.PHONY: fmt
fmt: ## Format the Go code.
	gofmt -w $$(git ls-files '*.go')

.PHONY: lint
lint: ## golangci-lint with the rules of .golangci.yml.
	$(LINT) golangci-lint run ./...

##@ A real cluster

.PHONY: e2e-kubelet
e2e-kubelet: ## Install with kustomize on real kubelets, then take pods, nodes and volumes away (root; or KUBECONFIG).
	hack/kubelet/with.sh ./test/e2e/kubelet $(E2E_ARGS)

.PHONY: helm-test
helm-test: ## Lint, render and refuse; then install, upgrade, uninstall and install the chart again on real kubelets.
	hack/helm-test.sh $(HELM_TEST_ARGS)

.PHONY: chart-files
chart-files: ## Copy CRDs and RBAC from config/ into the chart.
	cp config/crd/bases/*.yaml charts/highwater/files/crds/
	cp config/rbac/role.yaml config/rbac/leader_election_role.yaml charts/highwater/files/rbac/

##@ Proofs

# Built first: go run would turn exit code 3 (it can't run here) into 1.
.PHONY: compat-kcat
compat-kcat: build ## kcat (Debian) lists, produces with every codec, consumes and compares byte for byte (exit 3: can't run here).
	go build -o $(BIN)/proofs/ ./test/compat
	$(BIN)/proofs/compat $(KCAT_ARGS)

.PHONY: verify-latency
verify-latency: build ## From an ISR change's commit to the Partition's status, measured from outside.
	go build -o $(BIN)/proofs/ ./test/latency
	$(BIN)/proofs/latency $(LATENCY_ARGS)

KILLS ?= 20
.PHONY: chaos-smoke
chaos-smoke: build ## Kill -9 random processes under load; KILLS=20 SEED=n (0: a random one, which is printed).
	go build -o $(BIN)/proofs/ ./test/chaos
	$(BIN)/proofs/chaos -kills $(KILLS) -seed $(SEED) $(CHAOS_ARGS)

MINUTES ?= 2
.PHONY: e2e-disk
e2e-disk: build ## A node's disk fills up, becomes read-only, fails to write: leaders move, nothing is lost (root, loop devices).
	go build -o $(BIN)/proofs/ ./test/disk
	$(BIN)/proofs/disk $(DISK_ARGS)

.PHONY: e2e-snapshot
e2e-snapshot: build ## Nodes that were away install a snapshot of the metadata; with dead leaders, bad bytes, KILLS=20 of their own; SEED=n.
	go build -o $(BIN)/proofs/ ./test/snapshot
	$(BIN)/proofs/snapshot -kills $(KILLS) -seed $(SEED) $(SNAPSHOT_ARGS)

.PHONY: e2e-voters
e2e-voters: build ## The quorum goes from three voters to one, to three, to five and back while metadata is written; then one loses its volume.
	go build -o $(BIN)/proofs/ ./test/voters
	$(BIN)/proofs/voters $(VOTERS_ARGS)

.PHONY: e2e-idle
e2e-idle: build ## The operator writes nothing for MINUTES=2 while nothing changes.
	go build -o $(BIN)/proofs/ ./test/idle
	$(BIN)/proofs/idle -minutes $(MINUTES) $(IDLE_ARGS)
