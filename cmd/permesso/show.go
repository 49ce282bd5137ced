package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// show prints the card of a pending request or the record of an ended one, with
// its audit entries.
func (a *app) show(ctx context.Context, d *control.Client, typed string) error {
	k, err := find(ctx, d.Find, typed)
	if errors.Is(err, decide.ErrUnknown) {
		return a.showPruned(ctx, d, typed, err)
	}
	if err != nil {
		return err
	}
	s, err := d.Story(ctx, k, true)
	if err == nil && a.JSON && len(d.Style().Masked(s.Shown())) > 0 {
		s, err = revealStory(ctx, d, k)
	}
	switch {
	case err != nil:
		return err
	case s.Record != nil && a.JSON:
		return errors.Join(a.printDocument(s.Record, nil, nil, s.Timeline), s.Damaged)
	case s.Record != nil:
		a.showRecord(d.Style(), s)
	case s.Waiting == nil:
		return console.Wrap(console.ExitRefused, decide.ErrUnknown, "it is being settled now: try again")
	case a.JSON:
		return errors.Join(a.printDocument(s.Waiting.Pending, s.Waiting, undoneOf(d, k.Workspace, s.Decision), s.Timeline), s.Damaged)
	default:
		style := d.Style()
		style.Foot = s.Foot
		a.showWaiting(d, style, s)
	}
	a.printTimeline(s.Timeline)
	if s.Waiting != nil {
		fmt.Fprintln(a.Out, "seen: "+s.Waiting.SHA256)
	}
	return s.Damaged
}

// revealStory returns what is kept of a request, after the audit log has who reads what its
// card masks.
func revealStory(ctx context.Context, d *control.Client, k approval.Key) (s control.Story, err error) {
	if _, err = d.Reveal(ctx, k); err != nil {
		return s, err
	}
	return d.Story(ctx, k, true)
}

// showWaiting prints the card of what waits: for a decision, or for it to be carried out.
func (a *app) showWaiting(d *control.Client, style chat.Style, s control.Story) {
	p := s.Waiting.Pending
	card := cardOf(style, p)
	if s.Decision != nil {
		card.Menu, card.Typed, card.Why = nil, "", nil
	}
	a.showCard(card)
	switch line := style.ProposeRule(p); {
	case s.Decision != nil:
		who, why := notDone(d, p.SourceGroup, s.Decision, s.Running)
		a.Say("decision: %s", strings.TrimSuffix(who+"; "+why, "; "))
	case line != "":
		a.Say("%s", line)
	}
	a.printFact("key", s.KeyEnded)
}

// cardOf is the card of what waits, with the commands that answer it.
func cardOf(style chat.Style, p *approval.Pending) chat.Card {
	card := style.Card(p)
	if p.Type != approval.TypeQuestion {
		return card
	}
	what := "TEXT"
	if len(p.Options) > 0 {
		what = "N|TEXT"
	}
	card.Menu = card.Menu[:len(card.Menu)-1] // a terminal takes no replies
	card.Typed = "→ permesso answer " + chat.Escape(p.ShortID) + " " + what + "  /  permesso deny " + chat.Escape(p.ShortID)
	return card
}

// showCard prints a card, and why a person is asked.
func (a *app) showCard(card chat.Card) {
	a.Say("%s", card.String())
	what := "why"
	for _, line := range card.Why {
		a.printFact(what, line)
		what = ""
	}
}

// reveal shows the card of a request with the secrets that it otherwise masks, for as long
// as the person looks at it.
func (a *app) reveal(ctx context.Context, typed string) error {
	in, out, terminal := a.Terminal()
	if !terminal || a.Dumb() {
		return console.Fail(console.ExitUsage, "with --json it prints the request with its secrets",
			"show --reveal needs a terminal whose screen it can restore, or --json")
	}
	card := ""
	err := a.ask(ctx, func(d *control.Client) error { // closed before the person reads: it may lock HOME
		k, err := find(ctx, d.Find, typed)
		if err != nil {
			return err
		}
		w, err := d.Reveal(ctx, k)
		if err != nil {
			return err
		}
		style := d.Style()
		style.Reveal = true
		card = cardOf(style, w.Pending).String()
		return nil
	})
	if err != nil {
		return err
	}
	return console.ShowOnce(ctx, in, out, card)
}

