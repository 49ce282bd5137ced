package config_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

const labKey = "Mu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU="

func TestParseProofs(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(`
[provers.lab]
public_key = "`+labKey+`"
[tools.script]
capability = "mail:send"
args = { code = "program", to = "recipients", cc = "recipients", file = "path" }
[[rules]]
name = "deny-blocked-recipients"
match = { tool = "script" }
outcome = "deny"
unless_proven = [{ domain = "email", op = "send", at_most = 0, of = { recipients = "ceo@example.com" } }]
[[rules]]
name = "auto-pass-internal"
match = { tool = "script" }
outcome = "allow"
when_proven = [
  { domain = "email", op = "send", only = { recipients = ["bob@example.com", "ann@example.com"] } },
  { domain = "email", unique = "recipients" },
  { domain = "email", at_most = 10 },
  { domain = "file", under = { path = "/srv/out" } },
  { domain = "money", op = "pay", sum_at_most = "20.00", currency = "EUR" },
  { domain = "money", sum_at_most = 20, currency = "USDC" },
]
`))
	require.NoError(t, err)
	key, err := base64.StdEncoding.DecodeString(labKey)
	require.NoError(t, err)
	require.Equal(t, facts.Provers{"lab": ed25519.PublicKey(key)}, c.Provers)
	require.Equal(t, map[string]approval.Argument{
		"code": {Type: "program"}, "to": {Type: "recipients"}, "cc": {Type: "recipients"}, "file": {Type: "path"},
	}, c.Tools["script"].Args)
	require.Equal(t, []policy.Rule{
		{
			Name: "deny-blocked-recipients", Tool: policy.Names{"script"}, Outcome: approval.Deny,
			UnlessProven: []policy.Clause{{Domain: "email", Op: "send", Kind: policy.AtMost, Arg: "recipients", Values: []string{"ceo@example.com"}}},
		},
		{
			Name: "auto-pass-internal", Tool: policy.Names{"script"}, Outcome: approval.Allow,
			WhenProven: []policy.Clause{
				{Domain: "email", Op: "send", Kind: policy.Only, Arg: "recipients", Values: []string{"bob@example.com", "ann@example.com"}},
				{Domain: "email", Kind: policy.Unique, Arg: "recipients"},
				{Domain: "email", Kind: policy.AtMost, Max: 10},
				{Domain: "file", Kind: policy.Under, Arg: "path", Values: []string{"/srv/out"}},
				{Domain: "money", Op: "pay", Kind: policy.SumAtMost, Sum: "20.00", Currency: "EUR"},
				{Domain: "money", Kind: policy.SumAtMost, Sum: "20", Currency: "USDC"},
			},
		},
	}, c.Rules)
	shown := settings(c)
	require.Equal(t, `provers.lab.public_key = "`+labKey+`"`, shown["provers.lab.public_key"].String())
	require.Equal(t, `"recipients"`, shown["tools.script.args.to"].Text())
	require.Equal(t, "unique = recipients", fmt.Sprint("unique = ", shown["rules[2].when_proven[2].unique"].Value))
}

