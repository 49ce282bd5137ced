package cardtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/chat"
)

// Render returns the text of a request's card that a person sees in a channel, in each of its forms, and whether
// the request can be approved there.
type Render func(style chat.Style, p *approval.Pending) (forms []string, approvable bool)

// The number of pairs in make test and in make soak.
const (
	few  = 500
	many = 10_000
)

// Run renders hostile pairs of requests. It fails where a card on which approve is possible lacks
// something of what would run, and where two requests with different effects give the same card.
// PERMESSO_SEED repeats a run.
func Run(t *testing.T, style chat.Style, render Render) {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	n := few
	if os.Getenv("PERMESSO_SOAK") != "" {
		n = many
	}
	t.Logf("PERMESSO_SEED=%d, %d pairs", seed, n)
	j := &judge{
		//nolint:gosec // a sequence that a seed repeats
		generator: generator{Rand: rand.New(rand.NewPCG(seed, 0)), rules: readRules(t)}, style: style, render: render, seen: map[string]request{},
		told: map[string]string{},
	}
	for range n {
		if why := j.pair(); why != "" {
			if j.faults++; j.faults <= maxReported {
				t.Error(why)
			}
		}
	}
	t.Logf("%d cards, %d of them can be approved, %d requests refused, %d faults", j.cards, j.approvable, j.refused, j.faults)
	require.Zero(t, j.faults)
	require.Greater(t, j.approvable, j.cards/2, "most cards can be approved")
	require.Greater(t, j.cards, n, "most requests are asked")
}

// maxReported is how many faults a run describes.
const maxReported = 12

// judge compares what would run with what the cards show.
type judge struct {
	generator
	style                              chat.Style
	render                             Render
	seen                               map[string]request // by card
	told                               map[string]string  // terms by sentence
	cards, approvable, refused, faults int
}

// card is what a person sees of a request.
type card struct {
	forms      []string
	approvable bool
	asked      bool // else the gate refuses the request
	offers     []approval.Offer
	said       map[approval.Scope]string // the sentences of the offers
}

func (j *judge) card(r request) (c card) {
	p, ok := pending(r)
	if !ok {
		return c
	}
	c.asked = true
	c.forms, c.approvable = j.render(j.style, p)
	c.offers, c.said = p.Offers, map[approval.Scope]string{}
	for _, o := range p.Offers {
		c.said[o.Scope] = j.style.Offer(p, o.Scope)
	}
	for i, visible := range c.forms {
		c.forms[i] = blankEnds.ReplaceAllString(visible, "")
	}
	return c
}

// blankEnds are blanks at the ends of lines, which no person sees.
var blankEnds = regexp.MustCompile(`(?m)[ \t]+$`)

// pair judges a request and a mutant of it, and returns a description of the first fault.
func (j *judge) pair() string {
	a := j.request()
	for _, r := range []request{a, j.mutant(a)} {
		c := j.card(r)
		j.count(c)
		if why, _ := j.fault(r, c); why != "" {
			small := shrink(r, func(r request) bool {
				why, _ := j.fault(r, j.card(r))
				return why != ""
			})
			why, visible := j.fault(small, j.card(small))
			return describe(why, visible, small)
		}
		if why := j.collides(r, c); why != "" {
			return why
		}
	}
	return ""
}

// collides compares a card with those before, of tools that declare the same arguments: the name of one that
// stands inside the invocation is the operator's.
func (j *judge) collides(r request, c card) string {
	if !c.approvable {
		return ""
	}
	for i, visible := range c.forms {
		key := fmt.Sprint(i, r.tool.Args, visible)
		if other, ok := j.seen[key]; ok && j.differ(other, r) {
			return describe("two requests give the same card", visible, other, r)
		}
		j.seen[key] = r
	}
	return ""
}

func (j *judge) count(c card) {
	switch {
	case !c.asked:
		j.refused++
	case c.approvable:
		j.cards, j.approvable = j.cards+1, j.approvable+1
	default:
		j.cards++
	}
}