// printDocument prints a document with additional members at its end: "pending_sha256" of
// a pending, "decision" if it has one, and "timeline".
func (a *app) printDocument(
	doc interface{ Encode() ([]byte, error) }, w *approval.StoredPending, decided *undone, log []event.Entry,
) error {
	b, err := doc.Encode()
	if err != nil {
		return err
	}
	line, err := json.Marshal(log, codec.Times())
	if err != nil {
		return err
	}
	b = bytes.TrimSuffix(b, []byte("}"))
	if w != nil {
		b = fmt.Appendf(b, `,"pending_sha256":%q`, w.SHA256)
	}
	if decided != nil {
		member, err := json.Marshal(decided, codec.Times())
		if err != nil {
			return err
		}
		b = fmt.Appendf(b, `,"decision":%s`, member)
	}
	_, err = fmt.Fprintf(a.Out, "%s,\"timeline\":%s}\n", b, line)
	return err
}

// showRecord prints a record as text.
func (a *app) showRecord(style chat.Style, s control.Story) {
	rec := s.Record
	a.Say("%s · %s · %s", rec.Workspace, rec.RequestID, rec.Status)
	about := s.Asked
	if about == nil { // policy decided
		about = read.Requested(approval.Key{Workspace: rec.Workspace, ID: rec.RequestID}, rec)
	}
	plain := func(text string) string { return style.OneLine(about, text) } // escaped, secrets redacted
	a.showAsked(s, about, style)
	if rec.Ruling != nil {
		a.printFact("ruling", fmt.Sprintf("%s by %s", rec.Ruling.Outcome, chat.Escape(rec.Ruling.Rule)))
		for _, r := range style.Reasons(about, rec.Ruling.Reasons) {
			a.printFact("", r)
		}
	}
	if d := s.Decision; d != nil {
		claim := ""
		if d.ClaimedBy != "" {
			claim = " (the program says: " + chat.Quote(d.ClaimedBy) + ")"
		}
		a.Say("decision: %s by %s via %s%s", d.Verdict, chat.Escape(d.DecidedBy), d.Via, claim)
		a.printFact("note", plain(d.Note))
		a.printFact("override", plain(d.Override))
		if d.Verdict == approval.Cancelled && d.Feedback != "" {
			a.printFact("reason", style.Quoted(about, d.Feedback))
		} else {
			a.printFact("feedback", plain(d.Feedback))
		}
		a.printFact("answer", plain(d.Answer))
	}
	resp, err := approval.ParseResponse(rec.Response)
	if err == nil && resp.Error != nil {
		a.printFact("error", plain(*resp.Error))
	}
	released := err == nil && resp.Execution == approval.ExecutionAgent && !rec.StartedAt.IsZero()
	switch {
	case released:
		a.printFact("released", rec.StartedAt.Local().Format(time.DateTime)+"; the gate runs nothing, and is not told how it ended")
	case err == nil && about.Plan != nil:
		a.showProgram(about, style, resp.Result)
	case err == nil && len(resp.Result) > 0 && string(resp.Result) != "null":
		a.printFact("result", style.Result(about, resp.Result))
	}
	if rec.Receipt != "" {
		a.printFact("receipt", "sha256 "+approval.Digest([]byte(rec.Receipt)))
	}
	a.showRedeemed(s.Redeemed)
	started, ended := rec.StartedAt, rec.EndedAt
	if released {
		started, ended = time.Time{}, time.Time{}
	}
	for _, t := range []struct {
		what string
		at   time.Time
	}{{"asked", rec.RequestedAt}, {"decided", rec.DecidedAt}, {"started", started}, {"ended", ended}} {
		if !t.at.IsZero() {
			a.printFact(t.what, t.at.Local().Format(time.DateTime))
		}
	}
}

// printFact prints one line, if text is not empty.
func (a *app) printFact(what, text string) {
	if text == "" {
		return
	}
	if what != "" {
		what += ":"
	}
	a.Say("%-9s %s", what, text)
}

// showAsked prints the request: the host's facts, the exact arguments, then the
// agent's text, labeled.
func (a *app) showAsked(story control.Story, about *approval.Pending, s chat.Style) {
	if o := story.Record.Outline; o != nil {
		a.showOutline(story.Record, about, s)
		return
	}
	if story.Asked == nil {
		if _, err := approval.ParseHostRequest(story.Record.Request, story.Record.RequestID); err != nil {
			return // malformed: the error explains it
		}
	}
	what := read.Request{Tool: about.ToolName, ActionType: about.ActionType, Target: s.Redacted(about, about.Target)}
	if what.Kind() != "" { // a question has none
		a.printFact("what", toolAndTarget(&what))
	}
	if about.Plan == nil {
		a.printFact("args", s.Result(about, about.RequestData)) // no one consents to it now
	}
	for _, text := range []string{about.Agent.Title, about.Agent.Preview, about.Agent.Rationale} {
		if text != "" {
			a.Say("agent says: %s", s.OneLine(about, text))
		}
	}
	if len(about.Metadata) > 0 {
		a.Say("agent's metadata: %s", s.Result(about, about.Metadata))
	}
}

