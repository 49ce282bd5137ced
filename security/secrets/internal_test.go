package secrets

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
)

// Document is a request's arguments of about 256 KiB, for the measurements.
type Document struct {
	Name, Args string
	Microseconds
}

// Microseconds is the time in which a Document must be searched.
type Microseconds int

const githubKey = "ghp_R7kQxX93kdJw81vRtB2mZ5nLpWq4YcT6uHsA"

// Documents are ordinary requests and those that are slow to search.
func Documents() []Document {
	const hostile = 400_000
	size := 256 << 10
	body := func(name string, limit Microseconds, text string) Document {
		b, _ := json.Marshal(map[string]string{"body": text})
		return Document{name, string(b), limit}
	}
	fill := func(text string) string { return strings.Repeat(text, size/len(text)) }
	plain := fill("Dear Bob, we meet at five in the garden. ")
	random := randomText(size)
	nested := plain[:100<<10]
	for range maxDepth {
		nested = base64.StdEncoding.EncodeToString([]byte(nested))
	}
	var names []string
	for i := range 9000 {
		names = append(names, fmt.Sprintf(`"AKIA%s":1`, strings.Map(upper, random[16*i:16*i+16])))
	}
	deep := strings.Repeat(`{"aaaaaaaa":`, 31) + `["` + strings.Repeat(`x","`, 60000) + `"]` + strings.Repeat("}", 31)
	return []Document{
		body("plain", 15_000, plain),
		body("plain with a key", 35_000, plain[:1000]+" "+githubKey+" "+plain[1000:]),
		body("random", 150_000, random),
		body("random with a key", 150_000, random+" "+githubKey),
		body("equals signs", hostile, fill("=")),
		body("one letter", hostile, fill("a")),
		body("begins of keys", hostile, fill("-----BEGIN ")),
		body("begins of private keys", hostile, fill("-----BEGIN PRIVATE KEY-----")),
		body("nested base64", hostile, nested),
		body("invisible characters", hostile, fill("\u200b")),
		body("keys", hostile, fill(githubKey+" ")),
		body("words of rules", hostile, fill("the api token and curl -H secret key kind: secret data: password ey ")),
		body("groups of digits", hostile, fill("4444 ")),
		body("words of phrases", hostile, fill("abandon ability able about above absent absorb ")),
		body("backslashes", hostile, fill(`\x41\u0042&#67;%44 `)),
		{"deep", deep, hostile},
		{"keys as names", "{" + strings.Join(names, ",") + "}", hostile},
	}
}

func randomText(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// upper makes a letter of an AWS key.
func upper(r rune) rune { return 'A' + r%26 }

// findEverywhere is find without a machine and with windows that may overlap.
func (r *rule) findEverywhere(text string, hits []int, found func(place)) {
	within := func(from, to int) bool {
		all := r.regex.FindAllStringSubmatchIndex(text[from:to], -1)
		for _, m := range all {
			start, end := r.secret(m)
			secret := text[from+start : from+end]
			if r.accepts(secret, text[from+m[0]:from+m[1]]) {
				found(place{from + start, from + end, from + m[0]})
			}
		}
		return len(all) == 0 || to == len(text) || all[len(all)-1][1] < to-from
	}
	for i := 0; i < len(hits) && !r.unbounded; {
		from, to := max(0, hits[i]-before), min(len(text), hits[i]+after)
		for i++; i < len(hits) && hits[i]-before <= to; i++ {
			to = min(len(text), hits[i]+after)
		}
		if !within(from, tokenEnd(text, to)) {
			within(0, len(text))
			return
		}
	}
	if r.unbounded {
		within(0, len(text))
	}
}

func placesOf(find func(string, []int, func(place)), text string, hits []int) (all []place) {
	find(text, hits, func(p place) { all = append(all, p) })
	slices.SortFunc(all, func(a, b place) int { return a.start - b.start })
	return slices.Compact(all)
}

// Each rule finds the same with its machine as package regexp does alone.
func TestMachinesFindWhatExpressionsDo(t *testing.T) {
	s, err := New()
	require.NoError(t, err)
	samples := boundedSamples(s)
	around := append(strings.Split(" |\n|\"|'|=|;|_|x|ü|ſ|\u212a|\xff|\u200b|.|data: kind: secret ", "|"),
		"", randomText(700), strings.Repeat("curl -H ", 9))
	matched := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		r := rapid.SampledFrom(s.rules).Draw(rt, "rule")
		r.prepare()
		parts := append(slices.Clone(around), r.Keywords...)
		parts = append(append(parts, samples[r.ID]...), samples[r.ID]...)
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 12).Draw(rt, "parts"), "")
		var hits []int
		newKeywords(lowered(r.Keywords)).in(text, func(_, end int) { hits = append(hits, end) })
		slices.Sort(hits)
		want := placesOf(r.findEverywhere, text, hits)
		require.Equal(rt, want, placesOf(r.find, text, hits), r.ID)
		matched[r.ID] = matched[r.ID] || len(want) > 0
	})
	require.NotEmpty(t, matched)
}

