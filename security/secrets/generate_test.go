package secrets_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/security/secrets"
)

// sample is a text of testdata/everyday.
type sample struct{ kind, text string }

// everyday reads the texts of a file, with what stands between « and » generated.
func everyday(t testing.TB, file string, seed uint64) (all []sample) {
	t.Helper()
	b, err := os.ReadFile("testdata/everyday/" + file)
	require.NoError(t, err)
	g := generator{rand.New(rand.NewPCG(seed, 17))}
	for _, block := range strings.Split(string(b), "\n## ")[1:] {
		kind, text, _ := strings.Cut(block, "\n")
		text = placeholder.ReplaceAllStringFunc(text, func(x string) string {
			m := placeholder.FindStringSubmatch(x)
			made := g.make(m[1], m[2])
			require.NotEmpty(t, made, "%s: unknown", x)
			return made
		})
		all = append(all, sample{kind, strings.TrimSuffix(text, "\n")})
	}
	return all
}

var placeholder = regexp.MustCompile(`«(\w+)(?::([\w ]+))?»`)

// generator makes texts that look like those of people and of services.
type generator struct{ *rand.Rand }

const (
	digits  = "0123456789"
	lowers  = "abcdefghijklmnopqrstuvwxyz"
	uppers  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	letters = uppers + lowers
)

var alphabets = map[string]string{
	"an": letters + digits, "al": letters, "lo": lowers + digits, "up": uppers + digits, "dg": digits,
	"hex": digits + "abcdef", "HEX": digits + "ABCDEF", "url": letters + digits + "-_", "b64c": letters + digits + "+/",
	"b32": uppers + "234567", "bech": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
	"BECH": strings.ToUpper("qpzry9x8gf2tvdw0s3jn54khce6mua7l"),
	"b58":  "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}

var (
	people   = strings.Fields("Ann Bob Carla Dieter Elena Franz Greta Hugo Ines Jonas")
	words    = strings.Fields("blume garten sommer winter hund katze kaffee montag london summer dragon monkey tiger berlin football coffee")
	packages = strings.Fields("left-pad chalk ansi-styles lodash react serde tokio rand token-types secret-service password-hash keyring api-client auth-header")
)

func (g generator) pick(from []string) string { return from[g.IntN(len(from))] }

func (g generator) text(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[g.IntN(len(alphabet))]
	}
	return string(b)
}

func (g generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g generator) make(kind, arg string) string {
	n, _ := strconv.Atoi(arg)
	if alphabet := alphabets[kind]; alphabet != "" {
		if alphabet == digits { // numbers of orders, phones and IDs rarely begin with 0
			return g.text(digits[1:], 1) + g.text(digits, n-1)
		}
		return g.text(alphabet, n)
	}
	std := base64.StdEncoding.EncodeToString
	switch kind {
	case "pw", "pwplain":
		return g.password(kind == "pwplain", n)
	case "ph":
		return g.pick(words) + "-" + g.pick(words) + "-" + g.pick(words) + "-" + g.text(digits, 2)
	case "b64":
		return std(g.bytes(n))
	case "b64u":
		return base64.URLEncoding.EncodeToString(g.bytes(n))
	case "b64lines":
		return wrap(std(g.bytes(n)), 64)
	case "basic":
		return std([]byte(strings.ToLower(g.pick(people)) + ":" + g.password(false, 0)))
	case "jwt":
		return jwtPart(`{"alg":"HS256","typ":"JWT"}`) + "." + g.make("jwtpart", "") + "." + g.text(alphabets["url"], 43)
	case "jwtpart":
		return jwtPart(fmt.Sprintf(`{"iat":%d,"iss":"supabase","role":"service_role","sub":"%s"}`, 1700000000+g.IntN(1e7), g.text(digits, 6)))
	case "discord":
		return std([]byte(g.text("123456789", 1) + g.text(digits, 17)))[:24] + "." + g.text(alphabets["url"], 6) + "." + g.text(alphabets["url"], 38)
	case "pem":
		return string(bytes.TrimSpace(pem.EncodeToMemory(&pem.Block{Type: arg, Bytes: g.bytes(600)})))
	case "pemjson":
		b, _ := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: g.bytes(600)})))
		return strings.Trim(string(b), `"`)
	case "card":
		return g.card(arg)
	case "iban":
		return g.iban(arg)
	case "bip39":
		return strings.Join(g.phrase(n), " ")
	case "bip39lines":
		return strings.Join(g.phrase(n), "\n")
	}
	return g.harmless(kind, n)
}

