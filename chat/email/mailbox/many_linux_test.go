package mailbox

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

func likelyAnswer(header []byte) bool { return bytes.Contains(header, []byte("appr_")) }

// manyTaken counts the emails that were taken, and remembers when which answer was.
type manyTaken struct {
	mu      sync.Mutex
	n       int
	answers map[string]int // by subject: how many were taken before it
}

func (m *manyTaken) take(in Incoming) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if subject := subjectOf(in); strings.HasPrefix(subject, "answer") {
		m.answers[subject] = m.n
	}
	m.n++
	return nil
}

func (m *manyTaken) taken() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

// before waits for an answer, and returns how many emails were taken before it.
func (m *manyTaken) before(t *testing.T, i int) (n int) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() (ok bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		n, ok = m.answers[fmt.Sprint("answer ", i)]
		return ok
	}, testTimeout, time.Millisecond, "answer %d", i)
	t.Logf("answer %d after %v, behind %d emails", i, time.Since(start).Round(time.Millisecond), n)
	return n
}

func (m *manyTaken) all(t *testing.T, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.n == want
	}, 10*testTimeout, 10*time.Millisecond, "not all of %d emails were taken", want)
}

// TestAnswerBehindManyEmails: of a full mailbox, the answers come first, at the first start and after
// a pause. The others are taken as well, and a new answer does not wait for them.
func TestAnswerBehindManyEmails(t *testing.T) {
	n, arrived := mailserver.Recent(), make(chan struct{}, 1)
	for name, box := range map[string]func(v *mailserver.Servers, state State) func(*mailboxRun) Mailbox{
		"IMAP": func(v *mailserver.Servers, state State) func(*mailboxRun) Mailbox {
			return dovecotMailbox(v, mailserver.Gate, state, func(b *IMAP) { b.Likely = likelyAnswer })
		},
		"maildir": func(v *mailserver.Servers, state State) func(*mailboxRun) Mailbox {
			return func(r *mailboxRun) Mailbox {
				return &Maildir{Path: v.Maildir(mailserver.Gate), State: state, Likely: likelyAnswer, Report: r.report, Changes: arrived}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, state := mailserver.Start(t), &memoryState{}
			drop := func(i int) {
				v.Drop(t, mailserver.Gate, mailserver.Reply{Subject: fmt.Sprint("answer ", i), InReplyTo: "<appr_a7f3b2c1d4e5f6a7.x@gate.test>", Text: "1\n"}.Mail())
			}
			v.Fill(t, mailserver.Gate, n/2)
			drop(1)
			v.Fill(t, mailserver.Gate, n/2)
			drop(2)
			m := &manyTaken{answers: map[string]int{}}
			r := run(t, m.take, box(v, state))
			require.Zero(t, m.before(t, 1))
			require.Equal(t, 1, m.before(t, 2))
			m.all(t, n+2)
			r.stop()

			v.Fill(t, mailserver.Gate, n)
			drop(3)
			m = &manyTaken{answers: map[string]int{}}
			var once sync.Once
			run(t, func(in Incoming) error {
				if m.taken() == 2*lookInterval {
					once.Do(func() { drop(4); arrived <- struct{}{} }) // while the others are taken
				}
				return m.take(in)
			}, box(v, state))
			require.Zero(t, m.before(t, 3))
			require.Less(t, m.before(t, 4), n)
			m.all(t, n+2)
		})
	}
}
