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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// believed is a SenderVerifier that takes everything for ann's.
type believed struct{}

func (believed) Sender(context.Context, []byte) (string, string, error) {
	return annMail, "forced", nil
}

var addressFields = regexp.MustCompile(`(?im)^(from|sender|return-path|to|cc|delivered-to|x-original-to|envelope-to|reply-to|message-id|in-reply-to|references):.*\n([ \t].*\n)*`)

// readdressed is a mail as if it were ann's, in reply to her card.
func readdressed(raw []byte, card opened) []byte {
	head := "From: " + annMail + "\nTo: " + card.header.Get("Reply-To") + "\nIn-Reply-To: " + card.header.Get("Message-Id") + "\n"
	return append([]byte(head), addressFields.ReplaceAll(unixLines(raw), nil)...)
}

func lasting(p *approval.Pending) { p.ExpiresAt = p.Timestamp.Add(365 * 24 * time.Hour) }

// What others have collected decides nothing: neither as it is, nor in ann's name
// and with the live token of a card. What a machine wrote is not answered either.
func TestCorporaDecideNothing(t *testing.T) {
	all := autoCorpus(t, "bounces")
	machines := slices.Collect(maps.Keys(all))
	machines = slices.DeleteFunc(machines, func(name string) bool { return written.MatchString(name) })
	maps.Copy(all, autoCorpus(t, "mime"))
	for name, mail := range autoMails(t) { // the project's own
		if strings.HasPrefix(name, "machine-") {
			all[name] = mail
		}
	}
	w := newWorld(t)
	count := map[string]map[Status]int{"as they are": {}, "readdressed": {}}
	k := w.asks("home", id1, lasting)
	card := w.one(w.looks())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for how, raw := range map[string][]byte{"as they are": all[name], "readdressed": readdressed(all[name], card)} {
			if how == "readdressed" && strings.HasPrefix(name, "machine-") && Automatic(raw) == "" {
				continue // its sender was all that gave it away
			}
			if w.Prover = (believed{}); how == "as they are" {
				w.Prover = &Authenticator{TrustRelay: true}
			}
			in := Incoming{Name: how + name, Raw: withCRLF(raw), Size: int64(len(raw))}
			in.TooLarge = len(raw) > MaxMail
			w.clock.passes(2 * time.Hour) // nothing is kept back for having been answered before
			w.state.pages.notes[k].Cards[0].Unclear = 0
			taken, answers := w.takes(in)
			count[how][taken.Status]++
			require.Nil(t, w.decided(k), "%s %s", name, how)
			if slices.Contains(machines, name) || how == "as they are" {
				require.Empty(t, answers, "%s %s: %s", name, how, taken.Why)
			}
		}
	}
	t.Log(count)
	require.Zero(t, count["as they are"][Decided]+count["readdressed"][Decided])
	require.NotZero(t, count["readdressed"][Unclear]+count["readdressed"][Ignored])
}

// mailCases are the behaviour of earlier public gates as far as it concerns
// mails. A case passes, or stands here with the reason why it differs.
var mailCasesThatDiffer = map[string]string{
	"email.truncate/'On Tue, X wrote:\\n1'":                                                    "",
	"email.truncate/'5 npm test\\n\\nOn Tue, 3 Jan 2026 at 10:00, Bob\\n<bob@x> wrote:\\n> q'": "an attribution over two lines is one: theirs became a part of the override",
	"email.id/extract":                         "an id has 16 digits at least, and alone it opens nothing",
	"email.send/mail is delivered to the sink": "the subject is made of the operator's words, not of the agent's title; the tag is the same",
}

func TestCasesOfMails(t *testing.T) {
	for key, c := range mailCases(t) {
		differs, known := mailCasesThatDiffer[key]
		switch c.Suite {
		case "email.truncate":
			var in struct{ Body string }
			var want struct{ Kept string }
			require.NoError(t, json.Unmarshal(c.Input, &in))
			require.NoError(t, json.Unmarshal(c.Expected, &want))
			m, err := Read([]byte("From: a@b.test\r\nContent-Type: text/plain\r\n\r\n" + in.Body))
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
			require.Empty(t, (&Mail{Text: in.Text}).Refs(Addressing{}), differs)
			require.Equal(t, []Ref{{ID: id1, Where: InBody}}, (&Mail{Text: "Please approve appr_" + id1}).Refs(Addressing{}))
		case "email.send":
			var want struct {
				Subject string
				Parts   []string
			}
			require.NoError(t, json.Unmarshal(c.Expected, &want))
			w := newWorld(t)
			w.asks("home", id1, func(p *approval.Pending) { p.Agent.Title = "Test Approval" })
			card := w.one(w.looks())
			require.NotContains(t, card.subject, "Test Approval", differs)
			require.True(t, strings.HasSuffix(card.subject, " [appr_"+id1+"]"))
			require.Contains(t, card.text, `title: "Test Approval"`)
			for _, part := range want.Parts {
				require.Contains(t, string(card.raw), "Content-Type: "+part)
			}
		}
	}
}

// The replies of the end-to-end cases, as mails.
func TestCasesOfRepliesByMail(t *testing.T) {
	w := newWorld(t)
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
		k := w.asksNext("home")
		taken, _ := w.takes(letterTo(w.one(w.looks()), annMail, in.Reply))
		require.Equal(t, Decided, taken.Status, key)
		d := w.decided(k)
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
		t.Log("../shared is absent: the cases are not looked at")
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

// FuzzTake: any bytes may come in by mail, in ann's name and with her token. What
// decides is an exact answer at the beginning of a text, and nothing panics.
func FuzzTake(f *testing.F) {
	w := newWorld(f)
	k := w.asks("home", id1, lasting)
	card := w.one(w.looks())
	w.Prover = believed{}
	// The same in every process that fuzzes.
	w.state.pages.notes[k].Cards[0].Tokens = []string{TokenDigest(replyToken)}
	card.header["Reply-To"] = []string{w.Addressing.Address(replyToken)}
	for _, mail := range autoMails(f) {
		f.Add(mail)
	}
	for _, text := range []string{"1", "4 a\nb", "deny", "ok", "> 1\n\n2"} {
		f.Add(letterTo(card, annMail, text).Raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w.t = t
		w.state.taken = ledger{map[string]*taken{}, map[string]bool{}}
		w.state.pages.notes[k].Cards[0].Unclear = 0
		in := Incoming{Name: "fuzz", Raw: raw}
		taken, err := w.Take(context.Background(), in)
		require.NoError(t, err)
		if taken.Status != Decided {
			require.Nil(t, w.decided(k))
			return
		}
		require.NotNil(t, w.decided(k))
		m, err := Read(raw)
		require.NoError(t, err)
		require.Empty(t, m.Doubt)
		require.Empty(t, Automatic(raw))
		require.True(t, bytes.Contains(bytes.ToLower(raw), []byte("appr_")) || bytes.Contains(bytes.ToLower(raw), []byte("permesso+")))
		require.NoError(t, w.store.Remove(approval.DocDecision, k)) // the next one is new
	})
}
