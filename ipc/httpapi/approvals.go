package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval"
)

// Target narrows where a person is asked.
type Target struct {
	TgChatID string `json:"tg_chat_id,omitempty" pattern:"^-?[0-9]{1,20}$" doc:"The Telegram chat, as a string."`
	EmailTo  string `json:"email_to,omitempty" maxLength:"320"`
}

// CreateRequest is a request as a client of this door writes it.
type CreateRequest struct {
	SessionID    string   `json:"session_id,omitempty" maxLength:"128" doc:"Consent for a session is remembered by this name."`
	Type         string   `json:"type,omitempty" enum:"action,question" doc:"What is not said is action."`
	ActionType   string   `json:"action_type,omitempty" maxLength:"71" doc:"exec_cmd, http_request, write_file, send_message or custom:NAME. Required without tool_name, unless it is a question."`
	ToolName     string   `json:"tool_name,omitempty" maxLength:"64" doc:"A tool that the operator has configured; without one nothing runs on the host, and the receipt is all there is."`
	Title        string   `json:"title,omitempty" maxLength:"300"`
	Preview      string   `json:"preview,omitempty" maxLength:"8192"`
	Rationale    string   `json:"rationale,omitempty" maxLength:"8192"`
	RequestData  Object   `json:"request_data,omitzero" doc:"The arguments. They are kept, shown and run byte for byte."`
	Options      []string `json:"options,omitempty" maxItems:"8" doc:"Of a question."`
	ExpiresInSec *int64   `json:"expires_in_sec,omitempty" minimum:"1" maximum:"31622400" doc:"How long a person is asked. What is not said is 600, and never more than the workspace allows."`
	Channel      string   `json:"channel,omitempty" enum:"telegram,email" doc:"Ask there only. It must be one of the workspace's channels."`
	Target       *Target  `json:"target,omitempty" doc:"Must be what the workspace is configured for: nobody is asked whom the client chooses."`
	Proof        Object   `json:"proof,omitzero"`
	Resubmits    string   `json:"resubmits,omitempty" pattern:"^(appr_)?[0-9a-f]{16,64}$" doc:"The approval that this one asks for anew."`
}

type createIn struct {
	Once string `header:"Idempotency-Key" maxLength:"255" doc:"Sent again with the same body it gives the same approval."`
	Body CreateRequest
}

type createOut struct {
	Status   int
	Location string `header:"Location"`
	Body     *Approval
}

// OneIn names one approval. It is exported for the library, which looks into no other.
type OneIn struct {
	ID string `path:"id" pattern:"^appr_[0-9a-f]{16,64}$"`
}

type getIn struct {
	OneIn
	Wait int `query:"wait" minimum:"0" maximum:"60" doc:"Answer when it is over, or after so many seconds."`
}

type oneOut struct{ Body *Approval }

type listIn struct {
	Status string    `query:"status" enum:"pending,approved,denied,expired"`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Before time.Time `query:"before" doc:"The next of the page before."`
}

// Page is a part of a list.
type Page struct {
	Items []*Approval `json:"items" nullable:"false"`
	Next  *string     `json:"next" doc:"Give it as before to see what is older; null where nothing is."`
}

type listOut struct{ Body Page }

// lookers are the scopes of which each lets a key look at what it may know of.
func lookers() []string {
	return []string{approval.MayRead, approval.MayRequest, approval.MayDecide}
}

// approvals declares what is done with requests.
func (s *Server) approvals(api huma.API) {
	ask := []string{approval.MayRequest}
	look := lookers()
	create := op("create-approval", http.MethodPost, "/v1/approvals", "Ask for something",
		"201 as soon as the request is durable, whether or not anybody can be reached at that moment; 200 where it was accepted before, with the same Idempotency-Key.",
		ask, http.StatusConflict, http.StatusServiceUnavailable)
	create.DefaultStatus = http.StatusCreated
	create.Responses = map[string]*huma.Response{"200": {
		Description: "It was accepted before",
		Content:     map[string]*huma.MediaType{jsonType: {Schema: &huma.Schema{Ref: "#/components/schemas/Approval"}}},
	}}
	register(api, create, s.create)
	register(api, op("get-approval", http.MethodGet, "/v1/approvals/{id}", "Look at a request, or wait for it",
		"With wait it answers when the request is over, at once where it is already.", look, http.StatusNotFound), s.get)
	register(api, op("list-approvals", http.MethodGet, "/v1/approvals", "List requests",
		"What waits is listed oldest first and as a whole; what is over in pages, the newest first. Without a status both, what waits first, on the first page.",
		look), s.list)
	register(api, op("cancel-approval", http.MethodDelete, "/v1/approvals/{id}", "Take a request back",
		"Whoever is first counts: where somebody has decided it is 409. Nothing that was started is stopped.",
		ask, http.StatusNotFound, http.StatusConflict, http.StatusGone), s.cancel)
	s.decisions(api)
}

