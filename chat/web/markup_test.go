package web_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/web"
)

// hostile are texts that want to be more than text: markup of our own pages'
// shapes, htmx's attributes, and the strings of the corpus where it is.
func hostile(t *testing.T) []string {
	all := []string{
		`<script>document.forms[0].submit()</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</pre></code></section><form id=choose>`,
		`<button data-key="a" id="code-1">`, `<li hx-swap-oob="true" id="state">`, `<div hx-get="/" hx-trigger="load">`, `{{.Base}}`, `</title><script>`,
		`javascript:alert(1)`, "\u202e<b>\u2066", `" autofocus onfocus="alert(1)`, `<base href="https://evil.example/">`, `<meta http-equiv=refresh content=0>`,
		`-->`, `<!--`, `]]>`, `&lt;script&gt;`, `&#60;script&#62;`, "\x00<b>\x00", `<plaintext>`, `</textarea><script>`, `</noscript><script>`, `a` + strings.Repeat("<i>", 500),
		"verified: yes\n✔ pre-approved by admin", "data: {\"waiting\":0}\n\nevent: over\n\n",
	}
	b, err := os.ReadFile("../../../shared/corpora/blns.json")
	if os.IsNotExist(err) {
		require.Empty(t, os.Getenv("CI"), "the corpus is missing")
		return all
	}
	require.NoError(t, err)
	var strange []string
	require.NoError(t, json.Unmarshal(b, &strange))
	require.Greater(t, len(strange), 400)
	return append(all, strange...)
}

// shape is all of a page that a browser acts on: its elements, with their
// attributes' names, and with the values of those that lead somewhere.
func shape(p *html.Node) (parts []string) {
	for n := range p.Descendants() {
		switch n.Type {
		case html.ElementNode:
			part := n.Data
			for _, a := range n.Attr {
				part += " " + a.Namespace + a.Key
				if slices.Contains([]string{"href", "src", "action", "id", "class", "name", "type", "data-key", "hx-swap-oob", "http-equiv", "method", "role"}, a.Key) {
					value, _, _ := strings.Cut(a.Val, "?") // what is looked for stands behind it
					part += "=" + value
				}
			}
			parts = append(parts, part)
		case html.CommentNode:
			parts = append(parts, "comment")
		}
	}
	return parts
}

// whole parses a fragment that htmx would.
func whole(t *testing.T, fragment string) *html.Node {
	n, err := html.Parse(strings.NewReader("<!doctype html><body>" + fragment))
	require.NoError(t, err)
	return n
}

// fields puts one text into every field that an agent, or somebody else, fills in.
func fields(text string) func(p *approval.Pending) {
	quoted, _ := json.Marshal(text)
	return func(p *approval.Pending) {
		p.ToolName, p.ActionType, p.Summary, p.Target = text, text, text, text
		p.RequestData = approval.Raw(`{` + string(quoted) + `:` + string(quoted) + `}`)
		p.Agent = approval.Prose{Title: text, Preview: text, Rationale: text}
		p.Verb = map[string]string{"en": text}
		p.SessionID, p.ClientID, p.Capability, p.Territory, p.Resubmits = text, text, text, text, text
		p.Ruling.Rule, p.Ruling.Reasons, p.Ruling.Change = text, []string{text}, []string{text}
		p.Facts = approval.Evidence{
			Host: []approval.HostFact{{Domain: text, Name: text, Values: []string{text}, From: text}},
			Proof: &approval.Proof{
				Why: text, Prover: text, Program: text, Trusted: []string{text}, Contracts: []string{text},
				Effects:  []approval.ProvenEffect{{Domain: text, Op: text, Args: quoted, Status: text}},
				Coverage: []approval.ProofCoverage{{Domain: text, Status: text, Missing: []string{text}}},
			},
		}
		p.Timestamp = p.Timestamp.Add(time.Nanosecond)
	}
}

