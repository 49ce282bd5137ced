package httpapi

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/codec"
)

const inboxPath = "/v1/inbox/email-reply"

// Mail is an approver's reply in parts.
type Mail struct {
	Subject string `json:"subject" maxLength:"998"`
	Body    string `json:"body" maxLength:"65536"`
	From    string `json:"from,omitempty" maxLength:"320" doc:"The sender's address. It must be the one of the key's owner, who counts as the sender without it."`
}

type mailIn struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte `contentType:"application/json"`
}

// Maximum lengths of the parts, in characters, as in Mail.
const (
	maxSubject = 998
	maxMail    = 65536
	maxFrom    = 320
)

// Taken is the result of a mail.
type Taken struct {
	Status     string `json:"status" enum:"approved,denied,pending"`
	ApprovalID string `json:"approval_id"`
}

func (s *Server) inbox(api huma.API) {
	o := op("email-reply", http.MethodPost, inboxPath, "Submit an approver's email reply",
		"A complete message as message/rfc822, or its subject and body as JSON. The key acts for its owner, in every workspace: submit only mail of that approver. The address of a complete message names the card that it answers. For a JSON body, the subject or the body must contain the tag of the card's subject with its token, [appr_ID TOKEN]; [appr_ID] suffices from a key made with --authenticates-senders.",
		[]string{apikey.MayInbound}, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusServiceUnavailable)
	o.SkipValidateBody = true // takeMail decodes it by its type
	register(api, o, s.takeMail)
	schema := api.OpenAPI().Components.Schemas.Schema(typeOf[Mail](), true, "Mail")
	api.OpenAPI().Paths[inboxPath].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		jsonType: {Schema: schema}, mailType: {Schema: &huma.Schema{Type: huma.TypeString}},
	}}
}

func (s *Server) takeMail(ctx context.Context, k *apikey.Key, in *mailIn) (*Taken, error) {
	m := InboxMail{Approver: k.Owner, Authenticated: k.AuthenticatesSenders}
	if kind, _, _ := mime.ParseMediaType(in.ContentType); kind == mailType {
		m.Raw = append(m.Raw, in.RawBody...) // copied: huma reuses the buffer
	} else {
		var mail struct {
			Subject *string `json:"subject"`
			Body    *string `json:"body"`
			From    string  `json:"from"`
		}
		err := codec.Decode(in.RawBody, &mail)
		switch {
		case err != nil:
			return nil, problem(http.StatusUnprocessableEntity, err.Error())
		case mail.Subject == nil || mail.Body == nil:
			return nil, problem(http.StatusUnprocessableEntity, "subject and body are required")
		case utf8.RuneCountInString(*mail.Subject) > maxSubject || utf8.RuneCountInString(*mail.Body) > maxMail || len(mail.From) > maxFrom:
			return nil, problem(http.StatusUnprocessableEntity, "subject, body or from is too long")
		}
		m.Subject, m.Body, m.From = *mail.Subject, *mail.Body, mail.From
	}
	r, err := s.Inbox.Take(ctx, m)
	switch {
	case errors.Is(err, ErrNoInbox):
		return nil, problem(http.StatusNotFound, ErrNoInbox.Error())
	case errors.Is(err, ErrInboxStarting):
		return nil, problem(http.StatusServiceUnavailable, ErrInboxStarting.Error()).retry(5 * time.Second)
	case errors.Is(err, ErrInbox):
		return nil, problem(http.StatusUnprocessableEntity, strings.TrimPrefix(err.Error(), ErrInbox.Error()+": "))
	case err != nil:
		return nil, s.decideProblem(ctx, r.Key, err)
	}
	return &Taken{r.Status, idPrefix + r.Key.ID}, nil
}
