package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// Handler is the door without its listeners.
func (s *Server) Handler() http.Handler {
	s.init()
	mux := http.NewServeMux()
	s.api(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { nowhere(mux, w, r) })
	return s.recovered(s.guard(mux))
}

// nowhere answers what has no operation.
func nowhere(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		problem(http.StatusNotFound, "there is nothing here").write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem(http.StatusMethodNotAllowed, "use "+strings.Join(allowed, " or ")+" here").write(w)
}

// api declares every operation. What the document says of them is made from the
// same types that read and write them.
func (s *Server) api(mux *http.ServeMux) huma.API {
	humaHooks()
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "permesso", Version: s.Version, Description: about},
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
	api.UseMiddleware(s.scoped)
	s.approvals(api)
	s.consents(api)
	s.receipts(api)
	s.events(api)
	s.inbox(api)
	s.house(api, mux)
	document := spec(api)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document)
	})
	return api
}

// spec is the document of the API, written once.
func spec(api huma.API) []byte {
	b, err := api.OpenAPI().MarshalJSON()
	doc := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err == nil {
		nulls(doc)
		b, err = json.Marshal(doc, json.Deterministic(true))
	}
	if err != nil {
		panic("the API's description does not encode: " + err.Error()) // it is a constant
	}
	return b
}

// nulls says of what may be missing that it may be null too, which the library
// permits and does not say. An enumeration is the whole of what is allowed, whatever
// the type says, so that null has to stand there as well.
func nulls(doc map[string]any) {
	components, _ := doc["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name, raw := range schemas {
		schema, _ := raw.(map[string]any)
		required, _ := schema["required"].([]any)
		properties, _ := schema["properties"].(map[string]any)
		sent := slices.Contains([]string{"Wish", "Target", "Verdict", "Paper"}, name)
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

// Document is the OpenAPI document, without a server behind it.
func Document(version string) []byte {
	s := &Server{Version: version}
	s.init()
	return spec(s.api(http.NewServeMux()))
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
		MaxBodyBytes:    64 << 20, // the guard has seen to that
		BodyReadTimeout: -1,
	}
}

// scoped refuses keys that may not do what they ask for, before a body is looked
// at.
func (s *Server) scoped(ctx huma.Context, next func(huma.Context)) {
	need, ok := ctx.Operation().Metadata[scopes].([]string)
	k := keyIn(ctx.Context())
	if !ok || !slices.ContainsFunc(need, k.Can) {
		_, w := humago.Unwrap(ctx)
		problem(http.StatusForbidden, "this key may not do that: it needs the scope "+strings.Join(need, " or ")).write(w)
		return
	}
	next(ctx)
}

// register is huma.Register with the key handed on.
func register[I, O any](api huma.API, o huma.Operation, do func(ctx context.Context, k *approval.APIKey, in *I) (*O, error)) {
	huma.Register(api, o, func(ctx context.Context, in *I) (*O, error) {
		return do(ctx, keyIn(ctx), in)
	})
}

const about = `A gate for AI agents: a request is allowed or refused by policy, or a person is asked.

**Statuses.** An approval has one of four: ` + "`pending`, `approved`, `denied`, `expired`" + `. What exactly happened
stands in ` + "`outcome`" + `, and what became of the action in ` + "`execution`" + `:

| outcome | status | execution | what it means |
|---|---|---|---|
| null | pending | null | a person is being asked, or what was approved waits to be started |
| null | approved | running | approved for good, and started |
| approved | approved | done | a person approved it, and it was done; a release-only request was released with its receipt |
| auto_approved | approved | done | the same by policy or remembered consent; ` + "`auto`" + ` is true |
| failed | approved | failed | approved; it was started and failed, or could not be started: see ` + "`error`" + ` |
| interrupted | approved | interrupted | approved and started; how far it came is unknown. It is never run again by itself |
| overridden | approved | none | code 5: nothing ran. Do what ` + "`decision.override`" + ` says instead, and ask anew for that |
| answered | approved | none | a question was answered: see ` + "`result`" + ` |
| denied | denied | none | a person said no; ` + "`feedback`" + ` may say why |
| auto_rejected | denied | none | policy or a limit said no: see ` + "`error`" + `; ` + "`auto`" + ` is true |
| request_more | denied | none | the person asks for more: see ` + "`feedback`" + `, and ask again |
| cancelled | denied | none | its own client took it back |
| malformed | denied | none | only of requests that came as files |
| expired | expired | none | nobody answered in time, or it was approved and could not be started in time |

A client that only knows the four statuses must still look at the code: **5 means that nothing ran**.

**Codes.** 1 allow once, 2 allow for this session, 3 deny, 4 allow once with a note, 5 not like this but otherwise,
6 always allow this type of action.

**Whose.** A key with the scope ` + "`request`" + ` sees what it asked itself, and nothing else exists for it. A key without it sees
its whole workspace. ` + "`request`" + ` never goes together with ` + "`decide`" + ` or ` + "`inbound`" + `.

**Once.** With an ` + "`Idempotency-Key`" + ` a request can be sent again until an answer comes: the same key and the same body are
the same approval. Without an answer it is not known whether a request was accepted.

**Numbers** in ` + "`request_data`" + ` are kept digit by digit, however large they are.`