func TestProofIssues(t *testing.T) {
	const tool = "tools.t.trust = false\n[[rules]]\nmatch = { tool = \"t\" }\n"
	const clauses = "\nhint: a list of clauses: [{ domain = \"mail\", op = \"send\", only = { recipient = [\"ann@example.org\"] } }]"
	const sum = "\nhint: sum_at_most = \"20.00\", currency = \"EUR\""
	const atMost = "\nhint: at_most = 10, or at_most = 0 with of = { recipient = \"boss@example.org\" }"
	for _, c := range []struct{ why, file, want string }{
		{"when_proven in a deny rule", tool + "outcome = \"deny\"\nwhen_proven = [{ domain = \"mail\", at_most = 1 }]", `p.toml:5:1: when_proven belongs to allow rules; a deny or ask rule takes unless_proven`},
		{"unless_proven in an allow rule", tool + "outcome = \"allow\"\nunless_proven = [{ domain = \"mail\", at_most = 1 }]", `p.toml:5:1: unless_proven belongs to deny and ask rules; an allow rule takes when_proven`},
		{"no clauses", tool + "outcome = \"allow\"\nwhen_proven = []", "p.toml:5:1: when_proven has no clause" + clauses},
		{"a string", tool + "outcome = \"allow\"\nwhen_proven = [\"pol.only([\"]", "p.toml:5:16: when_proven must hold tables, not a string" + clauses},
		{"no domain", tool + "outcome = \"allow\"\nwhen_proven = [{ at_most = 1 }]", "p.toml:5:16: clause has no domain\nhint: domain = \"mail\""},
		{"no condition", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"mail\" }]", "p.toml:5:16: clause has no condition: only, under, unique, at_most or sum_at_most" + clauses},
		{"two conditions", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"mail\", at_most = 1, unique = \"to\" }]", "p.toml:5:35: a clause has one condition, not unique and at_most\nhint: write two clauses"},
		{"an unknown condition", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"mail\", onlys = { to = \"a@x\" } }]", "p.toml:5:16: clause has no condition: only, under, unique, at_most or sum_at_most" + clauses + "\np.toml:5:35: unknown key \"onlys\"\nhint: did you mean \"only\"?"},
		{"of without at_most", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"mail\", unique = \"to\", of = { to = \"a@x\" } }]", "p.toml:5:50: of belongs to at_most" + atMost},
		{"two arguments", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"mail\", only = { to = \"a@x\", cc = \"b@x\" } }]", "p.toml:5:35: only must have exactly one argument\nhint: only = { recipient = [\"ann@example.org\"] }"},
		{"an invalid address", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"mail\", only = { to = \"Bob <b@x>\" } }]", `p.toml:5:16: "Bob <b@x>" is not a valid value of to`},
		{"a path out of the folder", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"file\", under = { path = \"../x\" } }]", `p.toml:5:16: "../x" is not a valid folder: it must not leave itself with .., or have a pattern, a backslash or invisible characters`},
		{"a negative number", tool + "outcome = \"deny\"\nunless_proven = [{ domain = \"mail\", at_most = -1 }]", "p.toml:5:47: at_most must be 0 to 1000000" + atMost},
		{"an amount that is counted, not added", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", at_most = 20, of = { amount = \"20\" } }]", "p.toml:5:16: at_most = 20 counts how often the amount 20 occurs: sum_at_most limits the sum of all amounts" + sum},
		{"amounts, another word for it", tool + "outcome = \"deny\"\nunless_proven = [{ domain = \"money\", at_most = 0, of = { Amounts = \"500\" } }]", "p.toml:5:18: at_most = 0 counts how often the amount 500 occurs: sum_at_most limits the sum of all amounts" + sum},
		{"a sum without a currency", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = \"20\" }]", "p.toml:5:16: sum_at_most needs the currency of the amounts, such as EUR" + sum},
		{"a sum that is rounded", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = 20.00, currency = \"EUR\" }]", "p.toml:5:50: sum_at_most must be a string, not a decimal number" + sum},
		{"a sum with its currency", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = \"20 EUR\", currency = \"EUR\" }]", "p.toml:5:16: sum_at_most limits the sum of all amounts to a number such as 20.00" + sum},
		{"a sum with a comma", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = \"20,00\", currency = \"EUR\" }]", "p.toml:5:16: sum_at_most limits the sum of all amounts to a number such as 20.00" + sum},
		{"a negative sum", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = -1, currency = \"EUR\" }]", "p.toml:5:16: sum_at_most limits the sum of all amounts to a number such as 20.00" + sum},
		{"an exponent", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = \"2e1\", currency = \"EUR\" }]", "p.toml:5:16: sum_at_most limits the sum of all amounts to a number such as 20.00" + sum},
		{"a sign as currency", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", sum_at_most = \"20\", currency = \"€\" }]", "p.toml:5:67: currency must be 2 to 10 letters and digits" + sum},
		{"a currency without a sum", tool + "outcome = \"allow\"\nwhen_proven = [{ domain = \"money\", at_most = 2, currency = \"EUR\" }]", "p.toml:5:49: currency belongs to sum_at_most" + sum},

		{"no key", "[provers.lab]", "p.toml:1:10: prover \"lab\" has no key\nhint: " + keyHint},
		{"two keys", "[provers.lab]\npublic_key = \"x\"\npublic_key_file = \"/x\"", "p.toml:3:1: public_key and public_key_file must not both be set\nhint: remove one of them"},
		{"a private key", "[provers.lab]\nprivate_key = \"hunter2\"", "p.toml:1:10: prover \"lab\" has no key\nhint: " + keyHint + "\np.toml:2:1: private_key: secrets are not allowed in this file\nhint: put it into a separate file that only the daemon can read: private_key_file = \"/path\""},
		{"an invalid key", "[provers.lab]\npublic_key = \"hunter2\"", "p.toml:2:14: public_key is not an Ed25519 public key\nhint: " + keyHint},
		{"a key too short", "[provers.lab]\npublic_key = \"AAAA\"", "p.toml:2:14: public_key is not an Ed25519 public key\nhint: " + keyHint},
		{"a low-order key", "[provers.lab]\npublic_key = \"" + strings.Repeat("A", 43) + "=\"", "p.toml:2:14: public_key is a weak (low-order) public key\nhint: " + keyHint},
		{"a missing file", "[provers.lab]\npublic_key_file = \"/nowhere/x\"", "p.toml:2:19: public_key_file: stat /nowhere/x: no such file or directory\nhint: " + keyHint},
		{"a relative path", "[provers.lab]\npublic_key_file = \"x\"", "p.toml:2:19: public_key_file must be an absolute path"},
		{"not a regular file", "[provers.lab]\npublic_key_file = \"/dev/zero\"", "p.toml:2:19: public_key_file: is not a regular file\nhint: " + keyHint},
		{"the same key twice", "[provers.a]\npublic_key = \"" + labKey + "\"\n[provers.b]\npublic_key = \"" + labKey + "\"", "p.toml:3:10: prover \"a\" already has this key\nhint: each key belongs to one prover"},
		{"an invalid name", "[provers.\"A b\"]\npublic_key = \"" + labKey + "\"", "p.toml:1:10: prover \"A b\": a name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit"},
	} {
		_, err := config.Parse("p.toml", []byte(c.file))
		require.Equal(t, c.want, printed(err), c.why)
	}
}

