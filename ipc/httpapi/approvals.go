package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/service"
)

// Target selects one place where a person is asked.
type Target struct {
	TgChatID ChatID `json:"tg_chat_id,omitempty"`
	EmailTo  string `json:"email_to,omitempty" maxLength:"320"`
}

// ChatID is the id of a Telegram chat. Clients send it as a string or as a number.
type ChatID string

// Schema implements huma.SchemaProvider.
func (ChatID) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "The Telegram chat, as a string or a whole number.",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Pattern: "^-?[0-9]{1,20}$", Nullable: true}, {Type: huma.TypeInteger},
		},
	}
}

// UnmarshalJSON implements json.Unmarshaler. A number keeps its digits.
func (c *ChatID) UnmarshalJSON(b []byte) error {
	if jsontext.Value(b).Kind() != '0' {
		return codec.Decode(b, (*string)(c))
	}
	*c = ChatID(b)
	return nil
}

// CreateRequest is a request as an API client sends it.
type CreateRequest struct {
	SessionID    string   `json:"session_id,omitempty" maxLength:"128" doc:"Grants for a session are bound to this name."`
	Type         string   `json:"type,omitempty" enum:"action,question" doc:"The default is action."`
	ActionType   string   `json:"action_type,omitempty" maxLength:"71" doc:"exec_cmd, http_request, write_file, send_message or custom:NAME. Required without tool_name, unless it is a question."`
	ToolName     string   `json:"tool_name,omitempty" maxLength:"64" doc:"A tool that the operator has configured. Without one nothing runs on the host, and the client gets only a receipt."`
	Program      string   `json:"program,omitempty" maxLength:"65536" doc:"A program in Starlark over the workspace's tools, instead of tool_name and action_type."`
	Continues    string   `json:"continues,omitempty" pattern:"^(appr_)?([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$" doc:"With program: the approval whose program goes on here."`
	Execution    string   `json:"execution,omitempty" enum:"agent" doc:"The client itself executes the call if it is approved, so that no table needs to name the tool."`
	Editable     string   `json:"editable,omitempty" maxLength:"200" doc:"With execution: a text in request_data. The client takes code 7 for it: it asks anew with the approver's text."`
	Subagent     string   `json:"subagent,omitempty" maxLength:"64" doc:"With execution: which helper of the agent asks. Grants do not count for it."`
	Title        string   `json:"title,omitempty" maxLength:"300"`
	Preview      string   `json:"preview,omitempty" maxLength:"8192"`
	Rationale    string   `json:"rationale,omitempty" maxLength:"8192"`
	RequestData  Object   `json:"request_data,omitzero" doc:"The arguments. They are kept, shown and run byte for byte."`
	Options      []string `json:"options,omitempty" maxItems:"8" doc:"For a question."`
	ExpiresInSec *int64   `json:"expires_in_sec,omitempty" minimum:"1" maximum:"31622400" doc:"How long the request waits for a decision. The workspace has the default and the maximum."`
	Channel      string   `json:"channel,omitempty" enum:"telegram,email" doc:"Ask only there. It must be one of the workspace's channels."`
	Target       *Target  `json:"target,omitempty" doc:"Must be configured for the workspace: the client cannot choose other approvers."`
	ArgsSubset   []string `json:"args_subset,omitempty" maxItems:"8" doc:"Without tool_name, and not for exec_cmd: lists in request_data. The receipt covers any part of them, too."`
	Metadata     Object   `json:"metadata,omitzero" doc:"An object of up to 4 KiB. It comes back unchanged, is kept in the record, and is shown as the agent's."`
	Proof        Object   `json:"proof,omitzero"`
	Resubmits    string   `json:"resubmits,omitempty" pattern:"^(appr_)?([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$" doc:"The approval that this one replaces."`
}

