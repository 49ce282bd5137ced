package email

import (
	"bytes"
	"net/mail"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// sampleToken is the token of ann's card in the samples.
const sampleToken = "7cj3vlvrmd357pmgyj3q65r564"

var pendingDigest = regexp.MustCompile(`"pending_sha256":"[0-9a-f]{64}"`)

// sample is a file that the first version of the channel wrote, for the pending request as it is in this test.
func (w *rig) sample(name string, k approval.Key) []byte {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "first", name))
	require.NoError(w.t, err)
	waiting, err := w.Viewer.Waiting(w.t.Context(), []string{k.Workspace})
	require.NoError(w.t, err)
	for _, p := range waiting {
		if p.Key() == k {
			b = pendingDigest.ReplaceAll(b, []byte(`"pending_sha256":"`+p.SHA256+`"`))
		}
	}
	return b
}

func (w *rig) putSamples(record string, k approval.Key, taken ...string) {
	w.t.Helper()
	require.NoError(w.t, w.sentStore.Save(k, w.sample(record, k)))
	for _, name := range taken {
		require.NoError(w.t, w.Taken.Put(name, w.sample("taken-"+name+".json", k)))
	}
}

const (
	sampleUnclear = "f67213b122a5d442d2b93bda8cc45c56"
	sampleDecided = "dec2e4bc4992314a9c9a51bbd859e1b0"
)

// A request that the first version asked about is not asked again, and a reply decides.
func TestAskedByTheFirstVersion(t *testing.T) { synctest.Test(t, testAskedByTheFirstVersion) }

func testAskedByTheFirstVersion(t *testing.T) {
	w := newRig(t)
	w.stop()
	k := w.addPending("office", id1)
	w.putSamples("pending.json", k, sampleUnclear)
	w.start()
	w.clock.advance(time.Minute)
	require.Empty(t, w.runAndTakeSent(), "ann has the card, and bob's address was refused")
	require.Equal(t, []string{"card a7f3b2c1 to bob@human.test was refused: name the recipient: 550 no such user"}, w.alerts)

	card := parsedEmail{subject: "x [appr_" + id1 + "]", header: mail.Header{
		"Reply-To": {w.Addressing.Address(sampleToken)}, "Message-Id": {"<appr_a7f3b2c1d4e5f6a7.5zuaoob7od5jq@gate.test>"},
	}}
	again := replyTo(card, annMail, "hm")
	again.Name = "test 1"
	taken, _ := w.deliver(again)
	require.Equal(t, Taken{Status: Duplicate, Key: k}, taken)
	for _, answered := range []int{1, 1, 0} { // the first of three was answered by the first version
		_, answers := w.deliver(replyTo(card, annMail, "hm"))
		require.Len(t, answers, answered)
	}
	taken, answers := w.deliver(replyTo(card, annMail, "3"))
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, "Re: 🔐 a7f3b2c1 · office · x_post · \"Meeting at 5\" -> x.com/ricardo · 12:05 UTC [appr_"+id1+"]", w.onlyEmail(answers).subject)
}

// An answer that the first version saved is sent, and its reply is not taken twice.
func TestDecidedByTheFirstVersion(t *testing.T) { synctest.Test(t, testDecidedByTheFirstVersion) }

func testDecidedByTheFirstVersion(t *testing.T) {
	w := newRig(t)
	w.stop()
	k := w.addPending("office", id1)
	w.putSamples("decided.json", k, sampleUnclear, sampleDecided)
	w.start()
	require.Empty(t, w.runAndTakeSent(), "not at once: an earlier attempt may have ended the process")
	w.clock.advance(10 * time.Second)
	answer := w.onlyEmail(w.runAndTakeSent())
	require.True(t, strings.HasPrefix(answer.text, "🔐 Denied: post "), answer.text)
	require.Equal(t, "<2@human.test>", answer.header.Get("In-Reply-To"))
	stored, _ := w.storedCard(k, annMail)
	require.Len(t, stored.Secrets, 4)
	w.restart()
	w.clock.advance(10 * time.Second)
	require.Empty(t, w.runAndTakeSent())
}

// An outcome that the first version did not send is sent. One that it sent is not, and the record is kept.
func TestSettledByTheFirstVersion(t *testing.T) { synctest.Test(t, testSettledByTheFirstVersion) }

func testSettledByTheFirstVersion(t *testing.T) {
	w := newRig(t)
	w.stop()
	closed, open, sent := w.addPending("home", "00000000000000bb"), w.addPending("home", "00000000000000cc"), w.addPending("home", "00000000000000dd")
	w.putSamples("closed.json", closed)
	w.putSamples("settled.json", open)
	notClosed := bytes.ReplaceAll(w.sample("closed.json", sent), []byte(`,"closed":"2026-11-21T12:00:00Z"`), nil)
	require.NotEqual(t, w.sample("closed.json", sent), notClosed)
	require.NoError(t, w.sentStore.Save(sent, notClosed))
	for _, k := range []approval.Key{closed, open, sent} {
		w.writeRecord(k, approval.StatusDenied)
	}
	w.start()
	outcome := w.onlyEmail(w.runAndTakeSent())
	require.Equal(t, "<appr_00000000000000cc.jvmgvlnvhpqkv@gate.test>", outcome.header.Get("In-Reply-To"))
	require.Equal(t, "🔐 00000000 · denied · by bob (terminal)\n", outcome.text)
	w.clock.advance(29 * 24 * time.Hour)
	require.Empty(t, w.runAndTakeSent())
	for _, k := range []approval.Key{closed, open, sent} {
		b, err := w.sentStore.Load(k)
		require.NoError(t, err)
		require.True(t, bytes.Contains(b, []byte(`"closed"`)))
	}
	w.clock.advance(2 * 24 * time.Hour)
	w.runAndTakeSent()
	_, err := w.sentStore.Load(closed)
	require.Error(t, err)
}