// fault returns what a card on which approve is possible lacks, and in which form.
func (j *judge) fault(r request, c card) (why, visible string) {
	if !c.approvable {
		return "", ""
	}
	args := r.tool.Args
	if r.tool.Name == "" {
		args = facts.ReleaseArgs(r.action)
	}
	mute := c
	if r.prose != (approval.Prose{}) {
		silent := r
		silent.prose = approval.Prose{}
		mute = j.card(silent)
	}
	if why := j.misnames(c); why != "" {
		return why, c.forms[0]
	}
	for i, visible := range c.forms {
		for _, f := range fakes {
			if unmarked(visible, f) {
				return fmt.Sprintf("a line of the agent looks like the gate's: %q", f), visible
			}
		}
		if why := lacking(j.rules, visible, r.tool, args, r.data, added(mute.forms[i], visible)); why != "" {
			return why, visible
		}
	}
	return "", ""
}

// added lists the lines of a text that another one does not have.
func added(without, with string) (lines []string) {
	has := map[string]bool{}
	for l := range strings.SplitSeq(without, "\n") {
		has[l] = true
	}
	for l := range strings.SplitSeq(with, "\n") {
		if !has[l] {
			lines = append(lines, l)
		}
	}
	return lines
}

// unmarked reports whether a line of the card begins with what an agent wrote.
func unmarked(visible, fake string) bool {
	return strings.HasPrefix(visible, fake) || strings.Contains(visible, "\n"+fake)
}

// differ reports whether two requests with the same card have different effects, which are not
// secrets of the same kind and length.
func (j *judge) differ(a, b request) bool {
	x, okX := effectOf(a.tool, a.data)
	y, okY := effectOf(b.tool, b.data)
	if !okX || !okY || x.key() == y.key() {
		return false
	}
	return j.unmasked(a) != j.unmasked(b)
}

// unmasked is the key of a request's effect with each secret replaced by its length. It is called for requests
// with the same card, in which no mask covers anything but secrets.
func (j *judge) unmasked(r request) string {
	r = r.clone()
	c := j.card(r)
	for _, x := range stringsOf(r.data) {
		for _, word := range tokens(x.text) {
			if !strings.Contains(strings.Join(c.forms, "\n"), word) {
				x.text = strings.Replace(x.text, word, fmt.Sprintf("‹%d›", len(word)), 1)
			}
		}
	}
	e, _ := effectOf(r.tool, r.data)
	return e.key()
}

// tokens lists the long words of a text that may be secrets.
func tokens(s string) (found []string) {
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return !bounded.MatchString(string(r)) }) {
		if len(w) >= 8 {
			found = append(found, w)
		}
	}
	return found
}

// shrink makes a request smaller while it has the fault.
func shrink(r request, faulty func(request) bool) request {
	for try := 0; try < 400; {
		smaller := false
		for _, s := range simpler(r) {
			if try++; try >= 400 {
				break
			}
			if s.raw = s.data.json(nil); faulty(s) {
				r, smaller = s, true
				break
			}
		}
		if !smaller {
			break
		}
	}
	return r
}

// simpler lists smaller requests.
func simpler(r request) (all []request) {
	if r.prose != (approval.Prose{}) {
		s := r.clone()
		s.prose = approval.Prose{}
		all = append(all, s)
	}
	for i, name := range r.data.names {
		s := r.clone()
		s.data.names, s.data.items = append(s.data.names[:i:i], s.data.names[i+1:]...), append(s.data.items[:i:i], s.data.items[i+1:]...)
		if _, ok := effectOf(s.tool, s.data); ok && s.tool.Name == "" || !strings.Contains(fmt.Sprint(s.tool.Handler), "{"+name+"}") {
			args := map[string]approval.Argument{}
			for _, n := range s.data.names {
				args[n] = r.tool.Args[n]
			}
			s.tool.Args = args
			all = append(all, s)
		}
	}
	for i, x := range stringsOf(r.data) {
		runes := []rune(x.text)
		for _, cut := range []int{len(runes) / 2, len(runes) / 4, 1} {
			if cut == 0 || len(runes) > 200 && cut == 1 {
				continue
			}
			for at := 0; at+cut <= len(runes); at += cut {
				s := r.clone()
				stringsOf(s.data)[i].text = string(runes[:at]) + string(runes[at+cut:])
				all = append(all, s)
			}
		}
	}
	return all
}

