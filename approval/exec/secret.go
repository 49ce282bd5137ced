package exec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxSecret = 8 << 10
	minSecret = 8 // shorter ones could not be redacted without redacting much else
	maxCA     = 1 << 20
)

var secretPattern = regexp.MustCompile(`^(?:([A-Za-z][A-Za-z0-9-]{0,31}) )?(/.*)$`)

// secretFile takes "/file" or "Bearer /file" apart.
func secretFile(value string) (scheme, file string, err error) {
	m := secretPattern.FindStringSubmatch(value)
	if m == nil || !cleanPath(m[2]) {
		return "", "", errors.New(`name the file that holds the secret, as in "/path" or "Bearer /path"`)
	}
	return m[1], m[2], nil
}

// readSecret gives the header's value, and its secret part. It is read at each
// run, so a new secret counts from the next one on.
func readSecret(value string) (header, secret string, err error) {
	scheme, file, err := secretFile(value)
	if err != nil {
		return "", "", err
	}
	b, err := readSmall(file, maxSecret, true)
	if err != nil {
		return "", "", err
	}
	secret = strings.TrimSuffix(string(b), "\n")
	switch {
	case !validValue(secret):
		return "", "", fmt.Errorf("%s: must hold one line of printable ASCII", file)
	case len(secret) < minSecret:
		return "", "", fmt.Errorf("%s: shorter than %d characters", file, minSecret)
	case scheme != "":
		return scheme + " " + secret, secret, nil
	}
	return secret, secret, nil
}

// readSmall reads a regular file of limited size. It does not wait for what is
// no file, such as a pipe.
func readSmall(file string, limit int64, private bool) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a file", file)
	case private && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: others than its owner may read it; chmod 600 %s", file, file)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, errors.Unwrap(err))
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: longer than %d bytes", file, limit)
	}
	return b, nil
}

// redactor removes secrets from what a server said, visibly. It knows a secret
// as it is, percent-encoded, in base64, and as JSON writes it.
type redactor struct{ words []string }

// add makes the redactor know a secret that was sent behind scheme.
func (r *redactor) add(scheme, secret string) {
	words := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), strings.ReplaceAll(secret, "/", `\/`),
		base64.StdEncoding.EncodeToString([]byte(secret)),
	}
	if quoted, err := jsontext.AppendQuote(nil, secret); err == nil {
		words = append(words, string(quoted[1:len(quoted)-1]))
	}
	if plain, err := base64.StdEncoding.DecodeString(secret); err == nil && strings.EqualFold(scheme, "Basic") && len(plain) > 0 {
		words = append(words, string(plain))
	}
	r.words = append(r.words, words...)
	// The longest first: one may be a part of another.
	slices.SortFunc(r.words, func(a, b string) int { return len(b) - len(a) })
	r.words = slices.Compact(r.words)
}

func (r *redactor) text(s string) string {
	for _, w := range r.words {
		if strings.Contains(s, w) {
			s = strings.ReplaceAll(s, w, fmt.Sprintf("[redacted: secret of %d characters]", len(w)))
		}
	}
	return s
}

// end cuts off what may be the beginning of a secret whose rest we never read.
func (r *redactor) end(b []byte) []byte {
	const least = 4 // fewer give nothing away, and would cut much that is no secret
	longest := 0
	for _, w := range r.words {
		for n := min(len(w)-1, len(b)); n > longest && n >= least; n-- {
			if string(b[len(b)-n:]) == w[:n] {
				longest = n
			}
		}
	}
	return b[:len(b)-longest]
}

// json redacts valid JSON string by string, since a server may have escaped
// any character of it. False when the outcome would hold a secret all the
// same, as a number does, or would be no JSON.
func (r *redactor) json(b []byte) ([]byte, bool) {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '"' {
			out = append(out, b[i])
			i++
			continue
		}
		end := i + 1
		for ; b[end] != '"'; end++ {
			if b[end] == '\\' {
				end++
			}
		}
		out = append(out, r.literal(b[i:end+1])...)
		i = end + 1
	}
	return out, r.text(string(out)) == string(out) && isJSON(out)
}

func (r *redactor) literal(quoted []byte) []byte {
	plain, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return quoted
	}
	clean := r.text(string(plain))
	if clean == string(plain) {
		return quoted
	}
	out, err := jsontext.AppendQuote(nil, clean)
	if err != nil {
		return []byte(`""`) // out of reach: the text is valid UTF-8
	}
	return out
}
