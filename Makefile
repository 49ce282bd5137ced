# permesso: make help lists the targets.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
DATE    := $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
TOOL    := go tool -modfile=.ci/tools/go.mod

# Output paths.
BIN     ?= bin/permesso
DIST    ?= dist
DIST_ARCH ?=

# The date of the commit is the only date in packages.
EPOCH   := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PREFIX  ?= /usr/local

# Packages tested at once. The longest package comes first and runs beside all others, so that more of them at once
# would end no sooner, and make each test slower.
TEST_P   ?= 2
FUZZTIME ?= 30s
# All scripts for a shell.
SCRIPTS  := .ci/deps .ci/fuzz .ci/oldest .ci/openapi .ci/run .ci/types .pkg/version .pkg/install.sh .pkg/dist/build .pkg/dist/clients \
	.pkg/dist/same .pkg/deb/build .pkg/deb/check .pkg/deb/root .pkg/deb/first .pkg/deb/node .pkg/deb/upgrade .pkg/deb/preinst .pkg/deb/postinst .pkg/deb/prerm .pkg/deb/postrm cmd/permesso/examples/agent.sh \
	cmd/permesso/internal/setup/packaging/openrc cmd/permesso/internal/setup/packaging/runit
BENCH    ?= .
BENCH_DIR ?=

.DEFAULT_GOAL := help
.PHONY: screenshots help build install man dist deb deb-debootstrap deps deps-demo deps-tools test test-fast soak lab oldest openapi crash fuzz bench check fmt demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/permesso, static
	CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)' -o $(BIN) ./cmd/permesso

install: build man ## install into PREFIX (default /usr/local), with man pages; DESTDIR for packagers
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/permesso
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 644 $(DIST)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(DIST)/man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5

man: ## write man pages to dist/man; the same commit gives the same pages
	@rm -rf $(DIST)/man && mkdir -p $(DIST)/man
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$(EPOCH)} env -u GOOS -u GOARCH go run -buildvcs=false -tags man ./cmd/permesso man $(DIST)/man

deb: build ## build a Debian package in dist, for this machine or GOARCH
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$(EPOCH)} .pkg/deb/build '$(VERSION)' $(BIN) $(DIST)

dist: ## write all files of a release to dist: archives, packages, image, checksums (DIST_ARCH=amd64 for that alone)
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$(EPOCH)} .pkg/dist/build '$(VERSION)' '$(COMMIT)' '$(DATE)' $(DIST) $(DIST_ARCH)

deb-debootstrap: deb ## test the package in a fresh Debian (needs root and network, 2 minutes)
	@.ci/deps debootstrap
	@.pkg/deb/root debootstrap check "$$(ls -t $(DIST)/permesso_*.deb | head -1)"

demo: build deps-demo ## run the demo: a sandboxed agent asks, you decide
	@$(BIN) demo

deps: deps-tools ## install missing dependencies of the tests with apt
	@.ci/deps cc

deps-tools:
	@.ci/deps bwrap systemd-analyze python3 pip hatchling node npm chromium dbus-daemon dovecot smtpd dnsmasq groff tmux shellcheck busybox

# The demo runs without a sandbox, too, and says so.
deps-demo:
	@.ci/deps bwrap || echo 'demo: going on without bubblewrap'

# Tests that the race detector slows down too much: they kill processes, or run much code in one goroutine.
# They run without it, in their longer form, with the build flags of the installed program, so that most
# packages come from the cache. A test of cmd/permesso/internal/project compares both lists with the tests.
UNRACED  := ^(TestRealKills|TestRealKillsDuringReplies|TestRealKillsOfTheCommandLine|TestRealKillsTelegram|TestCrash|TestMutants|TestFaults|TestClocks|TestEveryCrash|TestEveryFault|TestDamagedBytes|TestCrashes|TestEveryChangeIsDetected|TestEveryCutBelowAWitnessIsDetected|TestAVerifierFromTheFormatAgrees|TestEveryVisibleScalarThroughTelegram|TestApproveOnlyWhatWasShown|TestAccident|TestEveryScalarOnACard|TestEveryScalarRoundTripsVisibly|TestEveryScalarOfABlockRoundTrips|TestTypedIsLinear|TestRepliesOfTheCorpus|TestCorporaDecideNothing|TestPeopleOfTheCorpora|TestAttributions|TestHeaders|TestCardWords|TestRecallOfTheRules|TestHostileSizes|TestFalsePositives|TestEverydaySecrets|TestEverydayRequests|TestLockfiles|TestBombs|TestEveryMaskIsOneToken|TestWorkOfHostileDocuments|TestEveryRuleHasAMachine|TestHostileDocumentsAreRefusedQuickly|TestNextAgreesWithTheTableOnEveryCombination|TestNextRunsOnlyApprovedActions|TestHostilePairsOnTheTerminal|TestHostilePairsInTelegram|TestHostilePairsInEmail|TestHostilePairsOnThePages|TestHostilePairsOfShow|TestWords|TestHints|TestNoOptionalInterfaces|TestReasonCodes|TestSyncs|TestWidth|TestRuleTable|TestRuleChecker|TestRuleCheckerIsConsistent|TestGeneratedRules|TestWordsThatTakeBack|TestDenialsThatApprove|TestShells|TestNoSecretLeaves|TestNoSecretLeavesByMail|TestNoSecretLeavesByTelegram|TestDataIsNeverMarkup|TestEverydayGrantsCoverNoVariation|TestEverydayGrantsCoverNoAbuse|TestCrashesOfTheFirstStart|TestEvidenceIsLinear|TestHostileCommandsAreFast|TestMachinesFindWhatExpressionsDo|TestBackwardsEqualsEntries|TestHostilePrograms)$$
UNRACED_IN := ./cmd/permesso/internal/crashtest ./cmd/permesso ./ipc ./approval/exec ./approval/facts ./ipc/journal ./security/audit ./chat/telegram ./chat/email \
	./chat/terminal ./chat/tui ./chat/web ./approval ./approval/move ./chat ./security/secrets ./cmd/permesso/internal/project \
	./cmd/permesso/internal/widthtest ./cmd/permesso/internal/ruletest ./chat/cardtest ./security/policy

