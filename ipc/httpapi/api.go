package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval/apikey"
)

// Handler is the API without its listeners.
func (s *Server) Handler() http.Handler {
	s.init()
	s.built.Do(func() { s.handler = s.build() })
	return s.handler
}

func (s *Server) build() http.Handler {
	mux := http.NewServeMux()
	s.api(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { notFound(mux, w, r) })
	return s.recoverPanics(s.guard(mux))
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
			Info:    &huma.Info{Title: "permesso", Version: s.Version, Description: strings.TrimSpace(about)},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"key": {}}},
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

// spec is the OpenAPI document.
func spec(api huma.API) []byte {
	b, err := api.OpenAPI().MarshalJSON()
	doc := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err == nil {
		allowNulls(doc)
		b, err = json.Marshal(doc, json.Deterministic(true))
	}
	if err != nil {
		panic("encode OpenAPI document: " + err.Error()) // it is a constant
	}
	return b
}

// allowNulls adds null to the type of every optional member: the library accepts null but
// does not document it. An enumeration lists all allowed values, so null is added there
// too.
func allowNulls(doc map[string]any) {
	components, _ := doc["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name, raw := range schemas {
		schema, _ := raw.(map[string]any)
		required, _ := schema["required"].([]any)
		properties, _ := schema["properties"].(map[string]any)
		sent := slices.Contains([]string{"CreateRequest", "Target", "Verdict", "ReceiptBody"}, name)
		for key, raw := range properties {
			p, _ := raw.(map[string]any)
			if sent && !slices.Contains(required, any(key)) {
				properties[key] = orNull(p)
			}
			if types, ok := p["type"].([]any); ok && p["enum"] != nil && slices.Contains(types, any("null")) {
				p["enum"] = append(p["enum"].([]any), nil)
			}
		}
	}
}

func orNull(p map[string]any) map[string]any {
	if ref, ok := p["$ref"]; ok {
		return map[string]any{"oneOf": []any{map[string]any{"$ref": ref}, map[string]any{"type": "null"}}}
	}
	if kind, ok := p["type"].(string); ok {
		p["type"] = []any{kind, "null"}
	}
	return p
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

// register is huma.Register with the key as an argument.
func register[I, O any](api huma.API, o huma.Operation, do func(ctx context.Context, k *apikey.Key, in *I) (*O, error)) {
	huma.Register(api, o, func(ctx context.Context, in *I) (*O, error) {
		return do(ctx, keyFrom(ctx), in)
	})
}

//go:embed about.md
var about string
