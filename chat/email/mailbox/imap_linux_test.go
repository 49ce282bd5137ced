package mailbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// mailbox returns an IMAP mailbox of a user of the test servers.
func dovecotMailbox(v *mailserver.Servers, user string, s State, change func(*IMAP)) func(*mailboxRun) Mailbox {
	return func(r *mailboxRun) Mailbox {
		b := &IMAP{
			Address: v.IMAPS, Username: user, Password: password(mailserver.Password), CAFile: v.CAFile,
			State: s, Report: r.report, Timeout: testTimeout, Idle: testTimeout, retryDelay: 10 * time.Millisecond,
		}
		if change != nil {
			change(b)
		}
		return b
	}
}

func mailOf(subject string) []byte {
	return mailserver.Reply{Subject: subject, Text: "1\n"}.Mail()
}

// TestIMAPAgainstDovecot tests a mailbox with a real server.
func TestIMAPAgainstDovecot(t *testing.T) {
	t.Parallel()
	v := mailserver.Start(t)

	t.Run("each email once", func(t *testing.T) {
		state := &memoryState{}
		v.Drop(t, mailserver.Gate, mailOf("old"))
		aged(t, v.Maildir(mailserver.Gate))
		r := run(t, nil, dovecotMailbox(v, mailserver.Gate, state, nil))
		r.ready()
		v.Deliver(t, mailOf("one"), "permesso+TOKEN7@gate.test")
		require.Equal(t, []string{"one"}, r.subjects(1))
		require.Contains(t, string(r.taken[0].Raw), "\r\nDelivered-To: permesso+TOKEN7@gate.test\r\n")
		require.True(t, strings.HasSuffix(string(r.taken[0].Raw), "\r\n\r\n1\r\n"))
		require.Regexp(t, `^imap [1-9]\d*/2 of [0-9a-f]{8}$`, r.taken[0].Name)
		r.stop()
		v.Drop(t, mailserver.Gate, mailOf("two"))
		r = run(t, nil, dovecotMailbox(v, mailserver.Gate, state, nil))
		r.ready()
		require.Equal(t, []string{"two"}, r.subjects(1))
		r.stop()
		seen, err := filepath.Glob(filepath.Join(v.Maildir(mailserver.Gate), "*", "*:2,*S*"))
		require.NoError(t, err)
		require.Empty(t, seen, "no email is marked")

		// Over STARTTLS.
		r = run(t, nil, dovecotMailbox(v, mailserver.Gate, state, func(b *IMAP) { b.Address, b.Security = v.IMAP, StartTLS }))
		r.ready()
		v.Drop(t, mailserver.Gate, mailOf("three"))
		require.Equal(t, []string{"three"}, r.subjects(1))
	})

	t.Run("IDLE wakes within a second", func(t *testing.T) {
		r := run(t, nil, dovecotMailbox(v, mailserver.Ann, &memoryState{}, nil))
		r.ready()
		var times []time.Duration
		for i := range 20 { // a single attempt may be slow on a busy machine
			start := time.Now()
			v.Drop(t, mailserver.Ann, mailOf(fmt.Sprint(i)))
			r.subjects(i + 1)
			if times = append(times, time.Since(start)); len(times) >= 3 && slices.Min(times) < time.Second {
				break
			}
		}
		t.Log("time from the file to take: ", times)
		require.Less(t, slices.Min(times), time.Second)
	})

	t.Run("a failed email does not delay the others", func(t *testing.T) {
		tries, state := 0, &memoryState{}
		refuse := func(m Incoming) error {
			if tries++; subjectOf(m) == "bad" && tries < 5 {
				return errors.New("no space on the disk")
			}
			return nil
		}
		r := run(t, refuse, dovecotMailbox(v, mailserver.Bob, state, nil))
		r.ready()
		v.Drop(t, mailserver.Bob, mailOf("bad"))
		v.Drop(t, mailserver.Bob, mailOf("good"))
		require.Equal(t, []string{"good", "bad"}, r.subjects(2))
		r.waitUntil("an error report", r.reported("no space on the disk"))
		r.stop()

		// … also if the daemon stops before it succeeds.
		tries = 0
		r = run(t, func(Incoming) error { return errors.New("never") }, dovecotMailbox(v, mailserver.Bob, state, nil))
		r.ready()
		v.Drop(t, mailserver.Bob, mailOf("worse"))
		r.waitUntil("an error report", r.reported("never"))
		r.stop()
		r = run(t, nil, dovecotMailbox(v, mailserver.Bob, state, nil))
		require.Equal(t, []string{"worse"}, r.subjects(1))

		// The state cannot be saved: the same Run still knows the email.
		state.refuse(errors.New("read-only"))
		v.Drop(t, mailserver.Bob, mailOf("unnoted"))
		require.Equal(t, []string{"worse", "unnoted"}, r.subjects(2))
		r.waitUntil("an error report", r.reported("read-only"))
		r.stop()
		require.Len(t, r.taken, 2)
		state.refuse(nil)
		r = run(t, nil, dovecotMailbox(v, mailserver.Bob, state, nil))
		require.Equal(t, []string{"unnoted"}, r.subjects(1), "passed on again")
	})

	t.Run("only the header of large emails", func(t *testing.T) {
		r := run(t, nil, dovecotMailbox(v, mailserver.Eve, &memoryState{}, nil))
		r.ready()
		v.Drop(t, mailserver.Eve, mailserver.Reply{Subject: "large", Text: strings.Repeat("0123456789\n", MaxMail/11)}.Mail())
		fits := mailserver.Reply{Subject: "fits"}
		fits.Text = strings.Repeat("0123456789abc\n", (MaxMail-1000)/15)
		v.Drop(t, mailserver.Eve, fits.Mail())
		r.subjects(2)
		require.True(t, r.taken[0].TooLarge)
		require.True(t, strings.HasSuffix(string(r.taken[0].Raw), "Subject: large\r\nTo: permesso@gate.test\r\n"), string(r.taken[0].Raw))
		require.False(t, r.taken[1].TooLarge)
		require.Equal(t, (MaxMail-1000)/15, strings.Count(string(r.taken[1].Raw), "0123456789abc\r\n"), "complete")
	})

	t.Run("refusals", func(t *testing.T) {
		tests := []struct {
			why       string
			change    func(*IMAP)
			temporary bool
			want      string
		}{
			{"a wrong password", func(b *IMAP) { b.Password = password("nonsense-9") }, false, "log in: "},
			{"no password", func(b *IMAP) { b.Password = nil }, false, "no password"},
			{"the password file is gone", func(b *IMAP) { b.Password = func() (string, error) { return "", os.ErrNotExist } }, false, "read the password"},
			{"the authority is not trusted", func(b *IMAP) { b.CAFile = "" }, false, "CA file"},
			{"nor with STARTTLS", func(b *IMAP) { b.CAFile, b.Address, b.Security = "", v.IMAP, StartTLS }, false, "CA file"},
			{"no such mailbox", func(b *IMAP) { b.Mailbox = "Nowhere" }, false, "open the mailbox Nowhere"},
			{"a port that begins without TLS", func(b *IMAP) { b.Address = v.IMAP }, false, "does not speak TLS"},
			{"a port that begins with TLS", func(b *IMAP) { b.Security, b.Timeout = StartTLS, 2*time.Second }, true, "set the security to tls"},
			{"no server there", func(b *IMAP) { b.Address = "127.0.0.1:1" }, true, "connection refused"},
			{"plain text beyond this machine", func(b *IMAP) { b.Address, b.Security = "192.0.2.1:143", NoTLS }, false, "to this machine only"},
		}
		for _, tt := range tests {
			b := dovecotMailbox(v, mailserver.Ann, nil, tt.change)(&mailboxRun{}).(*IMAP)
			err := b.Check(t.Context())
			var e *Error
			require.ErrorAs(t, err, &e, tt.why)
			require.Contains(t, e.Error()+"\n"+e.Hint(), tt.want, tt.why)
			require.NotContains(t, e.Error()+e.Hint(), mailserver.Password, tt.why)
			require.NotContains(t, e.Error()+e.Hint(), "nonsense", tt.why)
			require.Equal(t, tt.temporary, e.Temporary, "%s: %v", tt.why, e)
		}
		require.NoError(t, dovecotMailbox(v, mailserver.Ann, nil, nil)(&mailboxRun{}).(*IMAP).Check(t.Context()))
	})
}

