package receipt_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/receipt"
)

// Keys of tests only. The signature is deterministic, so that the golden
// receipt below stays the same.
const (
	testPrivate = "PRIVATE+KEY+home.example.org+3bc3b73a+AQcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"
	testName    = "home.example.org"
)

var issued = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func testSigner(t testing.TB) *receipt.Signer {
	t.Helper()
	s, err := receipt.NewSigner(testPrivate)
	require.NoError(t, err)
	return s
}

func testVerifier(t testing.TB) *receipt.Verifier {
	t.Helper()
	v, err := testSigner(t).Verifier()
	require.NoError(t, err)
	v.Now = func() time.Time { return issued }
	return v
}

func testFacts() approval.ReceiptFacts {
	return approval.ReceiptFacts{
		Gate: testName, Workspace: "personal", RequestID: "a7f3b2c1d4e5f6a7",
		RequestSHA256: approval.Digest([]byte("q")), PendingSHA256: approval.Digest([]byte("p")),
		Tool: "x_post", ActionType: "send_message", ArgsSHA256: approval.Digest([]byte("{}")),
		DecisionType: "approved", By: "ricardo", Via: "telegram",
		Issued: issued, Expires: issued.Add(5 * time.Minute),
	}
}

func issue(t testing.TB, f approval.ReceiptFacts) string {
	t.Helper()
	r, err := testSigner(t).Issue(f)
	require.NoError(t, err)
	return r
}

func TestGolden(t *testing.T) {
	want := `permesso receipt v1
gate: home.example.org
workspace: personal
request_id: a7f3b2c1d4e5f6a7
request_sha256: 8e35c2cd3bf6641bdb0e2050b76932cbb2e6034a0ddacc1d9bea82a6ba57f7cf
pending_sha256: 148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940
tool: x_post
action_type: send_message
args_sha256: 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a
decision: approved
by: ricardo
via: telegram
rule: ""
issued: 2026-11-21T12:00:00.000000000Z
expires: 2026-11-21T12:05:00.000000000Z
audience: ""

— home.example.org O8O3OtEU0tQ1AtUZ3mCJy9gmkM6st3rA6q7giJaRsmJ8GZnzjGmV43Om6YaZZAhh+/HhPe3kJbbxm57T7EDTS31BMwI=
`
	require.Equal(t, want, issue(t, testFacts()), "receipts are kept for years, so the format must not change")
}

// Receipts of earlier versions have as many digits as needed.
func TestTimesOfEarlierVersions(t *testing.T) {
	text, _, _ := strings.Cut(issue(t, testFacts()), "\n\n")
	before := strings.ReplaceAll(text, ".000000000Z", "Z") + "\n\n" +
		"— home.example.org O8O3OqkbA9Q4db3EuDnVp5e0R5MxiPv4bQi2pxHYFZLoCfm/71Vp2HxgPifCn5xkydsOSMo6ACmYE7J5FOl+2jMFtwI=\n"
	got, err := testVerifier(t).Parse(before)
	require.NoError(t, err)
	require.Equal(t, testFacts(), got)
	for _, short := range []string{"12:00:00Z", "12:00:00.12Z"} {
		old := strings.Replace(text, "12:00:00.000000000Z", short, 1)
		f, err := testVerifier(t).Parse(sign(t, strings.Replace(old, ".000000000Z", "Z", 1)+"\n"))
		require.NoError(t, err)
		require.Equal(t, testFacts().Expires, f.Expires)
	}
}

func TestIssueThenParse(t *testing.T) {
	f := testFacts()
	f.By, f.Rule = "Zoë \"the\" boss\nvia: forged", "\u202eevil\u2028"
	f.Issued = f.Issued.Add(123456789).In(time.FixedZone("CET", 3600))
	got, err := testVerifier(t).Parse(issue(t, f))
	require.NoError(t, err)
	f.Issued = f.Issued.UTC()
	require.Equal(t, f, got)
}

func TestIssueSetsGate(t *testing.T) {
	f := testFacts()
	f.Gate = ""
	require.Equal(t, issue(t, testFacts()), issue(t, f))
}

