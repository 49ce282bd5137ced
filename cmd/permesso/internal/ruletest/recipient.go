package ruletest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// noRecipient answers for the condition []. A request without the argument has no recipient
// either.
func (j judge) noRecipient(value any) Answer {
	l, isList := value.([]any)
	blank := slices.ContainsFunc(texts(value), func(s string) bool { return !address.MatchString(strings.TrimSpace(s)) || strings.HasSuffix(s, ".") })
	switch {
	case value == nil, isList && len(l) == 0:
		return Yes
	case blank:
		return No | Unknown
	case len(texts(value)) < len(list(value)):
		return Unknown | No
	}
	return No
}

var address = regexp.MustCompile(`^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]+@[A-Za-z0-9.-]+$`)

// recipients answers for a text in which commas separate recipients, or a list of such texts.
// null is an argument that is not there.
func (j judge) recipients(condition, value any) Answer {
	if value == nil {
		return Unknown
	}
	var all []Answer
	for _, v := range list(value) {
		s, ok := v.(string)
		if !ok {
			all = append(all, Unknown|No)
			continue
		}
		for part := range strings.SplitSeq(s, ",") {
			all = append(all, j.recipient(condition, strings.TrimSpace(part)))
		}
		if strings.ContainsAny(s, "\"(;") {
			all = append(all, j.empty()) // a comma that separates nothing
		}
	}
	switch {
	case !j.narrow && strings.Contains(fmt.Sprint(value), `"`) && some(all...) == Unknown:
		return No | Unknown // a comma in a name
	case !j.narrow:
		return some(all...)
	case len(all) == 0:
		return No
	}
	return every(all...)
}

func (j judge) recipient(condition any, value string) Answer {
	if value == "" {
		return j.empty()
	}
	all := No
	for _, p := range texts(condition) {
		if j.narrow {
			all = some(all, narrowRecipient(p, value))
		} else {
			all = some(all, wideRecipient(p, value))
		}
	}
	return all
}

func (j judge) empty() Answer {
	if j.narrow {
		return No | Yes
	}
	return No | Unknown
}

// narrowRecipient compares the part before the @ exactly.
func narrowRecipient(pattern, value string) Answer {
	at := strings.LastIndexByte(value, '@')
	if !strings.Contains(pattern, "@") {
		return answer(pattern == value)
	}
	if invisible := strings.ContainsFunc(value, func(r rune) bool { return unicode.Is(unicode.Cf, r) }); invisible && strings.HasPrefix(pattern, "@") {
		return No | answer(strings.HasSuffix(strings.ToLower(value), strings.ToLower(pattern)))
	}
	if !address.MatchString(value) || strings.ContainsAny(value, "%!`|'&;$") {
		return No
	}
	cut := strings.LastIndexByte(pattern, '@')
	local, domain := value[:at], value[at+1:]
	if cut > 0 && pattern[:cut] != local || !strings.EqualFold(pattern[cut+1:], strings.TrimSuffix(domain, ".")) {
		return No
	}
	if strings.HasSuffix(domain, ".") {
		return No | Yes
	}
	return Yes
}

var comments = regexp.MustCompile(`\([^()]*\)`)

var inAngles = regexp.MustCompile(`<([^<>]*)>\s*$`)

// wideRecipient compares addresses without case, tag and name.
func wideRecipient(pattern, value string) Answer {
	bare := fold(value)
	named, spaced := false, false
	if m := inAngles.FindStringSubmatch(bare); m != nil {
		bare, named, spaced = strings.TrimSpace(m[1]), true, strings.TrimSpace(m[1]) != m[1]
	}
	want := fold(pattern)
	switch plain := address.MatchString(bare); {
	case !strings.Contains(want, "@"):
		if want == bare {
			return Yes
		}
		return No | Unknown
	case strings.ContainsAny(bare, ":;") && strings.Contains(bare, "@"):
		local, domain, _ := strings.Cut(want, "@")
		if strings.Contains(bare, `"`) {
			return No | Unknown | Yes
		}
		if strings.Contains(bare, want) {
			return Unknown | Yes
		}
		if strings.Contains(bare, local) && strings.Contains(bare, "@"+domain) {
			return No | Unknown | Yes
		}
		return No | Unknown
	case !plain:
		squeezed := comments.ReplaceAllString(strings.NewReplacer(" ", "", `"`, "").Replace(bare), "")
		if address.MatchString(squeezed) && sameAddress(want, squeezed) {
			return Unknown | Yes
		}
		if strings.Contains(squeezed, want) {
			return Unknown | Yes
		}
		if address.MatchString(squeezed) {
			return No | Unknown
		}
		return Unknown
	case sameAddress(want, bare) && strings.ContainsFunc(value, func(r rune) bool { return r > 0x7e }):
		return Unknown | Yes
	case sameAddress(want, bare) && (spaced || named && (strings.Contains(value, ";") || strings.Count(fold(value), "@") > 1)):
		return Unknown | Yes
	case sameAddress(want, bare):
		return Yes
	case strings.HasSuffix(bare, ".") && sameAddress(want, strings.TrimSuffix(bare, ".")):
		return Unknown | Yes
	case spaced, named && strings.Count(fold(value), "@") > 1, strings.HasSuffix(bare, "."), strings.ContainsFunc(value, func(r rune) bool { return r > 0x7e }):
		return Unknown | No
	}
	return No
}

func sameAddress(want, is string) bool {
	wantLocal, wantDomain, _ := strings.Cut(want, "@")
	local, domain, _ := strings.Cut(is, "@")
	local, _, _ = strings.Cut(local, "+")
	wantLocal, _, _ = strings.Cut(wantLocal, "+")
	return domain == wantDomain && (wantLocal == "" || local == wantLocal)
}
