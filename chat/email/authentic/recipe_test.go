package authentic

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The emails in testdata/mail/spoof and testdata/mail/dkim are recipes:
//
//	# why the recipe exists
//	# refused: WORDS | undecided: WORDS | proved: ADDRESS by HOW
//	@lf                           lines end with LF, not CRLF
//	@sign d=… s=… h=… [tag=…]     a DKIM-Signature over everything below it
//	From: …
//
//	text
//	@append, or @replace          the following text is not signed: after the
//	more text                     signed text, or instead of it
//
// Fields above @sign were added after signing. {0D} is that byte, {NOEOL} ends the email.
// Two tags control the forgery: key=SELECTOR@DOMAIN (sign with that key) and was=FIELD
// (sign this field instead of the one with that name). Every other tag is written into
// the signature, or replaces the default one.
type recipe struct {
	name, why, verdict string
	mail               []byte
}

func recipes(t testing.TB, folder string) []recipe {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "mail", folder, "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []recipe
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		why, rest, _ := strings.Cut(string(b), "\n")
		verdict, rest, _ := strings.Cut(rest, "\n")
		require.True(t, strings.HasPrefix(why, "# ") && strings.HasPrefix(verdict, "# "), file)
		all = append(all, recipe{filepath.Base(file), why[2:], verdict[2:], buildRecipe(t, rest)})
	}
	return all
}

var hexByte = regexp.MustCompile(`\{[0-9A-F]{2}\}`)

func buildRecipe(t testing.TB, text string) []byte {
	t.Helper()
	text, lf := strings.CutPrefix(text, "@lf\n")
	text = hexByte.ReplaceAllStringFunc(text, func(s string) string {
		b, err := hex.DecodeString(s[1:3])
		require.NoError(t, err)
		return string(b)
	})
	text = strings.ReplaceAll(text, "\n", "\r\n")
	if cut, _, ok := strings.Cut(text, "{NOEOL}"); ok {
		return []byte(cut)
	}
	header, body, _ := strings.Cut(text, "\r\n\r\n")
	body, unsigned, replace := strings.Cut(body, "@replace\r\n")
	body, appended, _ := strings.Cut(body, "@append\r\n")
	lines := strings.SplitAfter(header+"\r\n", "\r\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if spec, ok := strings.CutPrefix(lines[i], "@sign "); ok {
			lines[i] = signDKIM(t, strings.Fields(spec), lines[i+1:], body)
		}
	}
	if replace {
		body = unsigned
	}
	text = strings.Join(lines, "") + "\r\n" + body + appended
	if lf {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	return []byte(text)
}

// signDKIM makes a simple/simple signature, without checks.
func signDKIM(t testing.TB, spec, lines []string, body string) string {
	t.Helper()
	tags := map[string]string{"v": "1", "c": "simple/simple"}
	var more string
	for _, item := range spec {
		name, value, _ := strings.Cut(item, "=")
		if _, known := tags[name]; known && name != "v" && name != "c" {
			more += " " + item + ";"
			continue
		}
		tags[name] = value
	}
	key := testKeys.of(cmpOr(tags["key"], tags["s"]+"@"+tags["d"]))
	if tags["a"] == "" {
		tags["a"] = key.algorithm
	}
	covered := body
	if tags["l"] != "" {
		covered = body[:int(mustInt(t, tags["l"]))]
	}
	covered = strings.TrimRight(covered, "\r\n") + "\r\n"
	if tags["l"] != "" {
		covered = body[:int(mustInt(t, tags["l"]))]
	}
	sum := sha256.Sum256([]byte(covered))
	head := "DKIM-Signature:"
	for _, name := range []string{"v", "a", "d", "s", "c", "i", "t", "x", "l", "z", "h"} {
		if value, ok := tags[name]; ok {
			head += " " + name + "=" + value + ";"
		}
	}
	head += more + " bh=" + base64.StdEncoding.EncodeToString(sum[:]) + "; b="
	signed := coveredFields(lines, tags["h"], tags["was"]) + head
	return head + cmpOr(tags["b"], base64.StdEncoding.EncodeToString(key.sign([]byte(signed)))) + "\r\n"
}

// coveredFields returns the fields that h= names, each taken from the bottom up.
func coveredFields(lines []string, names, was string) string {
	var fields []string
	for _, line := range lines {
		if line != "" && (line[0] == ' ' || line[0] == '\t') && len(fields) > 0 {
			fields[len(fields)-1] += line
			continue
		}
		fields = append(fields, line)
	}
	var text string
	for name := range strings.SplitSeq(names, ":") {
		for i := len(fields) - 1; i >= 0; i-- {
			if n, _, ok := strings.Cut(fields[i], ":"); ok && strings.EqualFold(n, name) {
				if replaced, _, _ := strings.Cut(was, ":"); replaced == n {
					fields[i] = strings.ReplaceAll(was, "_", " ") + "\r\n"
				}
				text, fields[i] = text+fields[i], ""
				break
			}
		}
	}
	return text
}

func cmpOr(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

func mustInt(t testing.TB, s string) int64 {
	n, ok := new(big.Int).SetString(s, 10)
	require.True(t, ok, s)
	return n.Int64()
}

// testKey signs like a mail server, also with keys that Go refuses.
type testKey struct {
	algorithm, record string
	sign              func(data []byte) []byte
}

// keyRing makes keys on demand: every selector of every domain has one. Ed25519 keys are
// the same in every run.
type keyRing struct {
	mu   sync.Mutex
	keys map[string]testKey
}

var testKeys = &keyRing{keys: map[string]testKey{}}

func (r *keyRing) of(name string) testKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	name = strings.ToLower(name)
	if _, ok := r.keys[name]; !ok {
		r.keys[name] = newTestKey(name)
	}
	return r.keys[name]
}

