package secrets

import (
	"encoding/base64"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// checks say whether what stands in the place of a secret may be one.
var checks = map[string]func(secret string) bool{
	"value":    func(s string) bool { return !isPlaceholder(s) },
	"pair":     func(s string) bool { return !isPlaceholder(strings.Trim(s[strings.IndexByte(s, ':')+1:], `"'`)) },
	"quoted":   func(s string) bool { return !isPlaceholder(strings.Trim(s, `"'`)) },
	"url":      func(s string) bool { return !isPlaceholder(s) && !strings.ContainsAny(s, "{}()[]*") },
	"password": isPassword,
	"strong":   func(s string) bool { return isPassword(s) && isMixed(s) },
	"token":    isRandom,
	"basic":    isBasic,
}

// placeholder is text that stands for a secret: a variable, a template, a word for one.
var (
	placeholder = lazy(`^(?:\$[A-Za-z_{(\[].*|.*\$[A-Z_]{4,}|%[A-Za-z_({].*|.*(?:\{\{|\$\{|<[a-z]|://).*|[/~.]?/.*|@.*|[*.xX•#-]+|!.*\[.*|!vault.*|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)$`)
	pretext     = lazy(`(?i)^(?:(?:your|my|our|the|some|any|enter|insert|change|replace|example|sample|dummy|fake|test|demo|placeholder|redacted|removed|hidden|secret|default|current|new|old)(?:[-_ .].*)?|changeme\d*|none|null|nil|true|false|undefined|string|required|optional|password\d?|passw(?:or)?t|passwd|pass|pw|pwd|user|guest|admin|token|postgres|root|hunter2|letmein|foobar|env|vault|stdin|prompt)$`)
	reference   = lazy(`(?i)^(?:process|os|env|config|settings|self|this|args|opts|options|params|props|req|request|secrets?|vars?|values|data|input|form|user|account|credentials?|creds|ctx|c|s|t|r)\.\w`)
)

// lazy compiles an expression on first use: most commands search nothing.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

func isPlaceholder(s string) bool {
	return placeholder().MatchString(s) || pretext().MatchString(s) || reference().MatchString(s)
}

// isPassword says whether s may be a password: no word or name, but letters with digits or
// with signs among them, or six digits.
func isPassword(s string) bool {
	k := kindsIn(s)
	if len(s) < 6 || k.spaces > 3 || isPlaceholder(s) {
		return false
	}
	return k.digits > 0 && (k.letters > 0 || k.signs+k.spaces == 0) || isJumbled(s) ||
		k.spaces == 0 && k.upper > 0 && k.upper < k.letters && strings.ContainsAny(s[1:len(s)-1], "!?%&#*+^~")
}

// isMixed says whether s has eight characters of three kinds.
func isMixed(s string) bool {
	k := kindsIn(s)
	return len(s) >= 8 && k.letters > 0 && k.digits > 0 && (k.signs > 0 || k.upper > 0 && k.upper < k.letters)
}

// isRandom says whether s may be a key or a token: it has a long part in which letters and
// digits are mixed. Names with hyphens have none.
func isRandom(s string) bool {
	if isPlaceholder(s) || entropy(s) < 3 {
		return false
	}
	for part := range strings.FieldsFuncSeq(s, func(c rune) bool { return strings.ContainsRune("-_./+=~", c) }) {
		if k := kindsIn(part); len(part) >= 8 && (k.letters >= 2 && k.digits > 0 || isJumbled(part)) {
			return true
		}
	}
	k := kindsIn(s)
	return k.signs > 3 && k.letters > 3 && k.digits > 3
}

// isJumbled says whether upper and lower case change as in no name: often, with two upper ones together.
func isJumbled(s string) bool {
	rises, pairs := 0, 0
	for i := 1; i < len(s); i++ {
		switch {
		case isUpper(s[i-1]) && isUpper(s[i]):
			pairs++
		case isUpper(s[i]) && 'a' <= s[i-1] && s[i-1] <= 'z':
			rises++
		}
	}
	return 6*rises >= len(s) && pairs >= 2 && len(s) >= 8
}

// isBasic says whether s is the base64 of a name and a password.
func isBasic(s string) bool {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	_, password, is := strings.Cut(string(b), ":")
	return err == nil && is && utf8.Valid(b) && !isPlaceholder(password) && password != "" &&
		strings.IndexFunc(string(b), unicode.IsControl) < 0
}

// charKinds counts the characters of a text by kind.
type charKinds struct{ letters, upper, digits, signs, spaces int }

func kindsIn(s string) (k charKinds) {
	for _, c := range s {
		switch {
		case unicode.IsUpper(c):
			k.upper++
			k.letters++
		case unicode.IsLetter(c):
			k.letters++
		case unicode.IsDigit(c):
			k.digits++
		case c == ' ':
			k.spaces++
		default:
			k.signs++
		}
	}
	return k
}
