package widthtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/widthtest"
	"github.com/permesso-dev/permesso/security/policy"
)

// Whatever is allowed after a decision differs from what was approved only as its sentence
// said, judged by a checker that reads the sentence; what was approved is allowed again at
// once, if that was offered. PERMESSO_SEED repeats a run.
func TestWidth(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	n := 1000
	if os.Getenv("PERMESSO_SOAK") != "" {
		n = 20_000
	}
	t.Logf("PERMESSO_SEED=%d, %d cases", seed, n)
	lines, all := corpus(t), newTally()
	dir := gatetest.MemoryFolder(t)
	var wg sync.WaitGroup
	for i := range runtime.GOMAXPROCS(0) {
		w, err := newWorker(filepath.Join(dir, strconv.Itoa(i)))
		require.NoError(t, err)
		wg.Go(func() {
			for number := all.next(); number < n; number = all.next() {
				x := &trial{worker: w, random: random{rand.New(rand.NewPCG(seed, uint64(number))), lines}, tally: all}
				if err := x.run(); err != nil {
					all.fail(fmt.Errorf("case %d: %w\n%s", number, err, x.setup.toml()))
				}
			}
			if err := w.stop(); err != nil {
				all.fail(err)
			}
		})
	}
	wg.Wait()
	t.Log(all)
	require.NoError(t, errors.Join(all.failed...))
	for _, what := range expected {
		require.Positive(t, all.counts[what], "a run in which this never happens tests nothing: %s", what)
	}
}

// expected must happen in every run.
var expected = []string{
	"given by 1", "given by 2", "given by 6", "given by pattern", "given by add", "given by add pattern",
	"form tool", "form target", "form again", "form command", "form action",
	"figure above 0: again", "figure above 0: command", "covered: the same", "covered: argument command",
	"covered: argument text", "covered: random",
	"asked: session", "asked: client", "asked: workspace", "asked: tool", "asked: argument command",
	"asked: argument path",
	"asked: argument url", "asked: changed tool", "asked: later",
}

// tally counts what happened, and keeps the first failures.
type tally struct {
	mu     sync.Mutex
	begun  int
	counts map[string]int
	failed []error
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

// next is the number of the next case. There is none after ten failures.
func (s *tally) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun++; len(s.failed) >= 10 {
		return 1 << 30
	}
	return s.begun - 1
}

func (s *tally) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

func (s *tally) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// String implements fmt.Stringer.
func (s *tally) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&b, "%s: %d\n", what, s.counts[what])
	}
	return b.String()
}

// trial is one case.
type trial struct {
	*worker
	random
	*tally
	setup    setup
	rig      *rig
	given    string // how
	approved call
	request  string // id of approved
	id       string // of the grant, "": none was given
	consent  widthtest.Consent
	uses     int // that remain; -1: no limit
	asked    []asked
}

// asked is a request that a person was asked about.
type asked struct {
	call widthtest.Call
	soft bool // a grant could have spared that
}

func (x *trial) run() (err error) {
	for x.rig == nil {
		x.setup = x.random.setup()
		x.rig, _ = x.open(x.setup.toml()) // not every configuration is valid
	}
	defer func() { err = errors.Join(err, x.rig.close()) }()
	for range x.IntN(4) { // what the client has read before
		if err := x.follow("before", x.call(x.setup)); err != nil {
			return err
		}
	}
	for range 12 {
		x.approved = x.call(x.setup)
		o, err := x.send(x.approved)
		if err != nil {
			return err
		}
		if x.request = o.key.ID; o.pending != nil && !x.approved.question {
			return x.decided(o)
		}
	}
	return nil
}

func (x *trial) send(c call) (outcome, error) {
	o, err := x.rig.send(c)
	if err != nil {
		return o, fmt.Errorf("%s: %w", c.json(""), err)
	}
	if o.pending != nil {
		if err := x.figures(c, o.pending); err != nil {
			return o, fmt.Errorf("%s: %w", c.json(""), err)
		}
		x.asked = append(x.asked, asked{x.setup.seen(c, x.rig.now()), o.pending.Ruling.Soft})
	}
	return o, x.judge(c, o)
}

