package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// scriptHelp stands in the help of serve.
const scriptHelp = `With --script a file answers instead of people, for tests of your own agents and for nothing else. It takes a
--home that is new or was made so, a --config that is named, and neither channels nor a socket beside it:

  otherwise = "deny"          # or "none": what no rule fits waits until it expires
  [[rules]]                   # the first that fits answers
  match = { tool = "x_post", args = { text = "*standup*" } }   # also: action_type, workspace, title
  do = "note"                 # approve, session, always, note, override, deny, request_more, answer, none
  text = "be brief"           # for note, override, deny, request_more, answer
  delay = "2s"
  times = 1`

// readScript reads the script that the command line names; nil where it names none.
// A script answers for the configuration and in the home that were named together
// with it: never for those that serve in earnest.
func (a *app) readScript(cfg *config.Config) (*config.Script, error) {
	switch {
	case a.scriptFlag == "":
		return nil, nil
	case a.homeFlag == "" && a.Env("PERMESSO_HOME") == "":
		return nil, fail(codeUsage, "--home with a new folder", "--script needs a home of its own")
	case cfg.File != "" && a.configFlag == "" && a.Env("PERMESSO_CONFIG") == "":
		return nil, fail(codeUsage, "--config with a file for tests; its tools do run", "--script does not answer for %s unless it is named", cfg.File)
	}
	sc, err := config.LoadScript(a.scriptFlag)
	if err != nil {
		return nil, err
	}
	return sc, (&server{script: sc}).scriptAllows(cfg)
}

// scriptAllows refuses a configuration by which people would be asked beside a
// script: they would take what it decides for each other's word.
func (s *server) scriptAllows(cfg *config.Config) error {
	if s.script == nil {
		return nil
	}
	for _, name := range sortedNames(cfg) {
		if ws := cfg.Workspaces[name]; len(ws.Channels) > 0 {
			return fail(codeError, "take channels out of [workspaces."+name+"]", "workspace '%s' asks people on %s: a script answers alone", name, strings.Join(ws.Channels, ", "))
		}
	}
	for _, k := range kinds() {
		if k.settings(cfg) != nil {
			return fail(codeError, "take channels."+k.name+" out of the configuration", "people are asked on %s: a script answers alone", k.name)
		}
	}
	if cfg.Socket != "" {
		return fail(codeError, "take socket out of the configuration", "people decide on %s: a script answers alone", cfg.Socket)
	}
	return nil
}

// scripted is the script that answers in this home, "" where people do.
func (h *house) scripted() (string, error) {
	b, err := os.ReadFile(h.layout.Scripted())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return cmp.Or(line, "a script"), err
}

// markScripted keeps homes in which scripts answer and all others apart, for good:
// what a script has consented to must never let anything through in earnest. The
// caller holds the home's lock.
func (s *server) markScripted() error {
	by, err := s.scripted()
	switch {
	case err != nil:
		return fmt.Errorf("look for the mark of a script: %w", err)
	case s.script == nil && by != "":
		return fail(codeError, "give this gate another --home, or serve that one with --script", "%s answered in %s: no gate serves it without a script", by, s.layout.Home)
	case s.script == nil:
		return nil
	case by == "":
		// Whoever has keys has documents that people decided.
		keys, err := os.ReadDir(s.layout.Keys())
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			return fail(codeError, "--home with a new folder", "people answer in %s: a script does not take their place", s.layout.Home)
		}
	}
	return s.writeMark()
}

