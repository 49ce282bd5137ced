package authentic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
)

func TestSpoofs(t *testing.T) {
	all := recipes(t, "spoof")
	require.GreaterOrEqual(t, len(all), 25)
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			address, how, err := senderBy(allProofs(&zone{}), context.Background(), r.mail)
			requireVerdict(t, r, address, how, err)
		})
	}
}

func TestProved(t *testing.T) {
	for _, r := range recipes(t, "dkim") {
		t.Run(r.name, func(t *testing.T) {
			address, how, err := senderBy(allProofs(&zone{}), context.Background(), r.mail)
			requireVerdict(t, r, address, how, err)
		})
	}
}

func TestZeroValueProvesNothing(t *testing.T) {
	for _, r := range append(recipes(t, "dkim"), recipes(t, "spoof")...) {
		address, how, err := senderBy((&Authenticator{}), context.Background(), r.mail)
		require.Error(t, err, r.name)
		require.Empty(t, address+how, r.name)
	}
}

// One proof is enough.
func TestOneProofAlone(t *testing.T) {
	stated, signed := allProofs(&zone{}), allProofs(&zone{})
	stated.DKIM, signed.AuthservID = false, ""
	for _, r := range recipes(t, "dkim") {
		byServer := strings.Contains(r.verdict, "dmarc by")
		_, _, err := senderBy(stated, context.Background(), r.mail)
		require.Equal(t, byServer, err == nil, "%s: %v", r.name, err)
		_, _, err = senderBy(signed, context.Background(), r.mail)
		require.Equal(t, byServer, err != nil, "%s: %v", r.name, err)
	}
}

func TestTrustedRelay(t *testing.T) {
	relay := &Authenticator{TrustRelay: true}
	for _, r := range recipes(t, "spoof") {
		address, how, err := senderBy(relay, context.Background(), r.mail)
		switch kind, _, _ := strings.Cut(r.name, "-"); kind {
		case "dkim", "authres":
			require.NoError(t, err, r.name)
			require.Equal(t, "relay", how)
			require.Contains(t, address, "ricardo@", "the address in From")
		default:
			// An ambiguous header is still refused.
			require.Equal(t, strings.HasPrefix(r.verdict, "proved"), err == nil && r.name != "from-domain-lookalike.txt" && r.name != "from-domain-kelvin.txt", r.name)
		}
	}
	relay.AuthservID = "mx.home.test"
	for _, r := range recipes(t, "spoof") {
		if strings.Contains(r.verdict, "DMARC failed") || strings.Contains(r.verdict, "but the From field") {
			_, _, err := senderBy(relay, context.Background(), r.mail)
			require.Error(t, err, "%s: TrustRelay does not overrule the server", r.name)
		}
	}
}

// A refusal is one sentence for the operator, without content of the email.
func TestRefusals(t *testing.T) {
	for _, r := range recipes(t, "spoof") {
		_, _, err := senderBy(allProofs(&zone{}), context.Background(), r.mail)
		if err == nil {
			continue
		}
		var refusal *Error
		require.ErrorAs(t, err, &refusal)
		require.NotRegexp(t, `[.\n]$|appr_|Re: |permesso@`, refusal.Reason, r.name)
		require.NotContains(t, refusal.Reason, "\n", r.name)
		require.Less(t, len(refusal.Reason), 700, r.name)
	}
	proof := &Error{Reason: "a", hint: "b"}
	require.EqualError(t, proof, "a")
	require.Equal(t, "b", hints.Of(proof))
}

