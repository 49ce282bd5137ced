package email

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/ipc"
)

// memoryMailbox passes emails on in order, and one that failed again.
type memoryMailbox chan mailbox.Incoming

// Run implements mailbox.Mailbox.
func (b memoryMailbox) Run(ctx context.Context, take func(context.Context, mailbox.Incoming) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-b:
			if take(ctx, in) != nil {
				b <- in
			}
		}
	}
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		sent, box := &outbox{clock: &bubbleClock{}}, make(memoryMailbox, 10)
		home := gatetest.New(t, gatetest.Options{Workspaces: []approval.Workspace{{Name: "personal"}}})
		taken, err := (&ipc.SentStore{Store: home.Store, Channel: "email"}).State("taken")
		require.NoError(t, err)
		a := &Adapter{
			Addressing: Addressing{Local: "permesso", Separator: "+", Domain: "gate.test"}, FollowUp: true, Sender: sent,
			Mailboxes: []mailbox.Mailbox{box}, Verifier: &authentic.Authenticator{TrustRelay: true}, Taken: taken,
		}
		shown := func() (all []channeltest.Shown) {
			sent.mu.Lock()
			defer sent.mu.Unlock()
			for _, m := range sent.mails {
				o := parseEmail(t, m)
				if o.header.Get("Auto-Submitted") == "auto-replied" {
					o.text = strings.TrimPrefix(o.text, lock+" ")
				}
				all = append(all, channeltest.Shown{ID: deliver.ID(strings.Trim(o.header.Get("Message-Id"), "<>")), Text: o.text})
			}
			return all
		}
		return channeltest.Fixture{
			Adapter: a, At: deliver.Address{Chat: annMail}, Approver: annMail, Stranger: evaMail, Shown: shown, TooLong: maxText,
			Say: func(by deliver.ID, text string, to deliver.ID) {
				sent.mu.Lock()
				defer sent.mu.Unlock()
				for _, m := range sent.mails {
					if o := parseEmail(t, m); strings.Contains(o.header.Get("Message-Id"), string(to)) {
						box <- replyTo(o, string(by), text)
					}
				}
			},
			Fail: func() {
				left := 2
				sent.before = func(string, []byte) error {
					if left--; left >= 0 {
						return &mailbox.Error{Stage: "name the recipient", Temporary: true, Code: 451, Err: errors.New("451 later")}
					}
					return nil
				}
			},
		}
	})
}
