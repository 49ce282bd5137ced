package secrets

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// The rules of gitleaks, and ours.
//
//go:embed rules.toml
var rulesFile []byte

//go:embed everyday.toml
var everydayFile []byte

// rule is one kind of secret. Its expression is compiled at the first use, because
// most are never used.
type rule struct {
	ID         string   `toml:"id"`
	Regex      string   `toml:"regex"`
	Entropy    float64  `toml:"entropy"`
	Group      int      `toml:"group"`
	Keywords   []string `toml:"keywords"`
	Allow      []string `toml:"allow"`       // of the secret
	AllowMatch []string `toml:"allow_match"` // of the complete match
	Stopwords  []string `toml:"stopwords"`
	Check      string   `toml:"check"`   // of the secret, one of checks
	Generic    bool     `toml:"generic"` // it finds what looks like some secret, by the text around it
	oneValue   bool     // it finds nothing that two values form together

	compile    sync.Once
	unbounded  bool // its match may reach beyond the window around its keyword
	longest    int  // bytes of a match, -1 without a limit
	regex      *regexp.Regexp
	machines   sync.Pool // of *machine
	allow      []*regexp.Regexp
	allowMatch []*regexp.Regexp
}

type ruleSet struct {
	Stopwords []string `toml:"stopwords"`
	Regexes   []string `toml:"regexes"`
	Rules     []*rule  `toml:"rules"`

	Forms map[string]string `toml:"forms"` // expressions that begin with a fixed text, by their rule's ID
}

