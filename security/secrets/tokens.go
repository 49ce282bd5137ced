package secrets

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// A mask covers exactly one token: a run of these characters, between others or the
// ends of its value.
const (
	maxToken = 4096 // bytes
	maxNamed = 256  // bytes of a token that is a secret by the name before it
	minRun   = 14   // bytes of an encoded token
)

// maskMode says where a value may be masked.
type maskMode uint8

const (
	maskNever maskMode = iota
	maskText           // anywhere
	maskDiff           // in the lines of a diff, but not in the names of its files
	maskNamed          // after the name of a secret
	maskLine           // as maskNamed, in the arguments of simple commands
	maskArg            // as maskNamed, but not between characters of a shell
)

// token is a secret that may be masked.
type token struct {
	Span
	named bool // a secret by the name before it, not by its own form
}

func isToken(c byte) bool { return isNamed(c) || c == '/' || c == '.' || c == '~' }

// isNamed are the characters of a token that is known only by a name before it: without
// those that separate the parts of a host or a path.
func isNamed(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '+' || c == '=' || c == '-'
}

// tokensOf finds the tokens of a value that may be masked, in its verbatim text.
func (s *Scanner) tokensOf(l *leaf) []token {
	if l.mask == maskNever {
		return nil
	}
	before, after := `"`, `"`
	if l.name != "" {
		before = l.name + `: "`
	}
	view := before + l.shown + after
	var all []token
	s.search(view, func(r *rule, p place) {
		t := token{Span{p.start - len(before), p.end - len(before), r.ID}, isLetterIn(view[p.from:p.start])}
		if !r.oneValue && t.Start >= 0 && t.bounded(l.shown) && r.proves() {
			all = append(all, t)
		}
	})
	for start, end := range tokenBytes.runs(l.shown) {
		if end-start < minRun || end-start > maxToken {
			continue
		}
		if kind := s.encoded(l.shown[start:end], maxDepth); kind != "" {
			all = append(all, token{Span{start, end, kind}, false})
		}
	}
	return distinct(allowed(l, all))
}

// proves says whether what the rule found is a secret by its own form. A name before it
// proves nothing: an agent could write "api_key: payEve900EUR" to hide words.
func (r *rule) proves() bool {
	return !r.Generic && r.Check == "" && r.ID != "curl-auth-header"
}

// isLetterIn says whether the part of a match before the secret is more than a boundary.
func isLetterIn(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < 0x80 && isNamed(byte(c)) && c != '=' && c != '-' }) >= 0
}

// bounded says whether t is exactly one token of the text.
func (t token) bounded(text string) bool {
	is, longest := isToken, maxToken
	if t.named || t.Kind == generic {
		is, longest = isNamed, maxNamed
	}
	if t.End <= t.Start || t.End > len(text) || t.End-t.Start > longest || strings.HasSuffix(t.Kind, "-url") {
		return false
	}
	if t.Start > 0 && isToken(text[t.Start-1]) || t.End < len(text) && isToken(text[t.End]) {
		return false
	}
	for i := t.Start; i < t.End; i++ {
		if !is(text[i]) {
			return false
		}
	}
	return true
}

// encoded is the kind of the secret that a token decodes to, "" unless it is that alone.
func (s *Scanner) encoded(text string, depth int) (kind string) {
	for _, decode := range []func(string) string{exactBase64, exactHex} {
		inner := decode(text)
		if !(token{Span: Span{0, len(inner), ""}}).bounded(inner) {
			continue
		}
		s.search(inner, func(r *rule, p place) {
			t := token{Span{p.start, p.end, r.ID}, false}
			if p.from == 0 && p.start == 0 && p.end == len(inner) && r.ID != generic && !r.oneValue && t.bounded(inner) {
				kind = min(cmp.Or(kind, r.ID), r.ID)
			}
		})
		if kind == "" && depth > 1 && len(inner) >= minRun {
			kind = s.encoded(inner, depth-1)
		}
		if kind != "" {
			return kind
		}
	}
	return ""
}

// exactBase64 decodes text if all of it is base64 without spare bits, else "".
func exactBase64(text string) string {
	bare := strings.TrimRight(text, "=")
	if len(text)-len(bare) > 2 || strings.ContainsAny(bare, ".~=") {
		return ""
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if b, err := e.Strict().DecodeString(bare); err == nil {
			return string(b)
		}
	}
	return ""
}

func exactHex(text string) string {
	b, err := hex.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(b)
}

// distinct sorts tokens. Of those that overlap, it keeps the one that begins first, and
// of these the longest; a provider's rule goes before the generic one.
func distinct(all []token) (out []token) {
	order := func(t token) int {
		if t.named {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b token) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End),
			cmp.Compare(order(a), order(b)), cmp.Compare(a.Kind, b.Kind))
	})
	for _, t := range all {
		if len(out) == 0 || t.Start >= out[len(out)-1].End {
			out = append(out, t)
		}
	}
	return out
}