// TestIMAPServerRestarts: killed, restarted, and with new numbers for all emails.
func TestIMAPServerRestarts(t *testing.T) {
	t.Parallel()
	v := mailserver.Start(t)
	state := &memoryState{}
	v.Drop(t, mailserver.Gate, mailOf("before the first start"))
	aged(t, v.Maildir(mailserver.Gate))
	r := run(t, func(m Incoming) error {
		if subjectOf(m) == "stuck" {
			return errors.New("not now")
		}
		return nil
	}, dovecotMailbox(v, mailserver.Gate, state, nil))
	r.ready()
	v.Drop(t, mailserver.Gate, mailOf("one"))
	r.subjects(1)

	v.StopDovecot()
	r.waitUntil("an error report", r.reported("connect"))
	v.Drop(t, mailserver.Gate, mailOf("while it was down"))
	v.StartDovecot(t)
	require.Equal(t, []string{"one", "while it was down"}, r.subjects(2))
	v.Drop(t, mailserver.Gate, mailOf("stuck"))
	r.waitUntil("an error report", r.reported("not now"))

	// The server moves. Existing emails are old, except the stuck one and the one that
	// came meanwhile.
	validity := r.taken[0].Name
	v.StopDovecot()
	v.IMAPForget(t, mailserver.Gate)
	v.Drop(t, mailserver.Gate, mailOf("while it moved"))
	r.mu.Lock()
	r.refuse = nil
	r.mu.Unlock()
	v.StartDovecot(t)
	require.ElementsMatch(t, []string{"one", "while it was down", "while it moved", "stuck"}, r.subjects(4))
	v.Drop(t, mailserver.Gate, mailOf("after"))
	require.Equal(t, "after", r.subjects(5)[4])
	require.NotEqual(t, strings.Split(validity, "/")[0], strings.Split(r.taken[4].Name, "/")[0])
	r.stop()
	require.Len(t, r.taken, 5)

	// The same while the mailbox is not read.
	v.StopDovecot()
	v.IMAPForget(t, mailserver.Gate)
	v.StartDovecot(t)
	r = run(t, nil, dovecotMailbox(v, mailserver.Gate, state, nil))
	r.ready()
	v.Drop(t, mailserver.Gate, mailOf("much later"))
	require.Equal(t, []string{"much later"}, r.subjects(1))
}