func jwtPart(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// harmless makes what is no secret.
func (g generator) harmless(kind string, n int) string {
	switch kind {
	case "uuid":
		h := g.text(alphabets["hex"], 32)
		return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
	case "Name":
		return g.pick(people)
	case "date":
		return fmt.Sprintf("20%02d-%02d-%02d", 20+g.IntN(8), 1+g.IntN(12), 1+g.IntN(28))
	case "time":
		return fmt.Sprintf("%02d:%02d", g.IntN(24), g.IntN(60))
	case "phone":
		return g.pick([]string{"+49 170 ", "+39 333 ", "0171-", "+1 (415) 555-", "+43660"}) + g.text(digits, 7)
	case "ver":
		return fmt.Sprintf("%d.%d.%d", g.IntN(9), g.IntN(40), g.IntN(20))
	case "hexpairs":
		var all []string
		for range n {
			all = append(all, g.text(alphabets["hex"], 2))
		}
		return strings.Join(all, ":")
	}
	return ""
}

// password makes one as people choose them, or as generators do.
func (g generator) password(plain bool, n int) string {
	symbols := "!?%&#-_.+*"
	if plain { // without what a shell or a URL reads
		symbols = "-_."
	}
	if n == 0 && g.IntN(2) == 0 {
		w := g.pick(words)
		return strings.ToUpper(w[:1]) + w[1:] + g.text(symbols, 1) + g.text(digits, 2+g.IntN(3)) + g.text(symbols, 1)
	}
	if n == 0 {
		n = 11 + g.IntN(6)
	}
	return g.text(letters, 2) + g.text(digits, 1) + g.text(letters+digits+symbols, n-4) + g.text(letters, 1)
}

var cardForms = map[string]struct {
	prefix string
	groups []int
	sep    string
}{
	"visa": {"4", []int{16}, ""}, "visa4": {"4", []int{4, 4, 4, 4}, " "}, "mc": {"52", []int{16}, ""},
	"mcdash": {"2341", []int{4, 4, 4, 4}, "-"}, "amex4": {"37", []int{4, 6, 5}, " "},
}

// card makes a number of which the sum with each second digit doubled is a multiple of 10.
func (g generator) card(form string) string {
	f := cardForms[form]
	size := 0
	for _, n := range f.groups {
		size += n
	}
	number := f.prefix + g.text(digits, size-1-len(f.prefix))
	for _, last := range digits {
		sum := 0
		for i, d := range number + string(last) {
			x := int(d - '0')
			if (size-i)%2 == 0 {
				x = x*2/10 + x*2%10
			}
			sum += x
		}
		if sum%10 == 0 {
			number += string(last)
			break
		}
	}
	var parts []string
	for _, n := range f.groups {
		parts, number = append(parts, number[:n]), number[n:]
	}
	return strings.Join(parts, f.sep)
}

// iban makes an account number of a country; DE4 writes it in groups of four.
func (g generator) iban(arg string) string {
	account := map[string]string{
		"DE": g.text(digits, 18), "AT": g.text(digits, 16), "GB": "BARC" + g.text(digits, 14),
		"IT": g.text(uppers, 1) + g.text(digits, 22), "FR": g.text(digits, 23),
	}[arg[:2]]
	for check := range 100 {
		rest := 0
		for _, c := range account + arg[:2] + fmt.Sprintf("%02d", check) {
			if c <= '9' {
				rest = (rest*10 + int(c-'0')) % 97
			} else {
				rest = (rest*100 + int(c-'A') + 10) % 97
			}
		}
		if rest == 1 {
			all := fmt.Sprintf("%s%02d%s", arg[:2], check, account)
			if arg[2:] == "" {
				return all
			}
			return strings.Join(chunks(all, 4), " ")
		}
	}
	return ""
}

func chunks(s string, n int) (parts []string) {
	for ; len(s) > n; s = s[n:] {
		parts = append(parts, s[:n])
	}
	return append(parts, s)
}

func wrap(s string, n int) string { return strings.Join(chunks(s, n), "\n") }

// phrase makes a seed phrase as BIP-39 says: random bits, a part of their digest, 11 bits a word.
func (g generator) phrase(n int) (all []string) {
	list := strings.Fields(secrets.SeedWords)
	entropy := g.bytes(n * 4 / 3)
	digest := sha256.Sum256(entropy)
	bits := ""
	for _, b := range append(entropy, digest[0]) {
		bits += fmt.Sprintf("%08b", b)
	}
	for i := range n {
		at, _ := strconv.ParseUint(bits[11*i:11*i+11], 2, 16)
		all = append(all, list[at])
	}
	return all
}