func TestLookupsPerEmail(t *testing.T) {
	ask := func(text string) []string {
		z := &zone{}
		_, _, err := senderBy(allProofs(z), context.Background(), buildRecipe(t, text))
		require.Error(t, err)
		return z.asked
	}
	rest := "To: x@home.test\nSubject: x\nDate: x\n\n1\n"
	var many, foreign string
	for i := range 20 {
		many += fmt.Sprintf("@sign d=relaxed.test s=k%d h=From:Subject key=other@x.test\n", i)
		foreign += fmt.Sprintf("@sign d=evil.test s=k%d h=From:Subject\n", i)
	}
	require.Len(t, ask(many+"From: ricardo@sub.relaxed.test\n"+rest), maxSignatures+2, "a key for each, two DMARC records")
	require.Empty(t, ask(foreign+"From: ricardo@human.test\n"+rest), "no lookup for a signature that cannot count")
	require.Empty(t, ask(many+"From: ricardo@sub.relaxed.test\nFrom: x@y.test\n"+rest), "no lookup without exactly one author")

	beside := &zone{}
	_, _, err := senderBy(allProofs(beside), context.Background(), buildRecipe(t, "@sign d=evil.test s=ed h=From:Subject\n@sign d=human.test s=ed h=From:Subject\nFrom: ricardo@human.test\n"+rest))
	require.NoError(t, err)
	require.Equal(t, []string{"ed._domainkey.human.test"}, beside.asked)

	stated := &zone{}
	_, _, err = senderBy(allProofs(stated), context.Background(), buildRecipe(t, "Authentication-Results: mx.home.test; dmarc=pass header.from=human.test\n"+foreign+"From: ricardo@human.test\n"+rest))
	require.NoError(t, err)
	require.Empty(t, stated.asked, "no lookup after a DMARC pass by the server")
}

func TestCaps(t *testing.T) {
	pass := "Authentication-Results: mx.home.test; dmarc=pass header.from=human.test\nFrom: ricardo@human.test\nSubject: x\nDate: x\n"
	for _, c := range []struct {
		more string
		why  string // "": accepted
	}{
		{strings.Repeat("X-A: b\n", maxFields-4), ""},
		{strings.Repeat("X-A: b\n", maxFields-3), "more than 500 fields"},
		{"X-A: " + strings.Repeat("b", maxReadHeader-1000) + "\n", ""},
		{"X-A: " + strings.Repeat("b", maxReadHeader) + "\n", "longer than 64 KiB"},
		{"X-A: b\n" + strings.Repeat(" b\n", maxReadHeader/3), "longer than 64 KiB"},
	} {
		_, _, err := senderBy(allProofs(&zone{}), context.Background(), buildRecipe(t, pass+c.more+"\n1\n"))
		if c.why == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.why)
	}
	_, _, err := senderBy(allProofs(&zone{}), context.Background(), buildRecipe(t, "@sign d=human.test s=ed h=From:Subject z="+strings.Repeat("x", maxSignature)+"\nFrom: ricardo@human.test\nSubject: x\nDate: x\n\n1\n"))
	require.ErrorContains(t, err, "more than 8 KiB")
}

