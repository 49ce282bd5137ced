package cardtest

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// rule is a rule of the scanner, read from its file without its code.
type rule struct {
	id    string
	regex *regexp.Regexp
	tree  *syntax.Regexp
}

var (
	rulesMu sync.Mutex
	rules   []rule
)

var ruleLine = regexp.MustCompile("(?m)^id = \"([^\"]+)\"$|^(regex|[a-z0-9]+-[a-z0-9-]+) = '''(.*)'''$")

// endings replaces what follows a key in the rules of gitleaks. The scanner also accepts what follows
// one in a sentence, an address or a tag (package secrets says so).
var endings = strings.NewReplacer(`(?:[\x60'"\s;]|\\[nr]|$)`, `(?:[.!?]?(?:[\x60'"\s;,)\]}<>&@|]|\\[nr])|[.!?]?$)`)

// readRules reads the rules of the scanner.
func readRules(t testing.TB) []rule {
	rulesMu.Lock()
	defer rulesMu.Unlock()
	if rules != nil {
		return rules
	}
	root, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		require.NotEqual(t, "/", root)
		root = filepath.Dir(root)
	}
	var file []byte
	for _, name := range []string{"rules.toml", "everyday.toml"} {
		list, err := os.ReadFile(filepath.Join(root, "security", "secrets", name))
		require.NoError(t, err)
		file = append(append(file, list...), '\n')
	}
	id := ""
	for _, m := range ruleLine.FindAllSubmatch(file, -1) {
		if len(m[1]) > 0 {
			id = string(m[1])
			continue
		}
		if name := string(m[2]); name != "regex" { // of everyday.toml
			id = name
		}
		expression := endings.Replace(string(m[3]))
		tree, err := syntax.Parse(expression, syntax.Perl)
		require.NoError(t, err, id)
		rules = append(rules, rule{id, regexp.MustCompile(expression), tree})
	}
	require.Greater(t, len(rules), 200)
	return rules
}

// secret is a text that a rule matches.
type secret struct {
	rule  string
	text  string // the match
	token string // what in it may be masked; "": nothing
}

var bounded = regexp.MustCompile(`^[A-Za-z0-9_+/=.~-]+$`)

// sample makes a text that the rule matches.
func (r rule) sample(rnd *rand.Rand) (s secret, ok bool) {
	for range 8 {
		var b strings.Builder
		write(&b, r.tree, rnd)
		m := r.regex.FindStringSubmatch(b.String())
		if m == nil || strings.ContainsRune(m[0], 0) {
			continue
		}
		s = secret{rule: r.id, text: b.String(), token: m[len(m)-1]}
		for i := len(m) - 1; i >= 0 && !bounded.MatchString(s.token); i-- {
			s.token = m[i]
		}
		if !bounded.MatchString(s.token) {
			s.token = ""
		}
		return s, true
	}
	return s, false
}

// write writes a text that an expression matches.
func write(b *strings.Builder, x *syntax.Regexp, rnd *rand.Rand) {
	times := func(least, most int) {
		for range least + rnd.IntN(min(3, most-least+1)) {
			write(b, x.Sub[0], rnd)
		}
	}
	switch x.Op {
	case syntax.OpLiteral:
		b.WriteString(string(x.Rune))
	case syntax.OpCharClass:
		b.WriteRune(inClass(x.Rune, rnd))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteRune('a' + rune(rnd.IntN(26)))
	case syntax.OpCapture, syntax.OpConcat:
		for _, s := range x.Sub {
			write(b, s, rnd)
		}
	case syntax.OpAlternate:
		write(b, x.Sub[rnd.IntN(len(x.Sub))], rnd)
	case syntax.OpStar, syntax.OpQuest:
		times(0, 1)
	case syntax.OpPlus:
		times(1, 3)
	case syntax.OpRepeat:
		most := x.Max
		if most < 0 {
			most = x.Min + 3
		}
		times(x.Min, most)
	}
}

// inClass is a character of a class, a printable one of ASCII if there is one.
func inClass(class []rune, rnd *rand.Rand) rune {
	var all []rune
	for i := 0; i < len(class); i += 2 {
		for r := max(class[i], ' '); r <= min(class[i+1], '~'); r++ {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return class[0]
	}
	return all[rnd.IntN(len(all))]
}

// isSecret reports whether a token, as it stands in a text of the request, is a secret that a
// rule finds: verbatim, or as all of what the token decodes to. name is the member that holds it.
func isSecret(rules []rule, token, name, text string) bool {
	key := [3]string{token, name, text}
	if known, ok := searched.Load(key); ok {
		return known.(bool)
	}
	found := search(rules, token, name, text)
	searched.Store(key, found)
	return found
}

// searched keeps the results of isSecret: a card shows a token several times.
var searched sync.Map

func search(rules []rule, token, name, text string) bool {
	if matches(rules, token, text, `"`+text+`"`, name+`: "`+text+`"`, name+" = "+text) {
		return true
	}
	for range 3 {
		decoded := decode(token)
		if decoded == "" {
			return false
		}
		if token = decoded; matches(rules, token, token) {
			return true
		}
	}
	return false
}

func matches(rules []rule, token string, texts ...string) bool {
	for _, r := range rules {
		for _, text := range texts {
			if strings.Contains(text, token) && r.takes(token, text) {
				return true
			}
		}
	}
	return false
}

// takes reports whether the rule finds exactly that token in a text.
func (r rule) takes(token, text string) bool {
	for _, m := range r.regex.FindAllStringSubmatch(text, -1) {
		for _, group := range m {
			if strings.Trim(group, `"'`) == token {
				return true
			}
		}
	}
	return false
}

func decode(s string) string {
	if b, err := hex.DecodeString(s); err == nil {
		return string(b)
	}
	plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	if b, err := base64.RawStdEncoding.DecodeString(plain); err == nil {
		return string(b)
	}
	return ""
}
