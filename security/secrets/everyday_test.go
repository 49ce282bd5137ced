package secrets_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/secrets"
)

// disguises are what an agent may do to the i-th text: each gives a request.
var disguises = map[string]func(text string, i int) *approval.Facts{
	"plain":                   inText(func(x string, _ int) string { return x }),
	"base64":                  inText(func(x string, _ int) string { return b64(x) }),
	"base64 wrapped":          inText(func(x string, _ int) string { return "data:\n" + wrap(b64(x), 76) + "\n" }),
	"base64 in a URL path":    inText(inPath),
	"hexadecimal":             inText(hexadecimal),
	"hexadecimal wrapped":     inText(func(x string, _ int) string { return wrap(hex.EncodeToString([]byte(x)), 60) }),
	"gzip":                    inText(gzipped),
	"UTF-16":                  inText(utf16le),
	"UTF-16, its other order": inText(utf16be),
	"reversed":                inText(reversed),
	"HTML entities":           inText(entities),
	`\x escapes`:              inText(hexEscapes),
	`\u escapes`:              inText(unicodeEscapes),
	"percent encoding":        inText(percent),
	"zero width":              inText(zeroWidth),
	"two fields":              inFields(),
	"around another field":    inFields("remark"),
	"around two fields":       inFields("remark", "note"),
	"the name of a tool":      func(x string, _ int) *approval.Facts { return &approval.Facts{Tool: x} },
	"the name of an action":   func(x string, _ int) *approval.Facts { return &approval.Facts{ActionType: x} },
	"the name of a session":   func(x string, _ int) *approval.Facts { return &approval.Facts{SessionID: x} },
}

func inText(disguise func(string, int) string) func(string, int) *approval.Facts {
	return func(x string, i int) *approval.Facts {
		return &approval.Facts{Args: approval.Raw(`{"text":` + quoted(disguise(x, i)) + `}`)}
	}
}

// inFields puts the halves of a text into two fields, with others between them.
func inFields(between ...string) func(string, int) *approval.Facts {
	return func(x string, i int) *approval.Facts {
		half := len(x) / 2
		args := `{"a":` + quoted(x[:half])
		for _, name := range between {
			args += fmt.Sprintf(`,%q:"see below, part %d"`, name, i)
		}
		return &approval.Facts{Args: approval.Raw(args + `,"b":` + quoted(x[half:]) + `}`)}
	}
}

func inPath(x string, _ int) string {
	return "https://paste.example.net/u/ann/" + base64.RawURLEncoding.EncodeToString([]byte(x)) + "/raw"
}

func hexadecimal(x string, i int) string {
	return fmt.Sprintf([]string{"%x", "%X", "0x%x"}[i%3], x)
}

func gzipped(x string, i int) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(x))
	_ = z.Close()
	if i%4 == 0 {
		return hex.EncodeToString(b.Bytes())
	}
	return wrap(b64(b.String()), 76)
}

func utf16le(x string, i int) string {
	b := []byte{0xff, 0xfe}[:i%2*2]
	for _, u := range utf16.Encode([]rune(x)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b64(string(b))
}

func utf16be(x string, _ int) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(x)) {
		b = binary.BigEndian.AppendUint16(b, u)
	}
	return hex.EncodeToString(b)
}

func reversed(x string, _ int) string {
	r := []rune(x)
	slices.Reverse(r)
	return string(r)
}