// showOutline prints what is kept of a request that was refused at once.
func (a *app) showOutline(rec *approval.Record, about *approval.Pending, s chat.Style) {
	what := read.Request{Tool: about.ToolName, ActionType: about.ActionType}
	a.printFact("what", chat.Escape(what.Kind()))
	a.printFact("args", "not kept: a request that is refused at once leaves its digest and the reason")
	a.printFact("sha256", fmt.Sprintf("%s (%d bytes)", rec.RequestSHA256, rec.Outline.Size))
	if len(about.Metadata) > 0 {
		a.Say("agent's metadata: %s", s.Result(about, about.Metadata))
	}
}

func (a *app) showRedeemed(b []byte) {
	if len(b) == 0 {
		return
	}
	var mark struct {
		At time.Time `json:"redeemed_at"`
		By string    `json:"by"`
	}
	if json.Unmarshal(b, &mark) != nil || mark.At.IsZero() {
		a.printFact("redeemed", "yes")
		return
	}
	a.printFact("redeemed", mark.At.Local().Format(time.DateTime)+" by "+chat.Escape(mark.By))
}

// printTimeline prints entries, each with the time since the one before.
func (a *app) printTimeline(log []event.Entry) {
	if len(log) == 0 {
		return
	}
	fmt.Fprintln(a.Out, "timeline:")
	before := log[0].Time
	for _, e := range log {
		since := ""
		if d := e.Time.Sub(before); d > 0 {
			since = "+" + shortDuration(d)
		}
		before = e.Time
		a.Say("  %s  %9s  %s", e.Time.Local().Format(time.DateTime), since, entryInWords(&e))
	}
}

// entryInWords formats an entry as one line. Values may come from an agent, so they are escaped.
func entryInWords(e *event.Entry) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(chat.Escape(string(e.Event)), "_", " "))
	if who := cmp.Or(e.By, e.ByID); who != "" {
		b.WriteString(" by " + chat.Escape(who))
		if e.ByID != "" && e.ByID != who {
			b.WriteString(" (" + chat.Escape(e.ByID) + ")")
		}
		if e.Via != "" {
			b.WriteString(" via " + chat.Escape(e.Via))
		}
	} else if e.Rule != "" {
		b.WriteString(" (" + chat.Escape(e.Rule) + ")")
	}
	if len(e.ReceiptSHA256) >= 12 {
		b.WriteString(", receipt " + chat.Escape(e.ReceiptSHA256[:12]) + "…")
	}
	if e.Reason != "" {
		b.WriteString(": " + chat.Escape(e.Reason))
	}
	return b.String()
}

// pruned is what show --json prints for a request without a record.
type pruned struct {
	historyItem
	Pruned   bool          `json:"pruned"`
	Timeline []event.Entry `json:"timeline"`
}

// showPruned finds a request in the log whose documents are gone.
func (a *app) showPruned(ctx context.Context, d *control.Client, typed string, unknown error) error {
	ws, id := splitID(typed)
	found, _, err := d.History(ctx, control.HistoryQuery{Workspace: ws, Prefix: id})
	if len(found) == 0 {
		return errors.Join(unknown, err)
	}
	r := found[0] // the newest, if an id was reused
	if n := countKeys(found); n > 1 {
		return console.Fail(console.ExitRefused, "give more digits, or WORKSPACE/ID", "%q matches %d requests", typed, n)
	}
	s, storyErr := d.Story(ctx, r.Key, true)
	err = errors.Join(err, storyErr)
	if a.JSON {
		return errors.Join(a.Print(pruned{newHistoryItem(r), true, s.Timeline}, ""), err)
	}
	a.Say("%s · %s · %s", r.Key.Workspace, r.Key.ID, r.Status)
	a.Say("The record was pruned: records are kept for %s. From the log:", inDays(s.Retention))
	a.printFact("what", toolAndTarget(r))
	a.printFact("by", strings.TrimPrefix(whoDecided(r), "–"))
	a.printTimeline(s.Timeline)
	return err
}

func countKeys(found []*read.Request) int {
	keys := map[approval.Key]bool{}
	for _, r := range found {
		keys[r.Key] = true
	}
	return len(keys)
}

func inDays(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return shortDuration(d)
}