type createIn struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"The same key with the same body gives the same approval."`
	Body           CreateRequest
}

type createOut struct {
	Status   int
	Location string `header:"Location"`
	Body     *Approval
}

// OneIn names one approval. It is exported because the library reads only exported
// embedded types.
type OneIn struct {
	ID string `path:"id" pattern:"^appr_([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"`
}

type getIn struct {
	OneIn
	Wait int `query:"wait" minimum:"0" maximum:"60" doc:"Answer when the request has ended, or after so many seconds."`
}

type cancelIn struct {
	OneIn
	Reason string `query:"reason" maxLength:"300" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"Why, for the approvers: shown as the agent's words."`
}

type listIn struct {
	ID     string    `query:"id" pattern:"^(appr_)?[0-9a-f][0-9a-f-]{3,63}$" doc:"Only requests whose id begins so, ended ones too. The other parameters are not used then."`
	Status string    `query:"status" enum:"pending,approved,denied,expired"`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Before time.Time `query:"before" doc:"The value of next from the previous page."`
}

// Page is one page of a list.
type Page struct {
	Items []*Approval `json:"items" nullable:"false"`
	Next  *string     `json:"next" doc:"Pass it as before to get older items; null if there are none."`
}

// readScopes are the scopes of which each lets a key read the requests that are visible
// to it.
func readScopes() []string {
	return []string{apikey.MayRead, apikey.MayRequest, apikey.MayDecide}
}

// approvals declares the operations on requests.
func (s *Server) approvals(api huma.API) {
	request := []string{apikey.MayRequest}
	read := readScopes()
	create := op("create-approval", http.MethodPost, "/v1/approvals", "Create a request",
		"201 as soon as the request is durable, even if no channel is reachable; 200 if it was accepted before, with the same Idempotency-Key.",
		request, http.StatusServiceUnavailable)
	create.DefaultStatus = http.StatusCreated
	create.Responses = map[string]*huma.Response{"200": {
		Description: "Accepted before",
		Content:     map[string]*huma.MediaType{jsonType: {Schema: &huma.Schema{Ref: "#/components/schemas/Approval"}}},
	}}
	huma.Register(api, create, s.create)
	register(api, op("get-approval", http.MethodGet, "/v1/approvals/{id}", "Get a request, or wait for its end",
		"With wait it answers when the request has ended, at once if it already has.", read, http.StatusNotFound), s.get)
	register(api, op("list-approvals", http.MethodGet, "/v1/approvals", "List requests",
		"Pending requests are listed completely, the oldest first; ended ones in pages, the newest first. Without a status the first page has both, pending ones first.",
		read), s.list)
	register(api, op("cancel-approval", http.MethodDelete, "/v1/approvals/{id}", "Cancel a pending request",
		"First writer wins. Returns 409 if already decided. Does not stop a running action. Approvers see the reason.",
		request, http.StatusNotFound, http.StatusConflict, http.StatusGone), s.cancel)
	s.decisions(api)
}

func (s *Server) create(ctx context.Context, in *createIn) (*createOut, error) {
	if strings.ContainsFunc(in.IdempotencyKey, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return nil, problem(http.StatusUnprocessableEntity, "Idempotency-Key must be visible ASCII, without spaces")
	}
	w, p := in.Body.submission()
	if p != nil {
		return nil, p
	}
	w.IdempotencyKey = in.IdempotencyKey
	client := s.clientOf(keyFrom(ctx))
	key, result, err := s.Submit(ctx, client, w)
	if err != nil {
		return nil, s.submitProblem(err)
	}
	var a *Approval
	if result.Pending != nil {
		a = fromPending(approval.StoredPending{Pending: result.Pending, SHA256: result.SHA256})
	} else {
		st, err := s.Find(ctx, client, key.ID)
		if err == nil {
			a, err = s.View(key, st)
		}
		if err != nil {
			return nil, s.internalError("read accepted request failed: "+key.String(), err)
		}
	}
	out := &createOut{Status: http.StatusCreated, Location: "/v1/approvals/" + a.ApprovalID, Body: a}
	if result.Repeated {
		out.Status = http.StatusOK
	}
	s.Metrics.created.Inc()
	return out, nil
}

// submission is the request that an agent would have written into the folder.
func (w *CreateRequest) submission() (*service.Submission, *Problem) {
	sub := &service.Submission{Channel: w.Channel, Request: approval.Request{
		Type: w.Type, ToolName: w.ToolName, ActionType: w.ActionType, SessionID: w.SessionID,
		Title: w.Title, Preview: w.Preview, Rationale: w.Rationale, Options: w.Options,
		RequestData: w.RequestData.Value, ArgsSubset: w.ArgsSubset, Execution: w.Execution, Editable: w.Editable, Subagent: w.Subagent, Program: w.Program, Continues: bareID(w.Continues), Metadata: w.Metadata.Value, Proof: w.Proof.Value, Resubmits: strings.TrimPrefix(w.Resubmits, idPrefix),
	}}
	if w.ExpiresInSec != nil {
		sub.Request.ExpiresInSec = *w.ExpiresInSec
	}
	switch t := w.Target; {
	case t == nil:
	case (t.TgChatID == "") == (t.EmailTo == ""):
		return nil, problem(http.StatusUnprocessableEntity, "target: give one of tg_chat_id and email_to")
	case t.TgChatID != "":
		sub.Target = map[string]string{"telegram": string(t.TgChatID)}
	default:
		sub.Target = map[string]string{"email": t.EmailTo}
	}
	return sub, nil
}

// reply is a request, or why it is not shown.
func (s *Server) reply(k *apikey.Key, id string, st read.Story, err error) (a *Approval, _ error) {
	key := approval.Key{Workspace: k.Workspace, ID: bareID(id)}
	if err == nil {
		a, err = s.View(key, st)
	}
	switch {
	case errors.Is(err, decide.ErrUnknown):
		return nil, problem(http.StatusNotFound, detailNotFound)
	case err != nil:
		return nil, s.internalError("read request failed: "+key.String(), err)
	}
	return a, nil
}

func bareID(id string) string { return strings.TrimPrefix(id, idPrefix) }

// get answers at once. Requests that wait are handled in wait.go.
func (s *Server) get(ctx context.Context, k *apikey.Key, in *getIn) (*Approval, error) {
	st, err := s.Find(ctx, s.clientOf(k), bareID(in.ID))
	return s.reply(k, in.ID, st, err)
}

func (s *Server) cancel(ctx context.Context, k *apikey.Key, in *cancelIn) (*Approval, error) {
	st, err := s.Cancel(ctx, s.clientOf(k), bareID(in.ID), in.Reason)
	if err != nil && st.Exists() {
		return nil, s.decideProblem(ctx, approval.Key{Workspace: k.Workspace, ID: bareID(in.ID)}, err)
	}
	a, err := s.reply(k, in.ID, st, err)
	if err != nil {
		return nil, err
	}
	a.setEnd(approval.StatusCancelled)
	a.setDecision(st.Decision)
	return a, nil
}

// list returns pending requests, then ended ones.
func (s *Server) list(ctx context.Context, k *apikey.Key, in *listIn) (*Page, error) {
	page := &Page{}
	if in.ID != "" {
		return page, s.listNamed(ctx, k, bareID(in.ID), page)
	}
	if in.Before.IsZero() && (in.Status == "" || in.Status == pending) {
		all, err := s.Waiting(ctx, s.clientOf(k))
		if err != nil {
			return nil, s.internalError("list pending requests failed", err)
		}
		for _, w := range all {
			page.Items = append(page.Items, fromPending(w))
		}
	}
	if in.Status == pending || s.History == nil {
		return page, nil
	}
	return page, s.listEnded(ctx, k, in, page)
}

// listNamed adds the requests whose id begins with prefix.
func (s *Server) listNamed(ctx context.Context, k *apikey.Key, prefix string, page *Page) error {
	found, err := s.Named(ctx, s.clientOf(k), prefix)
	for _, f := range found {
		var a *Approval
		if a, err = s.View(f.Key, f.Story); err != nil {
			break
		}
		page.Items = append(page.Items, a)
	}
	if err != nil {
		return s.internalError("find requests failed", err)
	}
	return nil
}

// listEnded adds a page of ended requests.
func (s *Server) listEnded(ctx context.Context, k *apikey.Key, in *listIn, page *Page) error {
	// Listing ended requests may read the whole log, so each key may do it once at a
	// time.
	listing := k.ID + " list ended"
	if !s.busy.acquire(listing, 1) {
		return problem(http.StatusTooManyRequests, "this key already has a list request in progress").retry(time.Second)
	}
	defer s.busy.release(listing)
	items, more, err := s.Ended(s.clientOf(k), in.Before, in.Limit, func(st approval.Status) bool {
		status, _ := outcome(st)
		return in.Status == "" || status == in.Status
	})
	if err != nil {
		return s.internalError("list ended requests failed", err)
	}
	for _, r := range items {
		st, err := s.Viewer.Story(ctx, r.Key)
		a := newApproval(r.Key)
		switch {
		case err == nil && st.Record != nil:
			a, err = s.View(r.Key, st)
		case err == nil: // pruned: only the log has its status
			a.setEnd(r.Status)
		}
		if err != nil {
			return s.internalError("read request failed: "+r.Key.String(), err)
		}
		page.Items = append(page.Items, a)
	}
	if more && len(items) > 0 {
		page.Next = new(codec.Time(items[len(items)-1].Asked()))
	}
	return nil
}
