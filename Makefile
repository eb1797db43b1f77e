# What people type. The checks that a change has to pass are those of .ci/run.

.DEFAULT_GOAL := build
.PHONY: build test race lint gate one bench fuzz ci clean help

bin := bin

# T and P choose a test and its package, B a benchmark, F a fuzz target, D the duration of fuzzing.
B ?= .
D ?= 1m

build: ## build ndrun, ndinfo, ndbench and the examples into bin/
	go build -o $(bin)/ ./cmd/... ./examples/...

test: ## run all tests (some minutes)
	go test ./...

race: ## run all tests with the race detector, with fewer rounds of the stress tests
	CGO_ENABLED=1 go test -race -short ./...

lint: ## check formatting, vet, staticcheck, the project's rules and the prose
	.ci/run format vet lint rules prose

one: ## run one test: make one T=TestName P=./endpoint
	@test -n "$(T)" && test -n "$(P)" || { echo 'usage: make one T=TestName P=./endpoint' >&2; exit 2; }
	go test -v -count=1 -run '^$(T)$$' $(P)

bench: ## run the Go benchmarks of a package: make bench P=./endpoint B=TwoProcesses
	go test -run '^$$' -bench '$(B)' -benchmem $(or $(P),./endpoint)

fuzz: ## run one fuzz target: make fuzz F=FuzzRing P=./endpoint/internal/ring D=1m
	@test -n "$(F)" && test -n "$(P)" || { echo 'usage: make fuzz F=FuzzRing P=./endpoint/internal/ring D=1m' >&2; exit 2; }
	@go test -list '^$(F)$$' $(P) | grep -qx '$(F)' || { echo 'make fuzz: no fuzz target $(F) in $(P)' >&2; exit 2; }
	go test -run '^$$' -fuzz '^$(F)$$' -fuzztime $(D) $(P)

gate: ## run the checks that take minutes: lint, short tests, race detector, the C library with gcc
	.ci/run gate

ci: ## run everything that a change has to pass
	.ci/run

clean: ## delete what make build has written
	rm -rf $(bin)

help: ## list these targets
	@sed -n 's/^\([a-z]*\): ## /\1\t/p' $(MAKEFILE_LIST) | sort | awk -F '\t' '{ printf "  make %-6s %s\n", $$1, $$2 }'