// TestIMAPAnswerBeforeTheFirstConnection: the server is down at the first start. A reply
// that arrives meanwhile counts, also after a restart.
func TestIMAPAnswerBeforeTheFirstConnection(t *testing.T) {
	t.Parallel()
	v := mailserver.Start(t)
	v.StopDovecot()
	v.Drop(t, mailserver.Gate, mailOf("before the first start"))
	aged(t, v.Maildir(mailserver.Gate))
	state := &memoryState{}
	r := run(t, nil, dovecotMailbox(v, mailserver.Gate, state, nil))
	r.waitUntil("an error report", r.reported("connect"))
	r.stop()
	v.Drop(t, mailserver.Gate, mailOf("an answer"))
	v.StartDovecot(t)
	later := time.Now().Add(100 * time.Hour)
	r = run(t, nil, dovecotMailbox(v, mailserver.Gate, state, func(b *IMAP) { b.Now = func() time.Time { return later } }))
	require.Equal(t, []string{"an answer"}, r.subjects(1))
	r.ready()
	v.Drop(t, mailserver.Gate, mailOf("another"))
	require.Equal(t, []string{"an answer", "another"}, r.subjects(2))
}

// TestIMAPKilledAtRandom: 200 emails, and a reader that ends at any moment, also between
// take and the save of the state. None is lost. One that is passed on twice has the same
// name, so that take recognizes it.
func TestIMAPKilledAtRandom(t *testing.T) {
	v := mailserver.Start(t)
	state := &memoryState{}
	r := run(t, nil, dovecotMailbox(v, mailserver.Gate, state, nil))
	r.ready()
	r.stop()
	before := goleak.IgnoreCurrent()

	const mails = 200
	go func() {
		for i := range mails {
			v.Drop(t, mailserver.Gate, mailOf(fmt.Sprint(i)))
		}
	}()
	decided := map[string]string{} // by name
	subjects := map[string]int{}
	kills, twice := 0, 0
	for end := time.Now().Add(testTimeout); len(decided) < mails && time.Now().Before(end); kills++ {
		ctx, cancel := context.WithDeadline(t.Context(), end)
		left := 1 + rand.IntN(10)
		s := &killedState{State: state, cancel: cancel}
		b := dovecotMailbox(v, mailserver.Gate, s, func(b *IMAP) { b.Idle = 50 * time.Millisecond })(&mailboxRun{}).(*IMAP)
		b.Report = nil
		err := b.Run(ctx, func(_ context.Context, m Incoming) error {
			if _, ok := decided[m.Name]; ok {
				twice++
			} else {
				decided[m.Name] = subjectOf(m)
				subjects[subjectOf(m)]++
			}
			if left--; left == 0 {
				switch rand.IntN(3) {
				case 0: // killed before the save
					s.dead = true
					cancel()
				case 1: // killed before take made anything durable
					delete(decided, m.Name)
					subjects[subjectOf(m)]--
					cancel()
					return context.Canceled
				default: // killed after the save
					s.after = true
				}
			}
			if len(decided) == mails {
				cancel()
			}
			return nil
		})
		cancel()
		require.ErrorIs(t, err, context.Canceled, "%d of %d emails came", len(decided), mails)
	}
	t.Logf("%d emails, %d kills, %d passed on twice", len(decided), kills, twice)
	require.Len(t, decided, mails)
	require.Positive(t, twice)
	for subject, n := range subjects {
		require.Equal(t, 1, n, subject)
	}
	goleak.VerifyNone(t, before)
}

// killedState is a State that ends the run, before or after a save.
type killedState struct {
	State
	cancel      context.CancelFunc
	dead, after bool
}

func (d *killedState) Save(data []byte) error {
	if d.dead {
		return errors.New("dead")
	}
	err := d.State.Save(data)
	if d.after {
		d.dead = true
		d.cancel()
	}
	return err
}