func loadRules() (*ruleSet, error) {
	all := &ruleSet{}
	for _, file := range [][]byte{rulesFile, everydayFile} {
		set := &ruleSet{}
		if err := toml.Unmarshal(file, set); err != nil {
			return nil, fmt.Errorf("load rules: %w", err)
		}
		for _, r := range set.Rules {
			if len(r.Allow)+len(r.AllowMatch)+len(r.Stopwords) > 0 {
				r.Allow = append(r.Allow, set.Regexes...)
				r.Stopwords = append(r.Stopwords, set.Stopwords...)
			}
			r.Regex = strings.Replace(r.Regex, closing, wideClosing, 1)
		}
		all.Rules = append(all.Rules, set.Rules...)
		for _, id := range slices.Sorted(maps.Keys(set.Forms)) {
			form := set.Forms[id]
			all.Rules = append(all.Rules, &rule{
				ID: id, Regex: `\b(` + form + `)(?:[^\w-]|$)`, Entropy: 3,
				Keywords: []string{form[:strings.IndexAny(form, `[(\`)]},
			})
		}
	}
	return all, nil
}

// What follows a key in many rules of gitleaks, and the same with what ends a key in a sentence, an
// address or a tag.
const (
	closing     = `(?:[\x60'"\s;]|\\[nr]|$)`
	wideClosing = `[.!?]?(?:[\x60'"\s;,)\]}<>&@|]|\\[nr]|$)`
)

func (r *rule) prepare() {
	r.compile.Do(func() {
		r.regex = regexp.MustCompile(r.Regex) // the tests compile every one
		r.unbounded = strings.Contains(r.Regex, `.*`) || strings.Contains(r.Regex, `[\s\S`) || strings.Contains(r.Regex, `(?s`)
		if x, err := syntax.Parse(r.Regex, syntax.Perl); err == nil {
			r.longest = longest(x)
			r.machines.New = func() any { return newMachine(x) }
		}
		for _, x := range r.Allow {
			r.allow = append(r.allow, regexp.MustCompile(x))
		}
		for _, x := range r.AllowMatch {
			r.allowMatch = append(r.allowMatch, regexp.MustCompile(x))
		}
	})
}

// The window around a keyword, in which its expression is tried. Expressions are
// slow, and most match near their keyword.
const (
	before = 160 // bytes
	after  = 640
)

// place is where a secret stands in a text.
type place struct {
	start, end int
	from       int // where the rule's match begins, with the name before the secret
}

// find calls found with the place of each secret of this kind in text. hits are the
// ends of the rule's keywords, in order.
func (r *rule) find(text string, hits []int, found func(place)) {
	r.prepare()
	if r.unbounded {
		r.within(text, 0, len(text), found)
		return
	}
	for i := 0; i < len(hits); {
		from, to := max(0, hits[i]-before), hits[i]
		for ; i < len(hits) && hits[i]-before <= to; i++ {
			to = tokenEnd(text, max(to, min(len(text), hits[i]+after)))
		}
		if !r.within(text, from, to, found) {
			r.within(text, 0, len(text), found) // a match continues after the window
			return
		}
	}
}

// tokenEnd is at, or the end of the token there. A match that reaches the end of a longer one is
// searched in all of the text.
func tokenEnd(text string, at int) int {
	most := min(len(text), at+maxToken)
	for at < most && text[at] > ' ' && text[at] != '"' {
		at++
	}
	return at
}

// all returns what regex.FindAllStringSubmatchIndex does.
func (r *rule) all(text string) (all [][]int) {
	for _, p := range r.near(text) {
		found := r.regex.FindAllStringSubmatchIndex(text[p.start:p.end], -1)
		for _, m := range found {
			if m[0] == 0 && p.start > 0 || m[1] == p.end-p.start && p.end < len(text) {
				return r.regex.FindAllStringSubmatchIndex(text, -1) // the part's border may have made it
			}
			for i := range m {
				if m[i] >= 0 {
					m[i] += p.start
				}
			}
			all = append(all, m)
		}
	}
	return all
}

// near are the parts of text outside of which no match is, with some bytes around each.
func (r *rule) near(text string) []place {
	whole := []place{{end: len(text)}}
	m, _ := r.machines.Get().(*machine)
	if m == nil {
		return whole
	}
	defer r.machines.Put(m)
	limit := -1
	if r.longest < 0 {
		limit = 1
	}
	ends, ok := m.ends(text, limit)
	if !ok || r.longest < 0 && len(ends) > 0 {
		return whole
	}
	var parts []place
	for _, e := range ends {
		start, end := max(0, e-r.longest-utf8.UTFMax), min(len(text), e+utf8.UTFMax)
		if n := len(parts); n > 0 && start <= parts[n-1].end {
			parts[n-1].end = end
		} else {
			parts = append(parts, place{start: start, end: end})
		}
	}
	return parts
}

// within searches a part of text. It returns false if a match touches the part's
// end and may therefore be longer.
func (r *rule) within(text string, from, to int, found func(place)) bool {
	all := r.all(text[from:to])
	if n := len(all); n > 0 && to < len(text) && all[n-1][1] == to-from {
		return false
	}
	for _, m := range all {
		start, end := r.secret(m)
		secret := text[from+start : from+end]
		if !r.accepts(secret, text[from+m[0]:from+m[1]]) {
			continue
		}
		found(place{from + start, from + end, from + m[0]})
	}
	return true
}

// secret is the rule's group, or the first group that matched if the rule names
// none.
func (r *rule) secret(m []int) (start, end int) {
	if r.Group > 0 && m[2*r.Group] >= 0 {
		return m[2*r.Group], m[2*r.Group+1]
	}
	for g := 1; g < len(m)/2; g++ {
		if m[2*g] >= 0 && m[2*g+1] > m[2*g] {
			return m[2*g], m[2*g+1]
		}
	}
	return m[0], m[1]
}

// accepts says whether a match is a secret, by all but its form.
func (r *rule) accepts(secret, match string) bool {
	if r.Entropy > 0 && entropy(secret) < r.Entropy || r.allowed(secret, match) {
		return false
	}
	check := checks[r.Check]
	return check == nil || check(secret)
}

func (r *rule) allowed(secret, match string) bool {
	if len(r.allow)+len(r.allowMatch)+len(r.Stopwords) == 0 {
		return false
	}
	for _, x := range r.allow {
		if x.MatchString(secret) {
			return true
		}
	}
	for _, x := range r.allowMatch {
		if x.MatchString(match) {
			return true
		}
	}
	low := strings.ToLower(secret)
	for _, w := range r.Stopwords {
		if strings.Contains(low, w) {
			return true
		}
	}
	return false
}

// entropy is Shannon's entropy in bits per character.
func entropy(s string) float64 {
	var count [256]int
	for i := range len(s) {
		count[s[i]]++
	}
	var e float64
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(s))
			e -= p * math.Log2(p)
		}
	}
	return e
}