func (s *Server) create(ctx context.Context, k *approval.APIKey, in *createIn) (*createOut, error) {
	from, p := s.originOf(k, &in.Body)
	if p != nil {
		return nil, p
	}
	if strings.ContainsFunc(in.Once, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return nil, problem(http.StatusUnprocessableEntity, "Idempotency-Key must be visible ASCII, without blanks")
	}
	key, taken, err := s.submit(ctx, k, &in.Body, in.Once, from)
	if err != nil {
		return nil, s.submission(err)
	}
	var a *Approval
	if taken.Pending != nil {
		a = waiting(taken.Pending)
	} else if a, err = s.view(ctx, key); err != nil || a == nil {
		return nil, s.broken("look at what was accepted", errors.Join(err, fmt.Errorf("%s", key)))
	}
	out := &createOut{Status: http.StatusCreated, Location: "/v1/approvals/" + a.ApprovalID, Body: a}
	if taken.Repeated {
		out.Status = http.StatusOK
	}
	s.Metrics.created.Inc()
	return out, nil
}

// originOf is where a request comes from, after what the client narrows was held
// against what the operator configured.
func (s *Server) originOf(k *approval.APIKey, w *CreateRequest) (approval.Origin, *Problem) {
	from := approval.Origin{ClientID: k.ClientID(), Principal: k.Owner, AskOn: w.Channel}
	no := func(detail string) (approval.Origin, *Problem) {
		return from, problem(http.StatusUnprocessableEntity, detail)
	}
	place, _ := s.Settings.WorkspaceInfo(k.Workspace)
	t := w.Target
	switch {
	case t == nil:
	case t.TgChatID != "" && t.EmailTo != "", t.TgChatID == "" && t.EmailTo == "":
		return no("target: name one of tg_chat_id and email_to")
	case t.TgChatID != "" && (w.Channel == "email" || !slices.Contains(place.Chats, t.TgChatID)):
		return no("target.tg_chat_id is not where this workspace is asked")
	case t.EmailTo != "" && (w.Channel == "telegram" || !slices.Contains(place.Addresses, t.EmailTo)):
		return no("target.email_to is not where this workspace is asked")
	case t.TgChatID != "":
		from.AskOn = "telegram"
	default:
		from.AskOn = "email"
	}
	if from.AskOn != "" && !slices.Contains(place.Channels, from.AskOn) {
		return no("this workspace is not asked on " + from.AskOn)
	}
	return from, nil
}

// defaultExpiry is how long a request of this door is asked for that does not say.
const defaultExpiry = 600

// submit gives the request an id and hands it to the gate. A random id that
// happens to begin like another one is drawn anew.
func (s *Server) submit(ctx context.Context, k *approval.APIKey, w *CreateRequest, once string, from approval.Origin) (key approval.Key, t approval.SubmitResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.SubmitTimeout)
	defer cancel()
	from.Fresh = once == ""
	for try := 1; ; try++ {
		key = approval.Key{Workspace: k.Workspace, ID: newID(k, once)}
		b, err := w.request(key.ID)
		if err != nil {
			return key, t, fmt.Errorf("%w: %w", approval.ErrMalformed, err)
		}
		t, err = s.Gate.Submit(ctx, key, b, from)
		if !errors.Is(err, approval.ErrShortIDTaken) || once != "" || try == 3 {
			return key, t, err
		}
	}
}