func TestValuesCannotForgeALine(t *testing.T) {
	for _, evil := range []string{
		"x\nvia: cli", "x\r\nvia: cli", "\n\n— home.example.org AAAA\n", "\x85via", "a\u2028b", "\u202e", " lead", "trail ",
		`"quoted"`, `"`, "\x00", "\xff\xfe", "\t", "a\u00adb", "", "\u3164",
	} {
		f := testFacts()
		f.Rule = evil
		r := issue(t, f)
		require.Equal(t, strings.Count(issue(t, testFacts()), "\n"), strings.Count(r, "\n"), "%q", evil)
		text, _, _ := strings.Cut(r, "\n\n")
		for i := range len(text) {
			require.True(t, text[i] == '\n' || text[i] >= ' ' && text[i] <= '~', "%q must be printable ASCII", evil)
		}
		got, err := testVerifier(t).Parse(r)
		require.NoError(t, err, "%q", evil)
		require.Equal(t, f, got)
	}
}

func TestIssueRefuses(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(f *approval.ReceiptFacts)
	}{
		{"another gate's name", func(f *approval.ReceiptFacts) { f.Gate = "elsewhere" }},
		{"no workspace", func(f *approval.ReceiptFacts) { f.Workspace = "" }},
		{"no request", func(f *approval.ReceiptFacts) { f.RequestID = "" }},
		{"no arguments' digest", func(f *approval.ReceiptFacts) { f.ArgsSHA256 = "" }},
		{"no decision", func(f *approval.ReceiptFacts) { f.DecisionType = "" }},
		{"no time of issue", func(f *approval.ReceiptFacts) { f.Issued = time.Time{} }},
		{"no expiry", func(f *approval.ReceiptFacts) { f.Expires = time.Time{} }},
		{"expires before it was issued", func(f *approval.ReceiptFacts) { f.Expires = f.Issued.Add(-1) }},
		{"a year that RFC 3339 cannot write", func(f *approval.ReceiptFacts) { f.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"too long", func(f *approval.ReceiptFacts) { f.Rule = strings.Repeat("x", 64<<10) }},
	} {
		f := testFacts()
		c.change(&f)
		r, err := testSigner(t).Issue(f)
		require.Error(t, err, c.why)
		require.Empty(t, r, c.why)
	}
	_, err := new(receipt.Signer).Issue(testFacts())
	require.Error(t, err, "the zero Signer")
}

// sign signs any text with the test's key, to reach the checks after the signature.
func sign(t testing.TB, text string) string {
	t.Helper()
	s, err := note.NewSigner(testPrivate)
	require.NoError(t, err)
	msg, err := note.Sign(&note.Note{Text: text}, s)
	require.NoError(t, err)
	return string(msg)
}

func TestParseRefusesOtherTexts(t *testing.T) {
	good, _, _ := strings.Cut(issue(t, testFacts()), "\n\n")
	good += "\n"
	_, err := testVerifier(t).Parse(sign(t, good))
	require.NoError(t, err)

	for _, c := range []struct{ why, old, repl string }{
		{"another version", "receipt v1", "receipt v2"},
		{"a line missing", "via: telegram\n", ""},
		{"a duplicate line", "via: telegram\n", "via: telegram\nvia: telegram\n"},
		{"two lines swapped", "by: ricardo\nvia: telegram\n", "via: telegram\nby: ricardo\n"},
		{"an unknown line", "via: telegram\n", "via: telegram\nnote: hello\n"},
		{"an additional line at the end", "audience: \"\"\n", "audience: \"\"\nmore: x\n"},
		{"an empty line at the end", "audience: \"\"\n", "audience: \"\"\n\n"},
		{"another case", "via: ", "Via: "},
		{"an additional blank", "via: telegram", "via:  telegram"},
		{"a blank at the end", "via: telegram", "via: telegram "},
		{"a missing blank", "via: telegram", "via:telegram"},
		{"quoted without need", "via: telegram", `via: "telegram"`},
		{"escaped differently", `rule: ""`, `rule: "\u000a"`},
		{"invalid quoting", `rule: ""`, `rule: "x`},
		{"empty without quotes", `rule: ""`, `rule: `},
		{"not ASCII", "by: ricardo", "by: ricàrdo"},
		{"must not be empty", "workspace: personal", `workspace: ""`},
		{"another zone", "expires: 2026-11-21T12:05:00.000000000Z", "expires: 2026-11-21T13:05:00+01:00"},
		{"another number of digits", "12:05:00.000000000Z", "12:05:00.0Z"},
		{"not a time", "expires: 2026-11-21T12:05:00.000000000Z", "expires: never"},
		{"the zero time", "expires: 2026-11-21T12:05:00.000000000Z", "expires: 0001-01-01T00:00:00Z"},
		{"signed for another gate", "gate: home", "gate: away"},
	} {
		changed := strings.Replace(good, c.old, c.repl, 1)
		require.NotEqual(t, good, changed, c.why)
		f, err := testVerifier(t).Parse(sign(t, changed))
		require.ErrorIs(t, err, receipt.ErrInvalid, c.why)
		require.Zero(t, f, c.why)
	}
}

