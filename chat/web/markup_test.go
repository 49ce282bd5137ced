package web_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// hostile returns texts that must stay text: markup like that of our pages, htmx
// attributes, and the strings of the corpus if it is present.
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

// shape returns everything of a page that a browser acts on: elements, names of
// attributes, and the values of attributes with an effect.
func shape(p *html.Node) (parts []string) {
	for n := range p.Descendants() {
		switch n.Type {
		case html.ElementNode:
			part := n.Data
			for _, a := range n.Attr {
				part += " " + a.Namespace + a.Key
				if slices.Contains([]string{"href", "src", "action", "id", "class", "name", "type", "data-key", "hx-swap-oob", "http-equiv", "method", "role"}, a.Key) {
					value, _, _ := strings.Cut(a.Val, "?") // the query has the search text
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

// parseFragment parses a fragment for htmx.
func parseFragment(t *testing.T, fragment string) *html.Node {
	n, err := html.Parse(strings.NewReader("<!doctype html><body>" + fragment))
	require.NoError(t, err)
	return n
}

// fillFields puts one text into every field that agents, operators or provers fill in.
func fillFields(text string) func(p *approval.Pending) {
	quoted, _ := json.Marshal(text)
	return func(p *approval.Pending) {
		p.ToolName, p.ActionType, p.Summary, p.Target = text, text, text, text
		p.RequestData = approval.Raw(`{` + string(quoted) + `:` + string(quoted) + `}`)
		p.Agent = approval.Prose{Title: text, Preview: text, Rationale: text}
		p.Verb = map[string]string{"en": text}
		p.SessionID, p.ClientID, p.Capability, p.Territory, p.Resubmits = text, text, text, text, text
		p.Ruling.Rule, p.Ruling.Reasons, p.Ruling.Change = text, []approval.Reason{approval.Because("text", "text", text)}, []approval.Reason{approval.Because("rule_ask", "rule", text, "words", text)}
		p.Facts = approval.Evidence{
			Host: []approval.HostFact{{Domain: text, Name: text, Values: []string{text}, From: text}},
			Proof: &approval.Proof{
				Why: approval.Because("proof_unreadable", "error", text), Prover: text, Program: text, Trusted: []string{text}, Contracts: []string{text},
				Effects:  []approval.ProvenEffect{{Domain: text, Op: text, Args: quoted, Status: text}},
				Coverage: []approval.ProofCoverage{{Domain: text, Status: text, Missing: []string{text}}},
			},
		}
		terms := approval.Terms{Form: grant.Target, Workspace: text, Tool: text, TargetKind: "exact", Target: text}
		pattern := approval.Terms{Form: grant.Command, Workspace: text, Tool: text, Words: []string{text, "..."}}
		p.Offers = []approval.Offer{
			{Scope: approval.Session, Terms: terms},
			{Scope: approval.Always, Terms: terms},
			{Scope: approval.Commands, Terms: pattern, Would: 1, Of: 2},
		}
		p.Timestamp = p.Timestamp.Add(time.Nanosecond)
	}
}

// For any text in any field, the pages have the same elements as for a plain word.
func TestDataIsNeverMarkup(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	shapes := func(text string) map[string][]string {
		k := w.addRequest(1, fillFields(text))
		q := w.addRequest(2, func(p *approval.Pending) {
			fillFields(text)(p)
			p.Type, p.Options = approval.TypeQuestion, []string{text, text}
		})
		irreversible := w.addRequest(3, func(p *approval.Pending) { fillFields(text)(p); p.Reversibility = "" })
		now := w.clock()
		w.mu.Lock()
		w.grants = []grant.Use{{Grant: grant.Grant{
			ID: k.ID, Terms: approval.Terms{Form: grant.Target, Workspace: workspace, Tool: text, Target: text, SessionID: text}, By: text, Reason: text, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		}}}
		w.history = []*read.Request{{Key: k, Tool: text, Target: text, Status: approval.Status(text), By: text, Via: text, Rule: text, AskedAt: now}}
		w.entries = []event.Entry{{
			Seq: 1, Time: now, Event: event.Kind(text), Workspace: workspace, RequestID: k.ID, Tool: text, Target: text, By: text, Via: text, Rule: text, Reason: text, Detail: text, Taints: []string{text},
		}}
		w.operatorText = text
		w.proposal = chat.Proposal{Rule: strconv.QuoteToASCII(text)}
		w.mu.Unlock()
		got := map[string][]string{}
		for name, path := range map[string]string{
			"list": "", "request": "r/personal/" + k.ID, "question": "r/personal/" + q.ID, "grants": "grants",
			"history": "history?q=" + url.QueryEscape(text[:min(len(text), 1000)]), "audit": "audit?q=" + url.QueryEscape(text[:min(len(text), 1000)]),
			"rules": "rules", "workspaces": "workspaces", "rule": "r/personal/" + k.ID + "/rule",
		} {
			p := b.page(path)
			require.Equal(t, http.StatusOK, p.StatusCode, "%s %q", name, text)
			require.NotContains(t, innerText(p.tree), "\u202e", "an invisible character on the page %s", name)
			got[name] = shape(p.tree)
		}
		p := b.decide(irreversible, url.Values{"code": {"4"}, "text": {"x" + text}})
		require.Equal(t, http.StatusOK, p.StatusCode, p.text)
		got["confirm"] = shape(p.tree)
		p = b.decide(irreversible, url.Values{"code": {"6"}})
		require.Equal(t, http.StatusOK, p.StatusCode, p.text)
		got["confirm a grant"] = shape(p.tree)
		return got
	}
	// The number of list items depends on the text. So compare only the kinds of elements.
	kinds := func(parts []string) []string {
		parts = slices.Clone(parts)
		slices.Sort(parts)
		return slices.Compact(parts)
	}
	want := map[string][]string{}
	for _, text := range []string{"word", "two\nlines", "a mixed w\u043erd and \u05d0"} { // these have other lines and warnings
		for name, parts := range shapes(text) {
			want[name] = append(want[name], parts...)
		}
	}
	texts := hostile(t)
	if os.Getenv("PERMESSO_SOAK") == "" { // a few alone, the others bundled
		texts = append(texts[:4:4], bundle(texts[4:], 5000)...)
	}
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue // pages leave empty fields out
		}
		if len(text) > 20_000 {
			text = strings.ToValidUTF8(text[:20_000], "")
		}
		for name, parts := range shapes(text) {
			allowed := kinds(want[name])
			for _, part := range kinds(parts) {
				require.Contains(t, allowed, part, "%s: %.200q", name, text)
			}
		}
	}
	require.Zero(t, w.decisionCount())
}

// bundle joins texts into bundles of at most limit bytes.
func bundle(texts []string, limit int) (bundles []string) {
	bundle := ""
	for _, t := range texts {
		if len(bundle)+len(t) > limit && bundle != "" {
			bundles, bundle = append(bundles, bundle), ""
		}
		bundle += t + " \n"
	}
	return append(bundles, bundle)
}

// The same for the HTML in the event stream.
func TestStreamDataIsNeverMarkup(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	s := b.listen("rev=0")
	s.next()
	send := func(text string) []string {
		w.addRequest(1, fillFields(text))
		e := s.until(func(e streamEvent) bool { return e.New > 0 })
		require.Equal(t, "change", e.name)
		require.Equal(t, 1, e.Waiting)
		return shape(parseFragment(t, e.HTML))
	}
	want := send("word")
	list := hostile(t)
	for _, text := range list[:min(len(list), 30)] {
		require.Equal(t, want, send(text), "%.200q", text)
	}
}

// lines returns the text of an element, with a line for each block.
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
		block := slices.Contains([]string{"p", "li", "h2", "summary", "dt", "dd", "button"}, n.Data) || strings.HasPrefix(attr(n, "class"), "line")
		if block && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
	}
	if n != nil {
		write(n)
	}
	return b.String()
}

var update = flag.Bool("update", false, "rewrite the golden pages")

// Forged evidence of an agent appears only in the agent's box or among the arguments.
func TestForgedEvidence(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join("..", "..", "testdata", "forged", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	w := newFixture(t)
	w.advance(time.Until(time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC))) // the samples expire at 12:05
	b := w.login()
	for _, sample := range samples {
		name := strings.TrimSuffix(filepath.Base(sample), ".json")
		data, err := os.ReadFile(sample)
		require.NoError(t, err)
		k := approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}
		p, err := approval.ParsePending(data, k)
		require.NoError(t, err, name)
		w.put(k, p)
		page := b.page("r/personal/" + k.ID)
		require.Equal(t, http.StatusOK, page.StatusCode)
		var got strings.Builder
		for _, id := range []string{"title", "facts", "evidence", "changes", "exact", "agent", "why"} {
			if n := page.find(id); n != nil {
				got.WriteString("# " + id + "\n" + strings.TrimSuffix(lines(n), "\n") + "\n")
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
		require.NotContains(t, page.text, `class="prover"`, "no prover has verified anything")
	}
}