// writeMark is durable before there are keys.
func (s *server) writeMark() error {
	text := fmt.Sprintf("script:%s\nThis file says that a script answers in this home and not people. Never serve it for anything but tests.\n", s.script.Name)
	file, err := s.fs.OpenFile(s.layout.Scripted(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("mark the home: %w", err)
	}
	_, err = file.Write([]byte(text))
	if err := errors.Join(err, file.Sync(), file.Close(), s.fs.SyncDir(s.layout.Home)); err != nil {
		return fmt.Errorf("mark the home: %w", err)
	}
	return nil
}

// greetScripted says it so that nobody overlooks it.
func (s *server) greetScripted() {
	if s.script == nil {
		return
	}
	name := scriptedName(s.script)
	bar := strings.Repeat("!", 78)
	fmt.Fprintf(s.app.Out, "%s\n!!  NOBODY IS ASKED: %s answers.\n!!  This gate is good for tests of agents, and for nothing else.\n%[1]s\n", bar, name)
	s.log.Warn().Str("by", name).Str("sha256", s.script.SHA256).Msg("NOBODY IS ASKED: a script answers; this gate is good for tests alone")
	s.health.Set("script", name+" answers instead of people", "good for tests alone; for anything else serve another home, without --script")
	s.audit.Note(approval.Entry{Time: time.Now().UTC(), Event: approval.EventConfigured, Detail: "script sha256 " + s.script.SHA256})
}

const scriptChannel = "script"

func scriptedName(sc *config.Script) string { return scriptChannel + ":" + sc.Name }

// stand is who a script is to the gate. No configuration knows anybody like that:
// only the decider made for it does.
func stand(sc *config.Script) approval.Person {
	return approval.Person{Channel: scriptChannel, ID: sc.SHA256[:16], Name: scriptedName(sc)}
}

// scriptDecider is Decide for the script of this daemon, and for nobody else.
func (s *server) scriptDecider() *gate.Decider {
	d := s.decider(s.keys, s)
	d.May = func(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
		_, known := s.conf().Workspaces[ws]
		if s.script == nil || !known || by != stand(s.script) {
			return "", false
		}
		return by.Name, true
	}
	return d
}

func (s *server) answers() *answerer {
	return &answerer{
		script: s.script, viewer: s.viewer(s.keys), decider: afresh(s.scriptDecider), changes: s.changes, log: s.log,
		used: make([]int, len(s.script.Rules)), replies: map[approval.Key]*reply{},
	}
}

// answerer answers what waits as a script has it. It keeps in memory what it has
// said, and how often: a gate that is started anew begins its script anew.
type answerer struct {
	script  *config.Script
	viewer  *gate.Viewer
	decider chat.Decider
	changes <-chan approval.Key // hints; they may be lost
	log     zerolog.Logger

	used    []int // how often each rule was taken
	replies map[approval.Key]*reply
}

// reply is what is said to one request, and when.
type reply struct {
	sha  string // of the pending
	rule config.ScriptRule
	name string
	due  time.Time
	done bool
}

// lookEvery is how often everything is looked at that waits.
const lookEvery = time.Second

func (x *answerer) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	x.lookAll(ctx)
	for {
		next := time.NewTimer(x.answerDue(ctx, time.Now()))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case k := <-x.changes:
			x.look(ctx, k)
		case <-tick.C:
			x.lookAll(ctx)
		case <-next.C:
		}
		next.Stop()
	}
}

// look replies an answer to what waits under a key; the zero key is all of them.
func (x *answerer) look(ctx context.Context, k approval.Key) {
	if k == (approval.Key{}) {
		x.lookAll(ctx)
		return
	}
	w, err := x.viewer.Pending(k)
	switch {
	case err != nil:
		x.log.Error().Err(err).Str("via", scriptChannel).Msg("look at what waits")
	case w == nil:
		delete(x.replies, k)
	default:
		x.plan(*w)
	}
}

func (x *answerer) lookAll(ctx context.Context) {
	list, err := x.viewer.Waiting(ctx, nil)
	if err != nil {
		x.log.Error().Err(err).Str("via", scriptChannel).Msg("look at what waits")
		return
	}
	for k := range x.replies {
		if !slices.ContainsFunc(list, func(w approval.Waiting) bool { return w.Key() == k }) {
			delete(x.replies, k)
		}
	}
	for _, w := range list {
		x.plan(w)
	}
}

func (x *answerer) plan(w approval.Waiting) {
	k := w.Key()
	if old := x.replies[k]; old != nil && old.sha == w.SHA256 {
		return
	}
	p := &reply{sha: w.SHA256, rule: x.script.Otherwise, name: "otherwise"}
	for i, r := range x.script.Rules {
		if r.Fits(w.Pending) && (r.Times == 0 || x.used[i] < r.Times) {
			x.used[i]++
			p.rule, p.name = r, fmt.Sprintf("rule %d", i+1)
			break
		}
	}
	p.due = w.Pending.Timestamp.Add(p.rule.Delay)
	x.replies[k] = p
}

// answerDue says what is due, and gives the time until more is.
func (x *answerer) answerDue(ctx context.Context, now time.Time) (next time.Duration) {
	next = lookEvery
	for k, p := range x.replies {
		if wait := p.due.Sub(now); !p.done && wait > 0 {
			next = min(next, wait)
		} else if !p.done {
			p.done = x.answer(ctx, k, p)
		}
	}
	return next
}

// answer says what is planned. What the request has no use for is a no, which says
// why: whoever wrote the script sees it at once.
func (x *answerer) answer(ctx context.Context, k approval.Key, p *reply) (done bool) {
	a, speaks := p.rule.Answer(k)
	if !speaks {
		return true
	}
	a.PendingSHA256, a.By, a.Via = p.sha, stand(x.script), scriptChannel
	_, err := x.decider.Decide(ctx, a)
	if errors.Is(err, approval.ErrNotApplicable) {
		no := approval.DecisionInput{Key: k, PendingSHA256: p.sha, By: a.By, Via: a.Via, Verdict: approval.Denied, Code: "3"}
		no.Feedback = fmt.Sprintf("%s of the script does not fit: %s", p.name, err)
		_, err = x.decider.Decide(ctx, no)
	}
	if _, refused := errors.AsType[*approval.Refusal](err); refused || err == nil {
		return true // somebody else was first, or its time is over
	}
	x.log.Error().Err(err).Str("ws", k.Workspace).Str("id", k.ID).Str("via", scriptChannel).Msg("answer")
	return false
}