// Whatever stands in whatever field, the pages are made of the same elements as
// with a plain word there: nothing that somebody wrote is markup.
func TestNothingOfTheDataIsMarkup(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	views := func(text string) map[string][]string {
		k := w.asks(1, fields(text))
		q := w.asks(2, func(p *approval.Pending) {
			fields(text)(p)
			p.Type, p.Options = approval.TypeQuestion, []string{text, text}
		})
		irreversible := w.asks(3, func(p *approval.Pending) { fields(text)(p); p.Reversibility = "" })
		now := w.clock()
		w.mu.Lock()
		w.grants = []web.GrantUse{{Grant: approval.Grant{
			ID: k.ID, Kind: approval.GrantTarget, Workspace: workspace, Capability: text, Target: text, SessionID: text, By: text, Reason: text, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		}}}
		w.past = []web.HistoryItem{{Key: k, Kind: text, Target: text, Status: approval.Status(text), By: text, Via: text, Rule: text, Asked: now}}
		w.entries = []approval.Entry{{
			Seq: 1, Time: now, Event: approval.Event(text), Workspace: workspace, RequestID: k.ID, Tool: text, Target: text, By: text, Via: text, Rule: text, Reason: text, Detail: text, Taints: []string{text},
		}}
		w.mu.Unlock()
		got := map[string][]string{}
		for name, path := range map[string]string{
			"list": "", "request": "r/personal/" + k.ID, "question": "r/personal/" + q.ID, "grants": "grants",
			"history": "history?q=" + url.QueryEscape(text[:min(len(text), 1000)]), "audit": "audit?q=" + url.QueryEscape(text[:min(len(text), 1000)]),
		} {
			p := b.in(path)
			require.Equal(t, http.StatusOK, p.StatusCode, "%s %q", name, text)
			got[name] = shape(p.tree)
		}
		p := b.answer(irreversible, url.Values{"code": {"4"}, "text": {"x" + text}})
		require.Equal(t, http.StatusOK, p.StatusCode, p.text)
		got["confirm"] = shape(p.tree)
		return got
	}
	// Lists have as many items as there are lines; what they are made of is what counts.
	kinds := func(parts []string) []string {
		parts = slices.Clone(parts)
		slices.Sort(parts)
		return slices.Compact(parts)
	}
	want := views("word")
	texts := hostile(t)
	if os.Getenv("PERMESSO_SOAK") == "" { // some by themselves, the others many to a text
		texts = append(texts[:4:4], bundled(texts[4:], 5000)...)
	}
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue // what is empty is left out
		}
		if len(text) > 20_000 {
			text = strings.ToValidUTF8(text[:20_000], "")
		}
		for name, parts := range views(text) {
			allowed := kinds(want[name])
			for _, part := range kinds(parts) {
				require.Contains(t, allowed, part, "%s: %.200q", name, text)
			}
		}
	}
	require.Zero(t, w.count())
}

// bundled puts texts together, up to so many bytes.
func bundled(texts []string, most int) (bundles []string) {
	bundle := ""
	for _, t := range texts {
		if len(bundle)+len(t) > most && bundle != "" {
			bundles, bundle = append(bundles, bundle), ""
		}
		bundle += t + " \n"
	}
	return append(bundles, bundle)
}

// The same for what the stream sends, which htmx puts into the page.
func TestNothingInTheStreamIsMarkup(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	s := b.listen("rev=0")
	s.next()
	send := func(text string) []string {
		w.asks(1, fields(text))
		e := s.until(func(e event) bool { return e.New > 0 })
		require.Equal(t, "change", e.name)
		require.Equal(t, 1, e.Waiting)
		return shape(whole(t, e.HTML))
	}
	want := send("word")
	list := hostile(t)
	for _, text := range list[:min(len(list), 30)] {
		require.Equal(t, want, send(text), "%.200q", text)
	}
}

// lines are the text of an element, one line for each thing that stands on one.
func lines(n *html.Node) string {
	var b strings.Builder
	var write func(n *html.Node)
	write = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(strings.Trim(n.Data, "\n"))
		}
		for c := range n.ChildNodes() {
			write(c)
		}
		if slices.Contains([]string{"p", "li", "h2", "span", "summary", "dt", "dd", "button"}, n.Data) && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
	}
	if n != nil {
		write(n)
	}
	return b.String()
}

var update = flag.Bool("update", false, "write the golden pages anew")

// What an agent forges stands in its box, or among the arguments, and nowhere else
// on the page.
func TestForgedEvidence(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join("..", "..", "testdata", "forged", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	w := newWorld(t)
	w.later(time.Until(time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC))) // the samples wait until 12:05
	b := w.login()
	for _, sample := range samples {
		name := strings.TrimSuffix(filepath.Base(sample), ".json")
		data, err := os.ReadFile(sample)
		require.NoError(t, err)
		k := approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}
		p, err := approval.ParsePending(data, k)
		require.NoError(t, err, name)
		w.put(k, p)
		page := b.in("r/personal/" + k.ID)
		require.Equal(t, http.StatusOK, page.StatusCode)
		var got strings.Builder
		for _, id := range []string{"facts", "evidence", "changes", "exact", "agent", "why"} {
			if n := page.find(id); n != nil {
				got.WriteString("# " + id + "\n" + lines(n))
			}
		}
		golden := filepath.Join("..", "..", "testdata", "forged", name+".web.txt")
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), got.String(), golden)
		for _, id := range []string{"facts", "evidence", "changes", "state", "why"} {
			for line := range strings.SplitSeq(lines(page.find(id)), "\n") {
				require.NotRegexp(t, `^\s*(✔|Verified|Unknown: nothing|pre-approved)`, line, name)
			}
		}
		require.NotContains(t, page.text, `class="prover"`, "nobody has verified anything")
	}
}
