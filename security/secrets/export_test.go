package secrets

import (
	"fmt"
	"regexp"
	"strings"

	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
)

// CheckRules compiles all expressions and returns the first error.
func CheckRules() error {
	set, err := loadRules()
	if err != nil {
		return err
	}
	for _, r := range set.Rules {
		for _, x := range append(append([]string{r.Regex}, r.Allow...), r.AllowMatch...) {
			if _, err := regexp.Compile(x); err != nil {
				return fmt.Errorf("rule %s: %w", r.ID, err)
			}
		}
		if len(r.Keywords) == 0 {
			return fmt.Errorf("rule %s has no keywords", r.ID)
		}
	}
	return nil
}

// Samples returns at most n texts of printable ASCII for each rule, by its ID. Each
// matches the rule's expression and its entropy.
func Samples(n int) map[string][]string {
	set, err := loadRules()
	if err != nil {
		return nil
	}
	all := map[string][]string{}
	for _, r := range set.Rules {
		for try := 0; try < 400 && len(all[r.ID]) < n; try++ {
			if text, ok := r.sample(try); ok {
				all[r.ID] = append(all[r.ID], text)
			}
		}
	}
	return all
}

// sample makes the same text for the same number. ok is false if this attempt failed.
func (r *rule) sample(number int) (text string, ok bool) {
	defer func() {
		if recover() != nil { // it found no text that matches
			ok = false
		}
	}()
	text = rapid.StringMatching(r.Regex).Example(number)
	if strings.ContainsFunc(text, func(c rune) bool { return c > '~' || c < ' ' && !strings.ContainsRune("\t\r\n", c) }) {
		return text, false
	}
	r.prepare()
	r.within(text, 0, len(text), func(place) { ok = true })
	return text, ok
}

// Shown joins the values of a request, with their masks.
func (r *Redactor) Shown(p *approval.Pending) string {
	var b strings.Builder
	for _, l := range walk("request_data", p.RequestData) {
		at := 0
		for _, sp := range r.Tokens(l.shown) {
			b.WriteString(l.shown[at:sp.Start])
			at = sp.End
		}
		b.WriteString(l.shown[at:] + "\n")
	}
	return b.String()
}

// SeedWords are the words of seed phrases.
var SeedWords = seedWords