// figures says why the card's "would have allowed N of the last M" is wrong.
func (x *trial) figures(c call, p *approval.Pending) error {
	for _, scope := range []approval.Scope{approval.Session, approval.Always, approval.Commands} {
		offer, ok := p.Offer(scope)
		if !ok {
			continue
		}
		said := style.Offer(p, scope)
		told := widthtest.Consent{Grant: said, Call: x.setup.seen(c, x.rig.now()), Until: p.Timestamp.AddDate(1, 0,
			0)}
		n, of := 0, 0
		for _, earlier := range slices.Backward(x.asked) {
			if earlier.call.Workspace != c.Workspace || earlier.call.Client != c.Client || of == 20 {
				continue
			}
			of++
			earlier.call.At, earlier.call.Definition = told.Call.At, told.Call.Definition // as if it came now
			if earlier.soft && told.Covers(earlier.call) == nil {
				n++
			}
		}
		// The engine compares texts as they were written, and leaves open no word that runs a program.
		narrow := offer.Terms.Form == grant.Again || offer.Terms.Form == grant.Command
		if offer.Would > 0 {
			x.count("figure above 0: " + offer.Terms.Form)
		}
		if offer.Would > n || offer.Would < n && !narrow || offer.Of != of {
			return fmt.Errorf("%q would have allowed %d of %d, not %d of %d", said, n, of, offer.Would, offer.Of)
		}
	}
	return nil
}

// judge says why a request must not have been allowed.
func (x *trial) judge(c call, o outcome) error {
	if !o.allowed {
		return nil
	}
	if o.grant == "" {
		alone, err := x.rig.alone()
		if err != nil || alone.Outcome == approval.Allow {
			return err
		}
		return fmt.Errorf("%s was allowed by %q, which asks without grants", c.json(""), x.rig.ruling.Rule)
	}
	if o.grant != x.id {
		return fmt.Errorf("%s: no grant %q was given", c.json(""), o.grant)
	}
	if x.uses == 0 {
		return fmt.Errorf("%s: the grant was used up", c.json(""))
	}
	x.uses--
	if err := x.consent.Covers(x.setup.seen(c, x.rig.now())); err != nil {
		return fmt.Errorf("%s, given by %s for\n%s: %w", c.json(""), x.given, x.approved.json(""), err)
	}
	return nil
}

// once approves a request for once.
func (x *trial) once(o outcome) error {
	grants := len(x.rig.memory.Grants())
	code := pick(x.random, "1", "1", "3")
	if o.pending.Type == approval.TypeQuestion {
		code = "3"
	}
	if err := x.rig.decide(o, code, ""); err != nil {
		return err
	}
	if len(x.rig.memory.Grants()) != grants {
		return errors.New("code 1 gave a grant")
	}
	return nil
}

// decided decides the request in one of the ways, then checks what follows.
func (x *trial) decided(o outcome) error {
	ways := map[string]func(outcome) (bool, error){
		"1": func(outcome) (bool, error) { return false, nil }, "2": x.session, "6": x.always, "pattern": x.pattern,
		"add": x.add, "add pattern": x.addPattern,
	}
	x.given, x.uses = pick(x.random, "1", "2", "2", "6", "6", "6", "pattern", "add", "add"), -1
	if _, ok := o.pending.Offer(approval.Commands); ok && x.oneIn(2) {
		x.given = pick(x.random, "pattern", "pattern", "add pattern")
	}
	given, err := ways[x.given](o)
	if err != nil {
		return fmt.Errorf("%s, by %s: %w", x.approved.json(""), x.given, err)
	}
	if !given {
		x.given = "1"
		if err := x.once(o); err != nil {
			return err
		}
	}
	x.count("given by " + x.given)
	if given {
		if err := x.works(); err != nil {
			return fmt.Errorf("%s, by %s: %w", x.approved.json(""), x.given, err)
		}
	}
	return x.later()
}

