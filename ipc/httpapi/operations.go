package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/codec"
)

// operations declares health, readiness and metrics.
func (s *Server) operations(api huma.API, mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", s.metrics)
	for path, about := range map[string]string{
		"/healthz": "The process is alive. Needs no key.",
		"/readyz":  "200 if the gate makes progress and its disk works, otherwise 503. Needs no key.",
		"/metrics": "Metrics of the gate in Prometheus' text format. Scope: read, and not request, because they cover every workspace.",
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

// ready does not say what is wrong: it needs no key.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if !s.readyCache.ready(r.Context(), s.Ready) {
		problem(http.StatusServiceUnavailable, "not ready: the status of the daemon says why").write(w)
		return
	}
	plain(w, "ready\n")
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if k := keyFrom(r.Context()); !k.Can(apikey.MayRead) || k.Can(apikey.MayRequest) {
		problem(http.StatusForbidden, "this key needs the scope read, without request").write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.Metrics.WritePrometheus(w)
}

// readyCache caches the result of the check for a second: it needs no key, and frequent
// calls must not load the gate.
type readyCache struct {
	mu      sync.Mutex
	at      time.Time
	healthy bool
}

const (
	readyCacheTTL = time.Second
	readyTimeout  = 5 * time.Second
)

func (p *readyCache) ready(ctx context.Context, check Check) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if check == nil || time.Since(p.at) < readyCacheTTL {
		return p.healthy
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	p.healthy = check(ctx) == nil
	p.at = time.Now()
	return p.healthy
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.FormatNilSliceAsNull(false), json.Deterministic(true), codec.Times())
}