// request is what an agent would have written into the folder.
func (w *CreateRequest) request(id string) ([]byte, error) {
	r := approval.Request{
		RequestID: id, Type: w.Type, ToolName: w.ToolName, ActionType: w.ActionType, SessionID: w.SessionID,
		Title: w.Title, Preview: w.Preview, Rationale: w.Rationale, Options: w.Options, ExpiresInSec: defaultExpiry,
		RequestData: w.RequestData.Value, Proof: w.Proof.Value, Resubmits: strings.TrimPrefix(w.Resubmits, idPrefix),
	}
	if w.ExpiresInSec != nil {
		r.ExpiresInSec = *w.ExpiresInSec
	}
	return r.Encode()
}

// newID is a request's id: random, or made from the client's own word for it and
// the hash of its key, which nobody else knows.
func newID(k *approval.APIKey, once string) string {
	var id [16]byte
	if once == "" {
		_, _ = rand.Read(id[:]) // never fails: see crypto/rand
		return hex.EncodeToString(id[:])
	}
	return approval.Digest([]byte("permesso request\x00" + k.Hash + "\x00" + once))[:2*len(id)]
}

// find is a request that the key may know of.
func (s *Server) find(ctx context.Context, k *approval.APIKey, id string) (approval.Key, *Approval, error) {
	key := approval.Key{Workspace: k.Workspace, ID: strings.TrimPrefix(id, idPrefix)}
	a, err := s.view(ctx, key)
	switch {
	case err != nil:
		return key, nil, s.broken("look at "+key.String(), err)
	case a == nil || !mine(k, a.client):
		return key, nil, problem(http.StatusNotFound, sayNotFound)
	}
	return key, a, nil
}

// get answers at once: whoever waits was let in before, see wait.go.
func (s *Server) get(ctx context.Context, k *approval.APIKey, in *getIn) (*oneOut, error) {
	_, a, err := s.find(ctx, k, in.ID)
	return &oneOut{a}, err
}

func (s *Server) cancel(ctx context.Context, k *approval.APIKey, in *OneIn) (*oneOut, error) {
	key, a, err := s.find(ctx, k, in.ID)
	if err != nil {
		return nil, err
	}
	d, err := s.Gate.Cancel(ctx, key, approval.Origin{ClientID: k.ClientID()})
	if err != nil {
		return nil, s.refused(ctx, key, err)
	}
	a.Status, a.Outcome, a.Execution = denied, some(string(approval.StatusCancelled)), some(none)
	a.decided(d)
	return &oneOut{a}, nil
}

// list gives what waits, then what is over.
func (s *Server) list(ctx context.Context, k *approval.APIKey, in *listIn) (*listOut, error) {
	out := &listOut{}
	if in.Before.IsZero() && (in.Status == "" || in.Status == pending) {
		all, err := s.Viewer.Waiting(ctx, []string{k.Workspace})
		if err != nil {
			return nil, s.broken("list what waits", err)
		}
		for _, w := range all {
			if mine(k, w.Pending.ClientID) {
				out.Body.Items = append(out.Body.Items, waiting(w.Pending))
			}
		}
	}
	if in.Status == pending || s.History == nil {
		return out, nil
	}
	return out, s.lookBack(ctx, k, in, &out.Body)
}

// lookBack adds a page of what is over.
func (s *Server) lookBack(ctx context.Context, k *approval.APIKey, in *listIn, page *Page) error {
	// Looking back may mean reading all of the log: one such look of a key at a time.
	looking := k.ID + " looks back"
	if !s.busy.enter(looking, 1) {
		return problem(http.StatusTooManyRequests, "this key is listing already").retry(time.Second)
	}
	defer s.busy.leave(looking)
	past, more, err := s.History.Ended(ctx, k.Workspace, in.Before, in.Limit, func(client string, st approval.Status) bool {
		status, _ := outcome(st)
		return mine(k, client) && (in.Status == "" || status == in.Status)
	})
	if err != nil {
		return s.broken("list what is over", err)
	}
	for _, p := range past {
		a, err := s.ended(ctx, p.Key)
		if err != nil {
			return s.broken("look at "+p.Key.String(), err)
		}
		if a == nil { // pruned: the log has its status
			a = blank(p.Key)
			status, execution := outcome(p.Status)
			a.Status, a.Execution, a.Outcome = status, some(execution), some(string(p.Status))
		}
		page.Items = append(page.Items, a)
	}
	if more && len(past) > 0 {
		page.Next = some(past[len(past)-1].AskedAt.UTC().Format(time.RFC3339Nano))
	}
	return nil
}