var style = chat.Style{Redact: home.NewRedaction(), Local: true}

// remember keeps what the person was told, and the grant that came of it.
func (x *trial) remember(offer string, g *grant.Use) error {
	if g == nil {
		return errors.New("no grant was given")
	}
	x.count("form " + g.Form)
	x.id = g.ID
	x.consent = widthtest.Consent{
		Offer: offer, Grant: style.Grant(&g.Grant), Until: g.ExpiresAt, Call: x.setup.seen(x.approved, x.rig.now()),
	}
	x.consent.Call.ID = x.request
	return nil
}

func (x *trial) session(o outcome) (bool, error) { return x.code(o, "2", approval.Session) }

func (x *trial) always(o outcome) (bool, error) { return x.code(o, "6", approval.Always) }

// code decides with a code, if its sentence is on the card; else the code must be refused.
func (x *trial) code(o outcome, code string, scope approval.Scope) (bool, error) {
	said := style.Offer(o.pending, scope)
	err := x.rig.decide(o, code, "")
	if said == "" && err == nil {
		return false, errors.New("the code counts without a sentence")
	}
	if said == "" || err != nil {
		return false, onlyIf(said != "", err)
	}
	return true, x.remember(said, x.rig.grantOf(o.key.ID))
}

func onlyIf(ok bool, err error) error {
	if ok {
		return err
	}
	return nil
}

// pattern decides with code 6 and a command pattern: the suggested one, or another.
func (x *trial) pattern(o outcome) (bool, error) {
	p, line := *o.pending, x.line(o.pending)
	words, why := policy.Pattern(&p, line)
	offer, ok := p.Offer(approval.Commands)
	if !ok || !why.IsZero() {
		if x.rig.decide(o, "6", line) == nil && line != "" {
			return false, fmt.Errorf("the pattern %q was not refused", line)
		}
		return false, nil
	}
	p.Offers = slices.Clone(p.Offers)
	offer.Terms.Words = words
	p.Offers[slices.IndexFunc(p.Offers, func(o approval.Offer) bool { return o.Scope == approval.Commands })] = offer
	if err := x.rig.decide(o, "6", line); err != nil {
		return false, err
	}
	return true, x.remember(style.Offer(&p, approval.Commands), x.rig.grantOf(o.key.ID))
}

// line is a command pattern that a person may type.
func (x *trial) line(p *approval.Pending) string {
	o, ok := p.Offer(approval.Commands)
	if !ok {
		return "go test ..."
	}
	words := slices.Clone(o.Terms.Words)
	if i := x.IntN(len(words)); x.oneIn(3) {
		words[i] = pick(x.random, "...", "a")
	}
	if x.oneIn(4) {
		words = append(words, "...")
	}
	return facts.JoinWords(words)
}

// add gives a grant by permesso grant add, and lets the request wait.
func (x *trial) add(o outcome) (bool, error) {
	b := control.GrantBody{
		Workspace: x.approved.Workspace, Client: x.approved.Client, Tool: x.approved.Tool,
		ActionType: x.approved.Action,
		Life:       pick(x.random, "1h", "24h", "720h", "2400h"), Uses: pick(x.random, 0, 0, 0, 1, 3),
	}
	if x.oneIn(3) {
		b.Session = x.approved.Session
	}
	if t, _ := x.setup.tool(x.approved.Tool); t.target != "" {
		b.Target = o.pending.Target
		if i := strings.LastIndexByte(b.Target, '/'); i > 0 && x.oneIn(2) {
			b.Target = b.Target[:i] + pick(x.random, "/**", "/*", "/?*")
		}
	}
	if b.Client != submit.FolderClient(b.Workspace) {
		if err := x.rig.addKey(b.Client, b.Workspace); err != nil {
			return false, err
		}
	}
	return x.added(b, o)
}