// boundedSamples also has texts of the rules with a word boundary, for which Samples has few.
func boundedSamples(s *Scanner) map[string][]string {
	all := Samples(2)
	for _, r := range s.rules {
		free := rule{Regex: strings.ReplaceAll(r.Regex, `\b`, "")}
		for n := range 3 {
			if text, ok := free.sample(n); ok {
				all[r.ID] = append(all[r.ID], text)
			}
		}
	}
	return all
}

func lowered(words []string) (all []string) {
	for _, w := range words {
		all = append(all, strings.ToLower(w))
	}
	return all
}

// Samples are found between characters that are a boundary, and between others.
func TestEveryRuleHasAMachine(t *testing.T) {
	s, err := New()
	require.NoError(t, err)
	samples := boundedSamples(s)
	for _, r := range s.rules {
		r.prepare()
		m, _ := r.machines.Get().(*machine)
		require.NotNil(t, m, r.ID)
		for _, x := range samples[r.ID] {
			for _, text := range []string{
				x, " " + x + " ", "é" + x + "\n", "a" + x + "a", x + x, strings.Repeat(" ", 3000) + x,
			} {
				require.Equal(t, r.regex.FindAllStringSubmatchIndex(text, -1), r.all(text), "%s: %q", r.ID, text)
			}
		}
	}
}

// The places of encoded text are those of these expressions.
func TestRunsAreThoseOfExpressions(t *testing.T) {
	for x, runs := range map[string]func(string) [][2]int{
		`[A-Za-z0-9+/_-]{14,}={0,2}`: base64Runs,
		`(?:[0-9A-Fa-f]{2}){10,}`:    hexRuns,
	} {
		expression := regexp.MustCompile(x)
		parts := strings.Split("a = == %4 %41 % é \xff g -_ +/ . 0123456789abcdef0123 0123456789abcdefabcdg", " ")
		parts = append(parts, " ")
		rapid.Check(t, func(rt *rapid.T) {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 30).Draw(rt, "parts"), "")
			var want, got [][]int
			for _, run := range runs(text) {
				got = append(got, run[:])
			}
			want = append(want, expression.FindAllStringIndex(text, -1)...)
			require.Equal(rt, want, got)
		})
	}
}

// Package regexp must not read large parts of a hostile request again and again.
func TestWorkOfHostileDocuments(t *testing.T) {
	s, err := New()
	require.NoError(t, err)
	for _, d := range Documents() {
		read := 0
		for _, v := range views(leavesOf(approval.Raw(d.Args), approval.Prose{}), &decoder{}) {
			hits := map[int]bool{}
			s.words.in(v.text, func(w, _ int) {
				for _, r := range s.of[w] {
					hits[r] = true
				}
			})
			for n := range hits {
				r := s.rules[n]
				r.prepare()
				for _, p := range r.near(v.text) {
					read += p.end - p.start
				}
			}
		}
		require.Less(t, read, 8<<20, "%s: bytes that expressions read", d.Name)
	}
}

// The same text is searched once, in whatever order its encodings are decoded.
func TestViewsOfSeveralEncodings(t *testing.T) {
	text := "%41 " + base64.StdEncoding.EncodeToString([]byte("%42 and more text")) + " 4343434343434343434343"
	seen := map[string]bool{}
	for _, v := range views([]leaf{newLeaf("text", text)}, &decoder{}) {
		require.False(t, seen[v.text], v.text)
		seen[v.text] = true
	}
	require.True(t, seen["\"A B and more text CCCCCCCCCCC\"\n"], seen)
}

// A request is searched once, however many channels ask for it; one that differs in
// what is shown, or in how, is another.
func TestARequestIsSearchedOnce(t *testing.T) {
	s, err := New()
	require.NoError(t, err)
	request := func(change func(p *approval.Pending)) *approval.Pending {
		p := &approval.Pending{RequestData: approval.Raw(`{"a":"` + githubKey + `"}`), Target: "b"}
		p.Runs.Args = map[string]approval.Argument{"a": {Type: "text"}}
		change(p)
		return p
	}
	first := s.Redactor(request(func(*approval.Pending) {}))
	require.Same(t, first, s.Redactor(request(func(p *approval.Pending) { p.ShortID = "x" })))
	for why, change := range map[string]func(p *approval.Pending){
		"a value":  func(p *approval.Pending) { p.RequestData = approval.Raw(`{"a":"` + githubKey + `."}`) },
		"a name":   func(p *approval.Pending) { p.RequestData = approval.Raw(`{"b":"` + githubKey + `"}`) },
		"a type":   func(p *approval.Pending) { p.Runs.Args["a"] = approval.Argument{Type: "path"} },
		"a target": func(p *approval.Pending) { p.Target = githubKey },
		"prose":    func(p *approval.Pending) { p.Agent.Title = "b" },
	} {
		require.NotSame(t, first, s.Redactor(request(change)), why)
	}
	require.Same(t, first, s.Redactor(request(func(*approval.Pending) {})))
	for i := range len(s.recent.all) {
		s.Redactor(request(func(p *approval.Pending) { p.Target = fmt.Sprint(i) }))
	}
	require.NotSame(t, first, s.Redactor(request(func(*approval.Pending) {})), "few are kept")
}
