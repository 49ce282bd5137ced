package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// house declares what tells how the gate is.
func (s *Server) house(api huma.API, mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", s.metrics)
	for path, about := range map[string]string{
		"/healthz": "The process lives. Needs no key.",
		"/readyz":  "A probe came through the gate and its disk works: 200, otherwise 503. Needs no key.",
		"/metrics": "Numbers of the whole gate in Prometheus' text format. Scope: read, and not request: they tell of every workspace.",
	} {
		o := &huma.Operation{
			OperationID: path[1:], Method: http.MethodGet, Path: path, Summary: about,
			Responses: map[string]*huma.Response{"200": {
				Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
			}},
		}
		schema := api.OpenAPI().Components.Schemas.Schema(typeOf[Problem](), true, "Problem")
		refusal := &huma.Response{Description: "Problem", Content: map[string]*huma.MediaType{problemType: {Schema: schema}}}
		o.Responses["403"] = refusal
		switch path {
		case "/metrics":
			o.Responses["401"] = refusal
		case "/readyz":
			o.Responses["503"] = refusal
			fallthrough
		default:
			o.Security = []map[string][]string{{}}
		}
		api.OpenAPI().AddOperation(o)
	}
}

func plain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
}

// ready says nothing of what is wrong: anybody may ask.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if !s.pulse.ready(r.Context(), s.Ready) {
		problem(http.StatusServiceUnavailable, "not ready: permesso status says why").write(w)
		return
	}
	plain(w, "ready\n")
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if k := keyIn(r.Context()); !k.Can(approval.MayRead) || k.Can(approval.MayRequest) {
		problem(http.StatusForbidden, "this key may not do that: it needs the scope read, without request").write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.Metrics.Write(w)
}

// pulse remembers for a moment how the gate was: strangers may ask as often as they
// like, and the gate is asked once a second.
type pulse struct {
	mu   sync.Mutex
	at   time.Time
	well bool
}

const (
	pulseFor   = time.Second
	pulseLimit = 5 * time.Second
)

func (p *pulse) ready(ctx context.Context, check Check) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if check == nil || time.Since(p.at) < pulseFor {
		return p.well
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pulseLimit)
	defer cancel()
	p.well = check(ctx) == nil
	p.at = time.Now()
	return p.well
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.FormatNilSliceAsNull(false), json.Deterministic(true))
}
