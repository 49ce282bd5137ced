package daemon

import (
	"context"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// mailIntake passes emails from the HTTP API to the email channel, if it runs.
type mailIntake struct{ *server }

// Take implements httpapi.Inbox.
func (m mailIntake) Take(ctx context.Context, mail httpapi.InboxMail) (httpapi.InboxResult, error) {
	cfg := m.Current()
	if cfg.Email == nil {
		return httpapi.InboxResult{}, httpapi.ErrNoInbox
	}
	ch := m.channels.current(emailChannel).mails
	if ch == nil {
		return httpapi.InboxResult{}, httpapi.ErrInboxStarting
	}
	who := approval.Person{Channel: emailChannel, ID: cfg.Approvers[mail.Approver].IDs[emailChannel], Name: mail.Approver}
	var t email.Taken
	var err error
	if mail.Raw != nil {
		// The name identifies an email that is submitted twice.
		t, err = ch.TakeRaw(ctx, mailbox.Incoming{Name: "rest " + approval.Digest(mail.Raw), Raw: mail.Raw}, who)
	} else {
		t, err = ch.TakeForwarded(ctx, mail.Subject, mail.Body, who)
	}
	if err != nil {
		return httpapi.InboxResult{}, fmt.Errorf("process email: %w", err)
	}
	return m.result(t)
}

// result maps the outcome of an email to the API's result.
func (m mailIntake) result(t email.Taken) (httpapi.InboxResult, error) {
	r := httpapi.InboxResult{Key: t.Key, Status: "pending"}
	found := t.Key != approval.Key{}
	switch t.Status {
	case email.Answered:
		return r, nil
	case email.Decided, email.Duplicate:
		if found {
			r.Status = m.decisionStatus(t.Key)
			return r, nil
		}
	case email.Unclear:
		return r, fmt.Errorf("%w: invalid code", httpapi.ErrInbox)
	case email.Late:
		return r, &decide.Refusal{Reason: decide.ErrDecided}
	case email.Refused:
		if found {
			return r, &decide.Refusal{Reason: decide.ErrNotAuthorized}
		}
	case email.Ignored:
	}
	if t.Why == "" {
		t.Why = "approval_id not found"
	}
	return r, fmt.Errorf("%w: %s", httpapi.ErrInbox, t.Why)
}

// decisionStatus is the decision on a request in the API's field status.
func (m mailIntake) decisionStatus(k approval.Key) string {
	st, err := m.Viewer(m.keys).Story(context.Background(), k)
	switch d := st.Decision; {
	case err != nil || d == nil:
		return "pending"
	case d.Verdict == approval.Approved, d.Verdict == approval.Overridden, d.Verdict == approval.Answered:
		return "approved"
	}
	return "denied"
}