// While DNS is down the result is undecided, and no sender is proved.
func TestUndecided(t *testing.T) {
	var good recipe
	for _, r := range recipes(t, "dkim") {
		if r.name == "signed.txt" {
			good = r
		}
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for name, lookup := range map[string]func(context.Context, string) ([]string, error){
		"temporary": func(context.Context, string) ([]string, error) { return nil, &net.DNSError{IsTemporary: true} },
		"time-out":  func(context.Context, string) ([]string, error) { return nil, context.DeadlineExceeded },
		"unknown":   func(context.Context, string) ([]string, error) { return nil, errors.New("no network") },
		"stopped":   func(ctx context.Context, _ string) ([]string, error) { return nil, context.Cause(stopped) },
		"system's":  nil,
	} {
		ctx := context.Background()
		if lookup == nil {
			ctx = stopped
		}
		a := allProofs(&zone{})
		a.Lookup = lookup
		address, _, err := senderBy(a, ctx, good.mail)
		var refusal *Error
		require.ErrorAs(t, err, &refusal, name)
		require.True(t, refusal.Undecided, "%s: %s", name, refusal.Reason)
		require.Empty(t, address, name)
	}
	deadline := allProofs(&zone{})
	deadline.Lookup = func(ctx context.Context, _ string) ([]string, error) {
		until, ok := ctx.Deadline()
		require.True(t, ok, "lookups have a timeout")
		require.LessOrEqual(t, time.Until(until), proofTimeout)
		return nil, nil
	}
	_, _, err := senderBy(deadline, context.Background(), good.mail)
	require.ErrorContains(t, err, "no valid key found")
}

func TestCanonicalDomain(t *testing.T) {
	for domain, want := range map[string]string{
		"human.test": "human.test", "HUMAN.Test": "human.test", "a-b.c1.test": "a-b.c1.test",
		"müller.test": "xn--mller-kva.test", "xn--MLLER-kva.test": "xn--mller-kva.test", "straße.test": "xn--strae-oqa.test",
		"MÜLLER.test": "", // mail programs write it in lower case
		"":            "", "test": "", "human.test.": "", ".human.test": "", "human..test": "", "-human.test": "", "hu_man.test": "",
		"192.0.2.1": "", "human.123": "", "xn--.test": "", "xn--a.test": "", "xn--human-.test": "", "müller.xn--mller-kva.test": "",
		"ｈuman.test": "", "human。test": "", "hu\u00adman.test": "", "hu\u200dman.test": "", "\xff.test": "", "\u212aite.test": "",
		"xn--strasse-.test": "", strings.Repeat("a", 64) + ".test": "", strings.Repeat("a.", 130) + "test": "",
	} {
		got, err := canonicalDomain(domain)
		require.Equal(t, want, got, domain)
		require.Equal(t, want == "", err != nil, domain)
	}
}

func TestOrganization(t *testing.T) {
	for domain, want := range map[string]string{
		"human.test": "human.test", "a.b.human.test": "human.test", "test": "", "co.uk": "", "a.human.co.uk": "human.co.uk",
		"ricardo.github.io": "ricardo.github.io", "github.io": "",
	} {
		require.Equal(t, want, organization(domain), domain)
	}
}

// The expiry of a signature is checked with our clock, not with the library's.
func TestOurClock(t *testing.T) {
	mail := buildRecipe(t, "@sign d=human.test s=ed h=From:Subject t=1767607200 x=4102444800\nFrom: ricardo@human.test\nSubject: x\nDate: x\n\n1\n")
	for now, why := range map[time.Time]string{
		noon: "", time.Unix(4102444799, 0): "", time.Unix(4102444800, 0): "has expired", time.Unix(1767607200, 0).Add(-2 * maxClockSkew): "from the future",
	} {
		a := allProofs(&zone{})
		a.Now = func() time.Time { return now }
		_, _, err := senderBy(a, context.Background(), mail)
		if why == "" {
			require.NoError(t, err, now)
			continue
		}
		require.ErrorContains(t, err, why)
	}
}

var authorLines = regexp.MustCompile(`(?im)^from[ \t]*:`)

// FuzzSender: the fuzzer has no signing key. So DKIM proves no sender except the signers
// of the seeds.
func FuzzSender(f *testing.F) {
	signers := map[string]bool{}
	for _, folder := range []string{"spoof", "dkim"} {
		for _, r := range recipes(f, folder) {
			f.Add(r.mail)
			if address, how, err := senderBy(allProofs(&zone{}), context.Background(), r.mail); err == nil && strings.HasPrefix(how, "dkim") {
				signers[address] = true
			}
		}
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		_, _, err := senderBy((&Authenticator{}), context.Background(), mail)
		require.Error(t, err)
		for _, id := range []string{"", "mx.home.test"} {
			a := allProofs(&zone{})
			a.AuthservID = id
			address, how, err := senderBy(a, context.Background(), mail)
			if err != nil {
				var refusal *Error
				require.ErrorAs(t, err, &refusal)
				require.NotContains(t, refusal.Reason, "\n")
				require.Empty(t, address+how)
				continue
			}
			requirePlain(t, mail, address)
			if domain, ok := strings.CutPrefix(how, "dkim "); ok {
				require.True(t, signers[address], "%s by %s", address, how)
				_, from, _ := strings.Cut(address, "@")
				require.Equal(t, organization(from), organization(domain))
			} else {
				require.Equal(t, "dmarc by mx.home.test", how)
				require.Equal(t, "mx.home.test", id)
			}
		}
	})
}

// requirePlain checks that there is one author, written once, in canonical form.
func requirePlain(t *testing.T, mail []byte, address string) {
	t.Helper()
	head, _, _ := strings.Cut(strings.ReplaceAll(string(mail), "\r\n", "\n"), "\n\n")
	require.Len(t, authorLines.FindAllString(head, -1), 1)
	again, err := parsePlainAddress(address)
	require.NoError(t, err)
	require.Equal(t, address, again.String())
	require.Regexp(t, `^[!-?A-~]+@[a-z0-9.-]+$`, address)
}