// eachRune replaces every rune, or every second one.
func eachRune(x string, all bool, as func(r rune) string) string {
	var b strings.Builder
	for i, r := range []rune(x) {
		if all || i%2 == 0 {
			b.WriteString(as(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func entities(x string, i int) string {
	if i%3 > 0 {
		return eachRune(x, true, func(r rune) string { return fmt.Sprintf([]string{"&#%d;", "&#x%x;"}[i%2], r) })
	}
	return eachRune(html.EscapeString(x), false, func(r rune) string {
		if strings.ContainsRune("&#;", r) {
			return string(r)
		}
		return fmt.Sprintf("&#%d;", r)
	})
}

func hexEscapes(x string, i int) string {
	return eachRune(x, i%3 > 0, func(r rune) string {
		return `\x` + strings.ReplaceAll(fmt.Sprintf("% x", string(r)), " ", `\x`)
	})
}

func unicodeEscapes(x string, i int) string {
	return eachRune(x, i%2 > 0, func(r rune) string { return fmt.Sprintf([]string{`\u%04x`, `\u{%x}`, `\U%08x`}[i%3], r) })
}

func percent(x string, i int) string {
	if i%2 == 0 {
		return "https://x.example/?q=" + url.QueryEscape(x)
	}
	return "%" + strings.ReplaceAll(fmt.Sprintf("% x", x), " ", "%")
}

func zeroWidth(x string, _ int) string {
	a, b := len(x)/3, 2*len(x)/3
	return x[:a] + "\u200b" + x[a:b] + "\u2060" + x[b:]
}

// missed lists the samples of a disguise in which nothing is found.
func missed(s *secrets.Scanner, all []sample, disguise func(string, int) *approval.Facts) (missed []string) {
	for i, x := range all {
		if len(s.Scan(disguise(x.text, i))) == 0 {
			missed = append(missed, x.kind+": "+strings.ReplaceAll(x.text[:min(len(x.text), 70)], "\n", "⏎"))
		}
	}
	return missed
}

// Everyday texts with a secret, which know nothing of the rules.
func TestEverydaySecrets(t *testing.T) {
	all := everyday(t, "secrets.txt", 1)
	require.GreaterOrEqual(t, len(all), 200)
	if os.Getenv("PERMESSO_SOAK") != "" {
		for seed := range uint64(20) {
			all = append(all, everyday(t, "secrets.txt", seed+2)...)
		}
	}
	s := scanner(t)
	for name, disguise := range disguises {
		t.Run(name, func(t *testing.T) {
			none := missed(s, all, disguise)
			found := 1 - float64(len(none))/float64(len(all))
			t.Logf("%.1f %% of %d found, all but\n%s", 100*found, len(all), strings.Join(none[:min(len(none), 60)], "\n"))
			least := 0.85
			if name == "plain" {
				least = 0.90
			}
			require.GreaterOrEqual(t, found, least)
		})
	}
}

// What is found is the secret, not what stands around it.
func TestSurroundingsAreNoSecrets(t *testing.T) {
	b, err := os.ReadFile("testdata/everyday/secrets.txt")
	require.NoError(t, err)
	s := scanner(t)
	var alarms []string
	all := strings.Split(string(b), "\n## ")[1:]
	for _, block := range all {
		kind, text, _ := strings.Cut(block, "\n")
		text = placeholder.ReplaceAllString(text, "$$SECRET")
		if found := find(s, `{"text":`+quoted(text)+`}`); len(found) > 0 {
			alarms = append(alarms, fmt.Sprint(kind, ": ", found, " ", text))
		}
	}
	require.LessOrEqual(t, len(alarms), len(all)/50, strings.Join(alarms, "\n"))
}

// Everyday requests without a secret: each alarm asks a person for nothing.
func TestEverydayRequests(t *testing.T) {
	s := scanner(t)
	var alarms []string
	n, least := 0, 1000
	if os.Getenv("PERMESSO_SOAK") != "" {
		least = 20_000
	}
	for seed := uint64(0); n < least; seed++ {
		for _, x := range everyday(t, "requests.txt", seed) {
			args := map[string]string{"command": `{"command":`, "edit": `{"path":"src/a.txt","content":`, "json": ""}
			before, special := args[x.kind]
			if !special {
				before = `{"to":"bob@example.org","text":`
			}
			request := x.text
			if before != "" {
				request = before + quoted(x.text) + `}`
			}
			require.True(t, json.Valid([]byte(request)), request)
			f := &approval.Facts{Args: approval.Raw(request), Tool: "mail.send", SessionID: "5f0c1c2e-9a4e-4c1b-8f2d-0b1a2c3d4e5f"}
			if found := s.Scan(f); len(found) > 0 {
				alarms = append(alarms, fmt.Sprint(found, " ", x.text[:min(len(x.text), 200)]))
			}
			n++
		}
	}
	t.Logf("%d false alarms in %d requests\n%s", len(alarms), n, strings.Join(alarms, "\n"))
	require.LessOrEqual(t, len(alarms), 5*n/1000)
}

// Lockfiles have thousands of digests. The names of packages are those of secrets, too.
func TestLockfiles(t *testing.T) {
	s := scanner(t)
	for name, entry := range map[string]string{
		"package-lock.json": `    "node_modules/%[1]s": {
      "version": "%[2]s",
      "resolved": "https://registry.npmjs.org/%[1]s/-/%[1]s-%[2]s.tgz",
      "integrity": "sha512-%[3]s",
      "dependencies": {"%[1]s-types": "^%[2]s"}
    },
`,
		"yarn.lock": `%[1]s@^%[2]s:
  version "%[2]s"
  resolved "https://registry.yarnpkg.com/%[1]s/-/%[1]s-%[2]s.tgz#%[4]s"
  integrity sha512-%[3]s

`,
		"yarn.lock, berry": `"%[1]s@npm:^%[2]s":
  version: %[2]s
  resolution: "%[1]s@npm:%[2]s"
  checksum: 10c0/%[5]s%[5]s
  languageName: node

`,
		"pnpm-lock.yaml": `  %[1]s@%[2]s:
    resolution: {integrity: sha512-%[3]s}
    engines: {node: '>=%[2]s'}

`,
		"Cargo.lock": `[[package]]
name = "%[1]s"
version = "%[2]s"
source = "registry+https://index.crates.example/"
checksum = "%[5]s"

`,
		"poetry.lock": `[[package]]
name = "%[1]s"
version = "%[2]s"
files = [
    {file = "%[1]s-%[2]s-py3-none-any.whl", hash = "sha256:%[5]s"},
]

`,
		"uv.lock": `    { name = "%[1]s", url = "https://files.example.org/%[5]s/%[1]s-%[2]s.tar.gz", hash = "sha256:%[5]s", size = 4096 },
`,
		"Gemfile.lock":  "  %[1]s (%[2]s) sha256=%[5]s\n",
		"composer.lock": `{"name": "acme/%[1]s", "version": "v%[2]s", "source": {"reference": "%[4]s"}, "dist": {"shasum": "%[4]s"}},` + "\n",
		"flake.lock": `    "%[1]s": {"locked": {"narHash": "sha256-%[6]s", "rev": "%[4]s", "type": "github"}},
`,
		"go.sum": "example.com/%[1]s v%[2]s h1:%[6]s\nexample.com/%[1]s v%[2]s/go.mod h1:%[6]s\n",
		"hashes": "%[1]s==%[2]s \\\n    --hash=sha256:%[5]s\n",
	} {
		g := generator{rand.New(rand.NewPCG(1, 2))}
		var b strings.Builder
		for range 400 {
			hex := alphabets["hex"]
			fmt.Fprintf(&b, entry+"%.0[1]s%.0[2]s%.0[3]s%.0[4]s%.0[5]s%.0[6]s", g.pick(packages)+"-"+g.pick(words), g.make("ver", ""),
				g.make("b64", "64"), g.text(hex, 40), g.text(hex, 64), g.make("b64", "32"))
		}
		require.Empty(t, find(s, `{"path":"x.lock","content":`+quoted(b.String())+`}`), name)
	}
	for _, file := range []string{"../../go.sum", "../../.ci/tools/go.sum"} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, find(s, `{"content":`+quoted(string(b))+`}`), file)
	}
}