// addPattern gives a command pattern by permesso grant add --from.
func (x *trial) addPattern(o outcome) (bool, error) {
	return x.added(control.GrantBody{
		Workspace: x.approved.Workspace, From: o.key.ID, Command: x.line(o.pending), Life: pick(x.random, "1h",
			"720h"),
	}, o)
}

func (x *trial) added(b control.GrantBody, o outcome) (bool, error) {
	before := len(x.rig.memory.Grants())
	g, err := x.client.AddGrant(context.Background(), b)
	if err != nil {
		if len(x.rig.memory.Grants()) != before {
			return false, errors.New("it was refused, and gave a grant")
		}
		return false, nil
	}
	if b.Uses > 0 {
		x.uses = b.Uses
	}
	soft := o.pending.Ruling.Soft
	if isPath := strings.HasPrefix(o.pending.Capability, "fs:"); !isPath && b.Target != "" &&
		b.Target != o.pending.Target ||
		isPath && strings.ContainsAny(o.pending.Target, `[]{}*?\`) {
		soft = false // only paths have globs
	}
	if _, offered := o.pending.Offer(approval.Always); !offered || b.Session != x.approved.Session &&
		b.Session != "" {
		soft = false
	}
	if !soft {
		x.count("a grant that does not lift this ask")
	}
	return soft, x.remember("", x.rig.grantOf(g.ID))
}

// works says why the grant does not allow the same request at once, in any session if it
// says always.
func (x *trial) works() error {
	err := x.allows(x.approved)
	if err == nil && x.uses < 0 && strings.HasPrefix(x.consent.Grant, "Always") {
		err = x.allows(x.approved.with(func(c *call) { c.Session = "s3" }))
	}
	return err
}

func (x *trial) allows(c call) error {
	o, err := x.send(c)
	switch {
	case err != nil:
		return err
	case o.allowed: // in another session also by another rule
		x.count("covered: the same")
	case x.rig.ruling.Rule == "limits":
		x.count("a limit is used up")
	default:
		return fmt.Errorf("the sentence %q does not work: %+v", x.consent.Grant, x.rig.ruling)
	}
	return nil
}

// later sends requests that differ, each in one thing.
func (x *trial) later() error {
	for _, m := range x.mutants(x.setup, x.approved) {
		if err := x.follow(m.what, m.call); err != nil {
			return err
		}
		if x.oneIn(3) {
			if err := x.follow("random", x.call(x.setup)); err != nil {
				return err
			}
		}
	}
	return x.last()
}

// last lets the time pass, changes the tool, or revokes the grant.
func (x *trial) last() error {
	what := "later"
	switch x.IntN(3) {
	case 0:
		x.rig.shift += pick(x.random, time.Hour, 24*time.Hour, 48*time.Hour, 90*24*time.Hour) + pick(x.random,
			-time.Minute, time.Minute)
	case 1:
		what = "changed tool"
		if next := x.changeTool(x.setup,
			x.approved.Tool); x.rig.load(next.toml()) == nil { // not every configuration is valid
			x.setup = next
		}
	case 2:
		what = "revoked"
		if done, err := x.rig.memory.RevokeGrant(x.id, "ann"); err != nil || done != (x.id != "") {
			return fmt.Errorf("revoke: %t, %w", done, err)
		}
		x.id = "revoked"
	}
	for range 2 {
		if err := x.follow(what, x.approved); err != nil {
			return err
		}
	}
	return x.follow("random "+what, x.call(x.setup))
}

func (x *trial) follow(what string, c call) error {
	o, err := x.send(c)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case o.grant != "":
		x.count("covered: " + what)
	case o.pending != nil:
		x.count("asked: " + what)
		if what == "before" && x.oneIn(2) || x.oneIn(6) {
			return x.once(o)
		}
	}
	return nil
}
