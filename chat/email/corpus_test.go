package email

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// annVerifier is a senderVerifier that proves ann for every email.
type annVerifier struct{}

func (annVerifier) Prove(context.Context, []byte) (authentic.Proof, error) {
	return authentic.Proof{Sender: annMail, How: "forced", Direct: true}, nil
}

var addressFields = regexp.MustCompile(`(?im)^(from|sender|return-path|to|cc|delivered-to|x-original-to|envelope-to|reply-to|message-id|in-reply-to|references):.*\n([ \t].*\n)*`)

// asReplyFromAnn rewrites an email as if ann had sent it in reply to her card.
func asReplyFromAnn(raw []byte, card parsedEmail) []byte {
	head := "From: " + annMail + "\nTo: " + card.header.Get("Reply-To") + "\nIn-Reply-To: " + card.header.Get("Message-Id") + "\n"
	return append([]byte(head), addressFields.ReplaceAll(unixLines(raw), nil)...)
}

func longLived(p *approval.Pending) { p.ExpiresAt = p.Timestamp.Add(365 * 24 * time.Hour) }

// No collected email decides anything: neither unchanged, nor in ann's name with a valid
// token. An automatic one is not answered either.
func TestCorporaDecideNothing(t *testing.T) { synctest.Test(t, testCorporaDecideNothing) }

func testCorporaDecideNothing(t *testing.T) {
	all := autoCorpus(t, "bounces")
	machines := slices.Collect(maps.Keys(all))
	machines = slices.DeleteFunc(machines, func(name string) bool { return written.MatchString(name) })
	maps.Copy(all, autoCorpus(t, "mime"))
	for name, mail := range autoMails(t) { // the project's own
		if strings.HasPrefix(name, "machine-") {
			all[name] = mail
		}
	}
	w := newRig(t)
	count := map[string]map[Status]int{"as they are": {}, "readdressed": {}}
	k := w.addPending("home", id1, longLived)
	card := w.onlyEmail(w.runAndTakeSent())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for how, raw := range map[string][]byte{"as they are": all[name], "readdressed": asReplyFromAnn(all[name], card)} {
			if how == "readdressed" && strings.HasPrefix(name, "machine-") && automaticReason(raw) == "" {
				continue // only its sender shows that it is automatic
			}
			if w.Verifier = (annVerifier{}); how == "as they are" {
				w.Verifier = &authentic.Authenticator{TrustRelay: true}
			}
			in := mailbox.Incoming{Name: how + name, Raw: withCRLF(raw)}
			in.TooLarge = len(raw) > mailbox.MaxMail
			w.clock.advance(2 * time.Hour) // so that the limit of answers is not reached
			w.forgetUnclear()
			taken, answers := w.deliver(in)
			count[how][taken.Status]++
			require.Nil(t, w.decision(k), "%s %s", name, how)
			if slices.Contains(machines, name) || how == "as they are" {
				require.Empty(t, answers, "%s %s: %s", name, how, taken.Why)
			}
		}
	}
	t.Log(count)
	require.Zero(t, count["as they are"][Decided]+count["readdressed"][Decided])
	require.NotZero(t, count["readdressed"][Unclear]+count["readdressed"][Ignored])
}

// mailCases are cases of earlier public gates about email. A case passes, or is listed
// here with the reason why it differs.
var mailCasesThatDiffer = map[string]string{
	"email.truncate/'On Tue, X wrote:\\n1'":                                                    "",
	"email.truncate/'5 npm test\\n\\nOn Tue, 3 Jan 2026 at 10:00, Bob\\n<bob@x> wrote:\\n> q'": "an attribution on two lines is recognized; the other gate made it a part of the override",
	"email.id/extract":                         "an id has at least 16 digits, and without a token it proves nothing",
	"email.send/mail is delivered to the sink": "the subject consists of the operator's words, not of the agent's title; the tag is the same",
}

func TestCasesOfMails(t *testing.T) { synctest.Test(t, testCasesOfMails) }