func TestParseRefusesOtherSignatures(t *testing.T) {
	good := issue(t, testFacts())
	text, sig, _ := strings.Cut(good, "\n\n")
	other := otherSigner(t)
	foreign, err := note.Sign(&note.Note{Text: text + "\n"}, other)
	require.NoError(t, err)
	signer, err := note.NewSigner(testPrivate)
	require.NoError(t, err)
	both, err := note.Sign(&note.Note{Text: text + "\n"}, signer, other)
	require.NoError(t, err)
	last := good[len(good)-3] // the last digit before "=" has two unused bits

	for _, c := range []struct{ why, receipt string }{
		{"nothing", ""},
		{"no signature", text + "\n"},
		{"an empty signature", text + "\n\n"},
		{"another key's signature", string(foreign)},
		{"two signatures of different keys", string(both)},
		{"the same signature twice", good + sig},
		{"another key with the same name", strings.Replace(string(foreign), "stranger", testName, 1)},
		{"spare bits of base64 used", good[:len(good)-3] + string(last+1) + "=\n"},
		{"text at the end", good + "x"},
		{"text at the beginning", "x" + good},
		{"windows line ends", strings.ReplaceAll(good, "\n", "\r\n")},
		{"huge", good + strings.Repeat("x", 1<<20)},
	} {
		_, err := testVerifier(t).Parse(c.receipt)
		require.ErrorIs(t, err, receipt.ErrInvalid, c.why)
	}
	_, err = new(receipt.Verifier).Parse(good)
	require.ErrorIs(t, err, receipt.ErrInvalid, "the zero Verifier")
	var none *receipt.Verifier
	require.ErrorIs(t, none.Verify(good, "", "", "", ""), receipt.ErrInvalid, "no Verifier")
}

func otherSigner(t testing.TB) note.Signer {
	t.Helper()
	private, _, err := note.GenerateKey(nil, "stranger")
	require.NoError(t, err)
	s, err := note.NewSigner(private)
	require.NoError(t, err)
	return s
}

func TestVerify(t *testing.T) {
	f := testFacts()
	good := issue(t, f)
	release := f
	release.Tool = ""
	at := func(now time.Time) *receipt.Verifier {
		v := testVerifier(t)
		v.Now = func() time.Time { return now }
		return v
	}
	v := testVerifier(t)
	for _, c := range []struct {
		why  string
		got  error
		want error
	}{
		{"as issued", v.Verify(good, f.Workspace, f.RequestID, f.Tool, f.ArgsSHA256), nil},
		{"at the expiry", at(f.Expires).Verify(good, f.Workspace, f.RequestID, f.Tool, f.ArgsSHA256), nil},
		{"after the expiry", at(f.Expires.Add(1)).Verify(good, f.Workspace, f.RequestID, f.Tool, f.ArgsSHA256), receipt.ErrExpired},
		{"another workspace", v.Verify(good, "work", f.RequestID, f.Tool, f.ArgsSHA256), receipt.ErrOther},
		{"another request", v.Verify(good, f.Workspace, "b"+f.RequestID[1:], f.Tool, f.ArgsSHA256), receipt.ErrOther},
		{"another tool", v.Verify(good, f.Workspace, f.RequestID, "x_delete", f.ArgsSHA256), receipt.ErrOther},
		{"other arguments", v.Verify(good, f.Workspace, f.RequestID, f.Tool, approval.Digest([]byte("{ }"))), receipt.ErrOther},
		{"empty arguments", v.Verify(good, "", "", "", ""), receipt.ErrOther},
		{"forged", v.Verify(strings.Replace(good, "x_post", "x_wipe", 1), f.Workspace, f.RequestID, "x_wipe", f.ArgsSHA256), receipt.ErrInvalid},
		{"release-only", v.Verify(issue(t, release), f.Workspace, f.RequestID, "", f.ArgsSHA256), nil},
		{"release-only, for a tool", v.Verify(issue(t, release), f.Workspace, f.RequestID, f.Tool, f.ArgsSHA256), receipt.ErrOther},
	} {
		require.ErrorIs(t, c.got, c.want, c.why)
	}
}