const keyHint = "the 32 bytes of an Ed25519 key in base64, or a file made by: openssl pkey -in prover.key -pubout"

// A deny rule with unless_proven does not allow the tool in an admin workspace.
func TestConditionalDenyDoesNotProtectAdminWorkspace(t *testing.T) {
	_, err := config.Parse("p.toml", []byte("[workspaces.root]\nadmin = true\n[tools.web]\ncapability = \"network:http\"\n"+
		"[[rules]]\noutcome = \"deny\"\nmatch = { tool = \"web\" }\nunless_proven = [{ domain = \"host\", at_most = 1 }]"))
	require.Contains(t, printed(err), "may read public sources")
}

func TestProverKeyFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		require.NoError(t, os.Chmod(path, mode))
		return "[provers.lab]\npublic_key_file = \"" + path + "\""
	}
	const spki = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAMu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU=\n-----END PUBLIC KEY-----\n"
	for why, file := range map[string]string{
		"base64":          write("a", labKey+"\n", 0o644),
		"without padding": write("b", strings.TrimRight(labKey, "="), 0o600),
		"openssl's":       write("c", spki, 0o444),
	} {
		c, err := config.Parse("p.toml", []byte(file))
		require.NoError(t, err, why)
		require.Equal(t, labKey, base64.StdEncoding.EncodeToString(c.Provers["lab"]), why)
	}
	for why, c := range map[string]struct{ file, want string }{
		"other users may change it": {write("d", labKey, 0o664), "other users may change this file: chmod go-w"},
		"with a private key":        {write("e", "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n", 0o600), "content is not an Ed25519 public key"},
		"with nothing":              {write("f", "", 0o600), "content is not an Ed25519 public key"},
		"too long":                  {write("g", strings.Repeat("A", 5000), 0o600), "not a file with one key"},
	} {
		_, err := config.Parse("p.toml", []byte(c.file))
		require.Contains(t, printed(err), c.want, why)
		require.NotContains(t, printed(err), "MC4CAQ", "the error quotes nothing of the file")
	}
}

// For every refused key, a fixed signature, made without a private key, verifies for
// some message. Every encoding of such a point is refused.
func TestLowOrderKeysAreRefused(t *testing.T) {
	signature := make([]byte, ed25519.SignatureSize)
	signature[0] = 1 // the neutral point, and zero
	for _, point := range []string{
		strings.Repeat("00", 32), "01" + strings.Repeat("00", 31), "ec" + strings.Repeat("ff", 30) + "7f",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ed" + strings.Repeat("ff", 30) + "7f", "ee" + strings.Repeat("ff", 30) + "7f",
	} {
		for _, sign := range []byte{0, 0x80} {
			key, err := hex.DecodeString(point)
			require.NoError(t, err)
			key[31] |= sign
			_, err = config.Parse("p.toml", []byte("[provers.lab]\npublic_key = \""+base64.StdEncoding.EncodeToString(key)+"\""))
			require.Contains(t, printed(err), "is a weak (low-order) public key", point)
			forged := false
			for n := range 200 {
				forged = forged || ed25519.Verify(key, fmt.Appendf(nil, "message %d", n), signature)
			}
			if sign == 0 {
				require.True(t, forged, "%s is not a low-order point", point)
			}
		}
	}
}