func testCasesOfMails(t *testing.T) {
	for key, c := range mailCases(t) {
		differs, known := mailCasesThatDiffer[key]
		switch c.Suite {
		case "email.truncate":
			var in struct{ Body string }
			var want struct{ Kept string }
			require.NoError(t, json.Unmarshal(c.Input, &in))
			require.NoError(t, json.Unmarshal(c.Expected, &want))
			m, err := readMail([]byte("From: a@b.test\r\nContent-Type: text/plain\r\n\r\n" + in.Body))
			require.NoError(t, err)
			kept, sure := m.Answer()
			if !sure {
				kept = ""
			}
			if known && differs != "" {
				require.NotEqual(t, want.Kept, kept, "%s: does not differ any more (%s)", key, differs)
				continue
			}
			require.Equal(t, want.Kept, kept, key)
		case "email.id":
			var in struct{ Text string }
			require.NoError(t, json.Unmarshal(c.Input, &in))
			require.Empty(t, (&inboundMail{Text: in.Text}).Refs(Addressing{}), differs)
			require.Equal(t, []cardRef{{ID: id1, Where: inBody}}, (&inboundMail{Text: "Please approve appr_" + id1}).Refs(Addressing{}))
		case "email.send":
			var want struct {
				Subject string
				Parts   []string
			}
			require.NoError(t, json.Unmarshal(c.Expected, &want))
			w := newRig(t)
			w.addPending("home", id1, func(p *approval.Pending) { p.Agent.Title = "Test Approval" })
			card := w.onlyEmail(w.runAndTakeSent())
			require.NotContains(t, card.subject, "Test Approval", differs)
			require.True(t, strings.HasSuffix(card.subject, " [appr_"+id1+"]"))
			require.Contains(t, card.text, `title: "Test Approval"`)
			for _, part := range want.Parts {
				require.Contains(t, string(card.raw), "Content-Type: "+part)
			}
		}
	}
}

// The replies of the end-to-end cases, as emails.
func TestCasesOfRepliesByMail(t *testing.T) { synctest.Test(t, testCasesOfRepliesByMail) }

func testCasesOfRepliesByMail(t *testing.T) {
	w := newRig(t)
	for key, c := range mailCases(t) {
		if c.Suite != "integration" && c.Suite != "e2e" {
			continue
		}
		var in struct{ Reply string }
		var want struct {
			Decision struct{ Code, Note, Override string }
		}
		require.NoError(t, json.Unmarshal(c.Input, &in))
		require.NoError(t, json.Unmarshal(c.Expected, &want))
		k := w.addNextPending("home")
		taken, _ := w.deliver(replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, in.Reply))
		require.Equal(t, Decided, taken.Status, key)
		d := w.decision(k)
		require.Equal(t, []string{want.Decision.Code, want.Decision.Note, want.Decision.Override}, []string{d.Code, d.Note, d.Override}, key)
	}
}

type mailCase struct {
	Suite, Name     string
	Input, Expected json.RawMessage
}

func mailCases(t *testing.T) map[string]mailCase {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "rest-menu-email.json"))
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		t.Log("../shared is missing: the cases are skipped")
		return nil
	}
	require.NoError(t, err)
	var doc struct{ Cases []mailCase }
	require.NoError(t, json.Unmarshal(b, &doc))
	found := map[string]mailCase{}
	for _, c := range doc.Cases {
		found[c.Suite+"/"+c.Name] = c
	}
	require.NotEmpty(t, found)
	for key := range mailCasesThatDiffer {
		require.Contains(t, found, key)
	}
	return found
}

// FuzzTake: any bytes may come in by email, in ann's name and with her token. Only an
// exact answer at the beginning of the text decides, and nothing panics.
func FuzzTake(f *testing.F) {
	w := newRigOutside(f, func() {})
	k := w.addPending("home", id1, longLived)
	w.hints <- k
	var cards []sentMail
	waitFor(f, "the card", func() bool { cards = append(cards, w.outbox.take()...); return len(cards) > 0 })
	card := w.onlyEmail(cards)
	// The same token in every fuzzing process.
	w.stop()
	stored, _ := w.storedCard(k, annMail)
	b, err := w.sentStore.Load(k)
	require.NoError(f, err)
	require.NoError(f, w.sentStore.Save(k, bytes.ReplaceAll(b, []byte(stored.Secrets[0]), []byte(tokenDigest(replyToken)))))
	w.restart()
	w.stop() // no answer is sent
	w.Verifier = annVerifier{}
	card.header["Reply-To"] = []string{w.Addressing.Address(replyToken)}
	for _, mail := range autoMails(f) {
		f.Add(mail)
	}
	for _, text := range []string{"1", "4 a\nb", "deny", "ok", "> 1\n\n2"} {
		f.Add(replyTo(card, annMail, text).Raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w.t = t
		w.mu.Lock()
		w.handled = handledEmails{}
		w.mu.Unlock()
		in := mailbox.Incoming{Name: "fuzz", Raw: raw}
		taken, err := w.Take(context.Background(), in)
		require.NoError(t, err)
		if taken.Status != Decided {
			require.Nil(t, w.decision(k))
			return
		}
		require.NotNil(t, w.decision(k))
		m, err := readMail(raw)
		require.NoError(t, err)
		require.Empty(t, m.Doubt)
		require.Empty(t, automaticReason(raw))
		require.True(t, bytes.Contains(bytes.ToLower(raw), []byte("appr_")) || bytes.Contains(bytes.ToLower(raw), []byte("permesso+")))
		require.NoError(t, w.store.Remove(context.Background(), approval.DocDecision, k)) // for the next input
	})
}
