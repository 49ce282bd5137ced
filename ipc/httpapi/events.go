package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/event"
)

// Event is an entry of the audit log, with the members that a client may see.
type Event struct {
	Seq        int64     `json:"seq" doc:"The entry's number in the log, and the event's id."`
	Time       time.Time `json:"time"`
	Event      string    `json:"event" example:"approval_requested"`
	ApprovalID string    `json:"approval_id"`
	ActionType string    `json:"action_type"`
	ToolName   string    `json:"tool_name"`
	SessionID  string    `json:"session_id"`
	By         string    `json:"by"`
	Via        string    `json:"via"`
	Reason     string    `json:"reason"`
}

type eventsIn struct {
	Last int64 `header:"Last-Event-ID" minimum:"0" doc:"Continue after this event. Without it only new events are sent."`
}

type eventsOut struct{ Body func(huma.Context) }

func (s *Server) events(api huma.API) {
	o := op("follow-events", http.MethodGet, eventsPath, "Follow events",
		"Server-sent events, one for each entry of the audit log about requests that are visible to the key, once the entry is durable. Its sequence number is the id, its name the event, and the data an Event in JSON. A comment every 15 seconds keeps the connection open.",
		[]string{apikey.MayRead, apikey.MayDecide}, http.StatusNotFound)
	schema := api.OpenAPI().Components.Schemas.Schema(typeOf[Event](), true, "Event")
	o.Responses = map[string]*huma.Response{"200": {
		Description: "The events; the data of each is an Event, #/components/schemas/" + schema.Ref[len("#/components/schemas/"):],
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	huma.Register(api, o, s.follow)
}

const eventsPath = "/v1/events"

const heartbeat = 15 * time.Second

func (s *Server) follow(ctx context.Context, in *eventsIn) (*eventsOut, error) {
	k := keyFrom(ctx)
	return &eventsOut{func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		defer s.Metrics.countListening()()
		st := &stream{Server: s, key: k, w: w, out: http.NewResponseController(w)}
		newest, _ := s.Feed.Moved()
		st.at = newest
		if in.Last > 0 && in.Last < newest { // a higher number was never sent
			st.at = in.Last
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = st.run(r.Context()) // the client has disconnected, or will reconnect
	}}, nil
}

// stream is one client that follows events.
type stream struct {
	*Server
	key *apikey.Key
	w   http.ResponseWriter
	out *http.ResponseController
	at  int64 // the last entry that was checked
}

var errKeyRevoked = errors.New("key revoked")

func (st *stream) run(ctx context.Context) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	if err := st.send(":\n\n"); err != nil {
		return err
	}
	for {
		newest, moved := st.Feed.Moved()
		if newest > st.at {
			if err := st.catchUp(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-moved:
		case <-beat.C:
			if !st.stillValid(st.key) {
				return errKeyRevoked
			}
			if err := st.send(":\n\n"); err != nil {
				return err
			}
		case <-st.quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// catchUp sends new entries. It checks the key again before each.
func (st *stream) catchUp() error {
	return st.Feed.Since(st.at, func(e event.Entry) error {
		st.at = e.Seq
		if _, step := approval.CutStep(e.RequestID); e.Workspace != st.key.Workspace || e.RequestID == "" || step > 0 || !st.clientOf(st.key).Sees(e.ClientID) {
			return nil
		}
		if !st.stillValid(st.key) {
			return errKeyRevoked
		}
		data, err := marshal(Event{
			Seq: e.Seq, Time: e.Time.UTC(), Event: string(e.Event), ApprovalID: idPrefix + e.RequestID, ActionType: e.ActionType,
			ToolName: e.Tool, SessionID: e.SessionID, By: e.By, Via: e.Via, Reason: e.Reason,
		})
		if err != nil {
			return err
		}
		return st.send(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", strconv.FormatInt(e.Seq, 10), e.Event, data))
	})
}

// send limits the time for a client that does not read.
func (st *stream) send(text string) error {
	if err := st.out.SetWriteDeadline(time.Now().Add(st.IOTimeout)); err != nil {
		return err
	}
	if _, err := st.w.Write([]byte(text)); err != nil {
		return err
	}
	return st.out.Flush()
}