func newTestKey(name string) testKey {
	for selector, bits := range map[string]int{"rsa@": 1024, "rsa512@": 512, "rsa1020@": 1020} {
		if strings.HasPrefix(name, selector) {
			return newTestRSA(bits)
		}
	}
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	return testKey{
		algorithm: "ed25519-sha256",
		record:    "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)),
		sign: func(data []byte) []byte {
			sum := sha256.Sum256(data)
			return ed25519.Sign(key, sum[:])
		},
	}
}

// newTestRSA is textbook RSA: crypto/rsa refuses keys below 1024 bits.
func newTestRSA(bits int) testKey {
	one, e := big.NewInt(1), big.NewInt(65537)
	for {
		p, err := rand.Prime(rand.Reader, bits/2)
		if err != nil {
			panic(err)
		}
		q, err := rand.Prime(rand.Reader, bits/2)
		if err != nil {
			panic(err)
		}
		n := new(big.Int).Mul(p, q)
		d := new(big.Int).ModInverse(e, new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one)))
		if n.BitLen() != bits || d == nil {
			continue
		}
		der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: 65537})
		if err != nil {
			panic(err)
		}
		return testKey{
			algorithm: "rsa-sha256",
			record:    "v=DKIM1; p=" + base64.StdEncoding.EncodeToString(der),
			sign: func(data []byte) []byte {
				sum := sha256.Sum256(data)
				// PKCS #1 v1.5: the digest after the identifier of its algorithm.
				prefix, _ := hex.DecodeString("3031300d060960864801650304020105000420")
				size := (bits + 7) / 8
				text := append(append([]byte{0, 1}, bytes.Repeat([]byte{0xff}, size-3-len(prefix)-crypto.SHA256.Size())...), 0)
				m := new(big.Int).SetBytes(append(append(text, prefix...), sum[:]...))
				return m.Exp(m, d, n).FillBytes(make([]byte, size))
			},
		}
	}
}

// zone answers TXT lookups and records them.
type zone struct {
	mu    sync.Mutex
	asked []string
}

var policies = map[string][]string{
	"_dmarc.relaxed.test":       {"v=spf1 -all", "v=DMARC1; p=none"},
	"_dmarc.tight.relaxed.test": {"v=DMARC1; p=reject; adkim=s"},
	"_dmarc.strict.test":        {"v=DMARC1; p=reject; adkim=s; aspf=r"},
	"_dmarc.two.test":           {"v=DMARC1; p=none", "v=DMARC1; p=none; adkim=r"},
	"_dmarc.broken.test":        {"v=DMARC1; p=what?"},
}

func (z *zone) lookup(_ context.Context, name string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, name)
	selector, domain, isKey := strings.Cut(name, "._domainkey.")
	record := testKeys.of(selector + "@" + domain).record
	switch {
	case strings.Contains(name, "flaky"):
		return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
	case !isKey && policies[name] != nil:
		return policies[name], nil
	case !isKey || selector == "gone":
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	switch selector {
	case "revoked":
		record = "v=DKIM1; p="
	case "two":
		return []string{record, record}, nil
	case "testing":
		record += "; t=s : y"
	case "own":
		record += "; t=s"
	case "tel":
		record += "; s=tel"
	case "long":
		record += "; n=" + strings.Repeat("x", maxTXT)
	}
	return []string{record}, nil
}

// noon is the arrival time of the recipes' emails.
var noon = time.Date(2026, 1, 5, 10, 5, 0, 0, time.UTC)

// allProofs is an Authenticator with every proof enabled.
func allProofs(z *zone) *Authenticator {
	return &Authenticator{AuthservID: "mx.home.test", DKIM: true, Lookup: z.lookup, Now: func() time.Time { return noon }}
}

func requireVerdict(t *testing.T, r recipe, address, how string, err error) {
	t.Helper()
	kind, words, _ := strings.Cut(r.verdict, ": ")
	if kind == "proved" {
		require.NoError(t, err, "%s: %s", r.name, r.why)
		require.Equal(t, words, address+" by "+how, "%s: %s", r.name, r.why)
		return
	}
	require.Error(t, err, "%s: %s: proved to be %s by %s", r.name, r.why, address, how)
	var refusal *Error
	require.ErrorAs(t, err, &refusal, r.name)
	require.Contains(t, refusal.Reason, words, "%s: %s", r.name, r.why)
	require.Equal(t, kind == "undecided", refusal.Undecided, "%s: %s", r.name, refusal.Reason)
	require.Empty(t, address+how, r.name)
	require.NotContains(t, fmt.Sprintf("%q", refusal.Reason), `\x`, "%s: safe for a terminal", r.name)
}

// senderBy returns the proved sender. A doubt counts as a refusal.
func senderBy(a *Authenticator, ctx context.Context, raw []byte) (address, how string, err error) { //nolint:revive // as a method would
	p, err := a.Prove(ctx, raw)
	if doubt := map[Doubt]string{NoSubject: "it has no Subject field", NoDate: "it has no Date field", OtherSender: "its Sender field differs from its From field", Repeated: "it has two of a field that may occur once"}[p.Doubt]; doubt != "" {
		return "", "", refuse("%s", doubt)
	}
	return p.Sender, p.How, err
}
