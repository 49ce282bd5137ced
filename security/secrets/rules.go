package secrets

import (
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

//go:embed rules.toml
var rulesFile []byte

// rule is one kind of secret. Its expression is compiled when it is first
// needed: most never are.
type rule struct {
	ID         string   `toml:"id"`
	Regex      string   `toml:"regex"`
	Entropy    float64  `toml:"entropy"`
	Group      int      `toml:"group"`
	Keywords   []string `toml:"keywords"`
	Allow      []string `toml:"allow"`       // of the secret
	AllowMatch []string `toml:"allow_match"` // of the whole match
	Stopwords  []string `toml:"stopwords"`

	compile    sync.Once
	regex      *regexp.Regexp
	allow      []*regexp.Regexp
	allowMatch []*regexp.Regexp
}

type ruleSet struct {
	Stopwords []string `toml:"stopwords"`
	Regexes   []string `toml:"regexes"`
	Rules     []*rule  `toml:"rules"`
}

func loadRules() (*ruleSet, error) {
	set := &ruleSet{}
	if err := toml.Unmarshal(rulesFile, set); err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	for _, r := range set.Rules {
		if len(r.Allow)+len(r.AllowMatch)+len(r.Stopwords) > 0 {
			r.Allow = append(r.Allow, set.Regexes...)
			r.Stopwords = append(r.Stopwords, set.Stopwords...)
		}
	}
	return set, nil
}

func (r *rule) ready() {
	r.compile.Do(func() {
		r.regex = regexp.MustCompile(r.Regex) // the tests compile every one
		for _, x := range r.Allow {
			r.allow = append(r.allow, regexp.MustCompile(x))
		}
		for _, x := range r.AllowMatch {
			r.allowMatch = append(r.allowMatch, regexp.MustCompile(x))
		}
	})
}

// find calls found with the place of each secret of this kind in text.
func (r *rule) find(text string, found func(start, end int)) {
	r.ready()
	for _, m := range r.regex.FindAllStringSubmatchIndex(text, -1) {
		start, end := r.secret(m)
		secret := text[start:end]
		if r.Entropy > 0 && entropy(secret) < r.Entropy || r.allowed(secret, text[m[0]:m[1]]) {
			continue
		}
		found(start, end)
	}
}

// secret is the group that holds it, the first that matched where the rule
// names none.
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

func (r *rule) allowed(secret, match string) bool {
	if len(r.allow) == 0 && len(r.Stopwords) == 0 {
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

// entropy is Shannon's, in bits a character.
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