func describe(why, visible string, of ...request) string {
	var b strings.Builder
	b.WriteString(why)
	for _, r := range of {
		fmt.Fprintf(&b, "\nrequest: %s %s\n  data: %s\n  prose: %+q\n  handler: %+v\n  args: %+v", r.tool.Name, r.action, r.data.json(nil), r.prose, r.tool.Handler, r.tool.Args)
	}
	return b.String() + "\ncard:\n" + visible
}

// at is when the requests came.
var at = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// pending is what the gate asks about a request. ok is false if it refuses the request.
func pending(r request) (p *approval.Pending, ok bool) {
	q := &approval.Request{
		RequestID: "a7f3b2c1d4e5f6a7", Type: approval.TypeAction, ToolName: r.tool.Name, ActionType: r.action, RequestData: approval.Raw(r.raw),
		Title: r.prose.Title, Preview: r.prose.Preview, Rationale: r.prose.Rationale,
	}
	p = &approval.Pending{
		Version: approval.Version, RequestID: q.RequestID, ShortID: "a7f3b2c1", Type: q.Type, ToolName: r.tool.Name, SourceGroup: "personal",
		ClientID: "ws:personal", SessionID: "sess_123",
		RequestData: q.RequestData, Timestamp: at, ExpiresAt: at.Add(5 * time.Minute), ActionType: r.action, Capability: r.tool.Capability,
		Target: facts.Expand(r.tool.Target, q.RequestData), Reversibility: approval.Irreversible, Verb: r.tool.Verb, SummaryParts: facts.Parts(r.tool.Summary),
		Summary: facts.ExpandQuoted(r.tool.Summary, q.RequestData), Agent: r.prose,
		Ruling: approval.Ruling{Outcome: approval.Ask, Rule: "default", Reasons: []approval.Reason{approval.Because("text", "text", "ask")}},
		Facts:  facts.Of(r.tool, q, nil, time.Time{}), Before: r.before,
	}
	if r.tool.Name == "" {
		p.Runs.Args, p.Offers = facts.ReleaseArgs(r.action), offers(p)
		return p, true
	}
	var why approval.Reason
	p.ToolSHA256 = r.tool.SHA256()
	p.Runs, why = facts.Fill(r.tool, q.RequestData)
	p.Offers = offers(p)
	if r.steps > 0 {
		p = programOf(p, r.steps, "def main():\n    pass\n")
	}
	return p, why.IsZero()
}

// programOf is a program that makes the call of p: once, twice, or between two others.
func programOf(p *approval.Pending, steps int, source string) *approval.Pending {
	q := *p
	q.ToolName, q.ToolSHA256, q.Capability, q.Target, q.Summary, q.SummaryParts, q.Verb = "", "", "", "", "", nil, nil
	q.ActionType, q.RequestData, q.Facts, q.Runs = approval.ActionProgram, approval.Raw("{}"), approval.Evidence{}, approval.Runs{Kind: approval.HandlerProgram}
	call := approval.Step{
		Call: approval.Call{Tool: p.ToolName, Data: p.RequestData}, ToolSHA256: p.ToolSHA256, Declared: p.Runs.Args, Capability: p.Capability,
		Target: p.Target, Reversibility: p.Reversibility, Ruling: p.Ruling,
	}
	other := call
	other.Tool, other.Data, other.Declared = "look", approval.Raw(`{"what":"it"}`), map[string]approval.Argument{"what": {Type: facts.TypeText}}
	q.Plan = &approval.Plan{Source: source, Steps: [][]approval.Step{{call}, {call, call}, {other, call, other}}[steps-1]}
	q.Offers = offersOf(&q, approval.Terms{Form: approval.ActionProgram, Digest: q.Plan.SHA256()})
	return &q
}