func TestVerifyUsesTheClock(t *testing.T) {
	f := testFacts()
	f.Issued, f.Expires = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	v, err := testSigner(t).Verifier()
	require.NoError(t, err)
	require.ErrorIs(t, v.Verify(issue(t, f), f.Workspace, f.RequestID, f.Tool, f.ArgsSHA256), receipt.ErrExpired)
}

func TestHash(t *testing.T) {
	r := issue(t, testFacts())
	require.Equal(t, approval.Digest([]byte(r)), receipt.Hash(r))
	require.NotEqual(t, receipt.Hash(r), receipt.Hash(r+"\n"))
}

func TestEveryFlippedBitIsDetected(t *testing.T) {
	good := []byte(issue(t, testFacts()))
	v := testVerifier(t)
	for i := range good {
		for _, bit := range []byte{1, 2, 0x20, 0x80} {
			good[i] ^= bit
			_, err := v.Parse(string(good))
			require.ErrorIs(t, err, receipt.ErrInvalid, "byte %d, bit %#x", i, bit)
			good[i] ^= bit
		}
	}
}

func TestFactsRoundTrip(t *testing.T) {
	s, v := testSigner(t), testVerifier(t)
	rapid.Check(t, func(rt *rapid.T) {
		f := testFacts()
		for _, p := range []*string{&f.Workspace, &f.RequestID, &f.ArgsSHA256, &f.DecisionType} {
			*p = rapid.StringN(1, 20, -1).Draw(rt, "required")
		}
		for _, p := range []*string{&f.RequestSHA256, &f.PendingSHA256, &f.Tool, &f.ActionType, &f.By, &f.Via, &f.Rule, &f.Audience} {
			*p = rapid.OneOf(rapid.String(), rapid.StringMatching(`[ "\\\n:ax]{0,4}`)).Draw(rt, "free")
		}
		r, err := s.Issue(f)
		require.NoError(rt, err)
		got, err := v.Parse(r)
		require.NoError(rt, err)
		require.Equal(rt, f, got)
	})
}

// FuzzReceipt: parsing never panics, an issued receipt parses to the same facts, and
// changing any byte makes it invalid.
func FuzzReceipt(f *testing.F) {
	good := issue(f, testFacts())
	f.Add(good, "by", "rule", 5, byte(1))
	f.Add("", "a\nvia: cli", "\"", 400, byte(0x80))
	f.Add(strings.Replace(good, "\n\n", "\n\n\n", 1), "\xff", " x ", len(good)-3, byte(2))
	s, v := testSigner(f), testVerifier(f)
	f.Fuzz(func(t *testing.T, wild, by, rule string, at int, flip byte) {
		if got, err := v.Parse(wild); err == nil {
			again, err := s.Issue(got)
			require.NoError(t, err)
			require.Equal(t, wild, again, "the same facts give the same receipt")
		}
		facts := testFacts()
		facts.By, facts.Rule = by, rule
		r, err := s.Issue(facts)
		if err != nil {
			require.Greater(t, len(by)+len(rule), 10<<10, "only too long texts are refused")
			return
		}
		got, err := v.Parse(r)
		require.NoError(t, err)
		require.Equal(t, facts, got)
		if flip == 0 {
			return
		}
		changed := []byte(r)
		changed[uint(at)%uint(len(changed))] ^= flip
		_, err = v.Parse(string(changed))
		require.ErrorIs(t, err, receipt.ErrInvalid)
	})
}
