package chat

import (
	"errors"
	"strconv"
	"strings"
)

var errEscape = errors.New("unescape: not written by Escape")

// unescape returns the string that was given to Escape.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); {
		var n int
		var err error
		switch {
		case s[i] == '\\':
			n, err = unescapeOne(&b, s[i:])
		case strings.HasPrefix(s[i:], string(runSign)):
			var count int64
			n, count, err = braced(s[i:], len(string(runSign)), 10)
			if err == nil && count > int64(1<<20) {
				err = errEscape
			}
			if err == nil {
				b.WriteString(strings.Repeat(" ", int(count)))
			}
		default:
			n = 1
			b.WriteByte(s[i])
		}
		if err != nil {
			return "", err
		}
		i += n
	}
	return b.String(), nil
}

func unescapeOne(b *strings.Builder, s string) (int, error) {
	if len(s) < 2 {
		return 0, errEscape
	}
	switch s[1] {
	case '\\', '"':
		b.WriteByte(s[1])
	case 'n':
		b.WriteByte('\n')
	case 'r':
		b.WriteByte('\r')
	case 't':
		b.WriteByte('\t')
	case 'u', 'x':
		n, v, err := braced(s, 2, 16)
		if err != nil {
			return 0, err
		}
		if s[1] == 'x' {
			b.WriteByte(byte(v))
		} else {
			b.WriteRune(rune(v))
		}
		return n, nil
	default:
		return 0, errEscape
	}
	return 2, nil
}

// braced reads {digits} at s[at:] and returns its end.
func braced(s string, at, base int) (end int, v int64, err error) {
	digits, _, ok := strings.Cut(s[at:], "}")
	if !ok || len(digits) < 2 || digits[0] != '{' {
		return 0, 0, errEscape
	}
	v, err = strconv.ParseInt(digits[1:], base, 32)
	if err != nil || v < 0 {
		return 0, 0, errEscape
	}
	return at + len(digits) + 1, v, nil
}