# -timeout applies to each package; it is long, so that a busy machine fails no test. The race detector needs CGO_ENABLED.
# -parallel is above the number of processors because many of these tests wait. make check runs vet. Without
# debug information (-w) the linker takes a third less time.
# All is compiled first, and on the disk: a compiler beside them takes the processors of tests that wait for
# a daemon, and what it wrote must reach the disk before their first fsync does.
# A journal of four segments of 2 MiB: thousands of homes are made, and each would begin with 32 MiB of zeros.
test test-fast soak: export PERMESSO_JOURNAL_SIZE = 2097152
test: deps ## run all tests, with the race detector where it does not take too long
	@CGO_ENABLED=1 go list -race -test -export -deps ./cmd/permesso ./... > /dev/null
	@CGO_ENABLED=0 go list -trimpath -test -export -deps $(UNRACED_IN) > /dev/null
	@sync
	CGO_ENABLED=1 go test -race -vet=off -ldflags=-w -timeout 45m -p $(TEST_P) -parallel 3 -skip '$(UNRACED)' ./cmd/permesso ./...
	CGO_ENABLED=0 go test -trimpath -vet=off -ldflags=-w -count=1 -timeout 45m -p $(TEST_P) -parallel 4 -run '$(UNRACED)' $(UNRACED_IN)

test-fast: deps-tools ## run the short tests, without the race detector
	go test -short -timeout 5m -p $(TEST_P) ./...

screenshots: deps-tools ## update the README's screenshots
	PERMESSO_BROWSER_ONLY=tour PERMESSO_SCREENSHOTS=$(CURDIR)/.pkg/screenshots go test -count=1 -run TestBrowser ./cmd/permesso

soak: deps-tools ## run all tests in their long form (more kills, schedules, states; a fresh Debian; a virtual machine)
	@.ci/deps debootstrap kernel qemu-system-x86_64 busybox-static
	PERMESSO_SOAK=1 go test -count=1 -timeout 60m -p 1 ./...

lab: ## run the pinned agents against a model on loopback (needs npm, node, git and the network; 35 minutes)
	@mkdir -p .cache/lab && cp .ci/lab/package.json .cache/lab
	@go build -o .cache/lab/lab ./.ci/lab
	@if .cache/lab/lab -possible; then npm install --prefix .cache/lab --silent --no-audit --no-fund && .cache/lab/lab $(LAB) .cache/lab; fi

oldest: deps-tools ## test the clients on Python 3.9 and Node 18
	@.ci/oldest

openapi: ## lint the OpenAPI document
	@.ci/openapi

crash: ## explore a million disk states after crashes, and all mutants (about 8 minutes on two idle cores)
	go test -run '^(TestCrash|TestMutants)$$' -count=1 -timeout 60m -v ./cmd/permesso/internal/crashtest/ -states 1000000 -mutants 0

fuzz: ## run every fuzz target for 30 s (FUZZTIME=5m for longer)
	@.ci/fuzz $(FUZZTIME)

bench: build ## measure against the cost of one durable write (7 minutes; BENCH=Burst for some, BENCH_DIR for another disk)
	@PERMESSO_BENCH_DIR='$(if $(BENCH_DIR),$(abspath $(BENCH_DIR)))' go test -run '^$$' -bench '$(BENCH)' -timeout 30m ./security/policy ./security/secrets ./cmd/permesso/internal/bench | tee /dev/stderr | .ci/bench

# The tools have their own module file, so that go.mod lists only the program's dependencies. The first
# run builds them, which takes some minutes; later runs use Go's build cache.
check: ## run gofumpt, vet, golangci-lint, mypy, tsc, shellcheck, builds for macOS and Windows, go mod tidy, two builds of a release
	@echo 'check: gofumpt'
	@bad=$$(find . -path './.?*' -prune -o -name '*.go' -exec $(TOOL) gofumpt -l {} +) || exit 1; \
	if [ -n "$$bad" ]; then printf '%s\n' "$$bad" 'hint: make fmt'; exit 1; fi
	@echo 'check: go vet'
	@go vet ./...
	@go vet -tags man ./cmd/permesso
	@echo 'check: golangci-lint'
	@$(TOOL) golangci-lint run
	@echo 'check: types of the clients for Python and JavaScript'
	@.ci/deps mypy tsc && .ci/types
	@echo 'check: build for macOS and Windows'
	@CGO_ENABLED=0 GOOS=darwin go build -buildvcs=false ./...
	@CGO_ENABLED=0 GOOS=windows go vet -buildvcs=false ./cmd/permesso/client
	@echo 'check: shell scripts'
	@.ci/deps shellcheck && shellcheck $(SCRIPTS)
	@echo 'check: two builds give the same bytes'
	@.pkg/dist/same amd64
	@echo 'check: go.mod is tidy'
	@go mod tidy -diff

fmt: ## format all Go files with gofumpt
	@find . -path './.?*' -prune -o -name '*.go' -exec $(TOOL) gofumpt -l -w {} +

clean: ## remove the build output
	rm -rf bin dist
