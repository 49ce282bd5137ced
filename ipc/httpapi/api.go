package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/ipc/service"
)

// Handler is the API without its listeners.
func (s *Server) Handler() http.Handler {
	s.init()
	return s.handler
}

func (s *Server) build() http.Handler {
	mux := http.NewServeMux()
	s.api(mux)
	if s.MCP != nil {
		mux.HandleFunc(mcpPath, s.serveMCP)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { notFound(mux, w, r) })
	return s.recoverPanics(s.guard(mux))
}

const mcpPath = "/mcp"

// serveMCP lets a client in that may make requests.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) {
	k := keyFrom(r.Context())
	if !k.Can(apikey.MayRequest) {
		problem(http.StatusForbidden, "this key lacks the scope "+apikey.MayRequest).write(w)
		return
	}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), clientContext{}, s.clientOf(k)))
	defer cancel()
	go func() { // a shutdown does not wait for those who wait
		select {
		case <-s.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.MCP.ServeHTTP(w, r.WithContext(ctx))
}

// clientContext is the client's place in the context of a request to MCP.
type clientContext struct{}

// ClientFrom returns the client that has sent a request to MCP.
func ClientFrom(ctx context.Context) *service.Client {
	c, _ := ctx.Value(clientContext{}).(*service.Client)
	return c
}

// notFound answers requests for unknown paths and methods.
func notFound(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		problem(http.StatusNotFound, "unknown path").write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem(http.StatusMethodNotAllowed, "use "+strings.Join(allowed, " or ")+" here").write(w)
}

// api declares every operation. The OpenAPI document comes from the same types that read
// and write the bodies.
func (s *Server) api(mux *http.ServeMux) huma.API {
	humaHooks()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "permesso", Version: s.Version, Description: strings.TrimSpace(about),
				License: &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"key": {}}},
			Servers:  []*huma.Server{{URL: "/", Description: "the daemon that gave this document"}},
		},
		Formats:                      map[string]huma.Format{jsonType: strict(), "json": strict()},
		DefaultFormat:                jsonType,
		RejectUnknownQueryParameters: true,
	})
	api.UseMiddleware(s.checkScope)
	s.approvals(api)
	s.grants(api)
	s.receipts(api)
	s.events(api)
	s.inbox(api)
	s.operations(api, mux)
	for _, o := range s.Local {
		o.register(api)
	}
	document := spec(api)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document)
	})
	return api
}

// spec is the OpenAPI document. Every optional member of what clients send may be null: the
// library accepts null but does not document it. An enumeration lists all allowed values,
// so null is added there too.
func spec(api huma.API) []byte {
	schemas := api.OpenAPI().Components.Schemas.Map()
	for name, schema := range schemas {
		sent := slices.Contains([]string{"CreateRequest", "Target", "Verdict", "ReceiptBody", "Mail"}, name)
		for key, p := range schema.Properties {
			p.Nullable = p.Nullable || sent && p.Ref == "" && p.OneOf == nil && !slices.Contains(schema.Required, key)
			if p.Nullable && p.Enum != nil && !slices.Contains(p.Enum, nil) {
				p.Enum = append(p.Enum, nil)
			}
		}
	}
	// The library reads requests by the same schemas. With this one it could not say what
	// is wrong in a target.
	members := schemas["CreateRequest"].Properties
	defer func(target *huma.Schema) { members["target"] = target }(members["target"])
	members["target"] = &huma.Schema{OneOf: []*huma.Schema{members["target"], {Type: "null"}}}
	b, err := api.OpenAPI().MarshalJSON()
	if err != nil {
		panic("encode OpenAPI document: " + err.Error()) // it is a constant
	}
	return b
}

const scopes = "scopes"

// op is an operation that needs one of the scopes.
func op(id, method, path, summary, description string, need []string, errs ...int) huma.Operation {
	if method == http.MethodPost {
		errs = append(errs, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary,
		Description:     description + "\n\nScope: " + strings.Join(need, " or ") + ".",
		Errors:          append([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests}, errs...),
		Metadata:        map[string]any{scopes: need},
		MaxBodyBytes:    64 << 20, // the guard has limited the body
		BodyReadTimeout: -1,
	}
}

// checkScope refuses keys without the scope, before the body is validated.
func (s *Server) checkScope(ctx huma.Context, next func(huma.Context)) {
	if ctx.Operation().Metadata[localPath] == true {
		checkLocal(ctx, next)
		return
	}
	need, ok := ctx.Operation().Metadata[scopes].([]string)
	k := keyFrom(ctx.Context())
	if !ok || !slices.ContainsFunc(need, k.Can) {
		_, w := humago.Unwrap(ctx)
		problem(http.StatusForbidden, "this key lacks the scope "+strings.Join(need, " or ")).write(w)
		return
	}
	next(ctx)
}

// register is huma.Register for an operation that gets the key and returns a body.
func register[I, O any](api huma.API, o huma.Operation, do func(ctx context.Context, k *apikey.Key, in *I) (*O, error)) {
	huma.Register(api, o, func(ctx context.Context, in *I) (*struct{ Body *O }, error) {
		body, err := do(ctx, keyFrom(ctx), in)
		return &struct{ Body *O }{body}, err
	})
}

//go:embed about.md
var about string
