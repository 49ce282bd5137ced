package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// What each side may be, and what is done between two that differ:
//
//	client 2025-11-25, server 2026-07-28: initialize, ping, logging/setLevel and resources/subscribe are answered here, from
//	    server/discover and through subscriptions/listen; input_required becomes requests to the client and another round
//	client 2026-07-28, server 2025-11-25: server/discover and subscriptions/listen are answered here, from initialize and
//	    through resources/subscribe; a request of the server becomes input_required of a call that is under way

const (
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaLevel        = "io.modelcontextprotocol/logLevel"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaOurs         = "dev.permesso"

	codeVersion     = mcp.CodeUnsupportedProtocolVersion
	codeURLRequired = mcp.CodeURLElicitationRequired
	codeRejected    = -32005 // of the SDK's transport, not of a server: what is around it says why
)

func refuse(code int64, format string, args ...any) error {
	return &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// passing are the requests of clients that reach the server, or are answered for it. None but tools/call executes anything.
var passing = map[string]bool{
	"ping": true, "server/discover": true, "subscriptions/listen": true, "logging/setLevel": true, "completion/complete": true,
	"tools/list": true, "tools/call": true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"tasks/get": true, "tasks/list": true, "tasks/result": true, "tasks/update": true, "tasks/cancel": true,
}

// answer is the answer to a request of the client.
func (g *Gateway) answer(ctx context.Context, m message) (approval.Raw, error) {
	method := *m.Method
	if method == "initialize" {
		return g.initialize(ctx, m.Params)
	}
	s, err := g.sessionOf(method, m.Params)
	if err != nil {
		return nil, err
	}
	if s == nil { // ping before initialize
		return nil, nil
	}
	if !passing[method] { // it could be a name by which the server executes a tool
		return nil, refuse(jsonrpc.CodeMethodNotFound, "the gateway passes on only what the protocol knows, and that has no %.100q", show(method))
	}
	if s.stateless && slices.Contains(removed, method) {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "%s is no method of %s", method, wire.Version20260728)
	}
	conn, err := g.server(ctx, s)
	if err != nil {
		return nil, err
	}
	apart := s.stateless != wire.Stateless(conn.Version())
	switch method {
	case "tools/call":
		return g.call(ctx, s, m.Params)
	case "tools/list":
		result, err := g.pass(ctx, s, conn, method, m.Params)
		if err == nil {
			result, err = g.listed(result)
		}
		return result, err
	case "prompts/get", "resources/read":
		return g.inRounds(ctx, s, method, m.Params)
	case "server/discover":
		return g.discover(ctx, s, conn, m.Params)
	case "subscriptions/listen":
		return g.listen(ctx, s, conn, m)
	case "ping":
		if apart {
			return nil, nil
		}
	case "logging/setLevel":
		if apart {
			return nil, g.setLevel(m.Params)
		}
	case "resources/subscribe", "resources/unsubscribe":
		return g.subscribe(ctx, s, conn, method, m.Params)
	}
	return g.pass(ctx, s, conn, method, m.Params)
}

// removed are the methods that 2026-07-28 no longer has, and an older server may.
var removed = []string{"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// session is what the client has said of itself, nil if nothing.
func (g *Gateway) session() *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.client
}

// sessionOf reads from whom a request is, and refuses a client that mixes versions.
func (g *Gateway) sessionOf(method string, params approval.Raw) (*session, error) {
	meta, err := metaOf(params)
	if err != nil {
		return nil, err
	}
	known := g.session()
	raw, has, err := wire.Member(meta, wire.MetaVersion)
	if err != nil {
		return nil, refuse(jsonrpc.CodeInvalidParams, "_meta: %v", err)
	}
	if !has {
		switch {
		case known != nil && !known.stateless:
			return known, nil
		case known == nil && method == "ping":
			return nil, nil
		case known == nil:
			return nil, refuse(jsonrpc.CodeInvalidParams, "send initialize first, or, from %s on, _meta with %s in every request", wire.Version20260728, wire.MetaVersion)
		}
		return nil, refuse(jsonrpc.CodeInvalidParams, "_meta lacks %s", wire.MetaVersion)
	}
	var version string
	if json.Unmarshal(raw, &version) != nil {
		return nil, refuse(jsonrpc.CodeInvalidParams, "%s must be a string", wire.MetaVersion)
	}
	if version != wire.Version20260728 {
		data, err := json.Marshal(map[string]any{"supported": []string{wire.Version20260728}, "requested": version})
		if err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{Code: codeVersion, Message: "Unsupported protocol version", Data: data}
	}
	if known != nil && !known.stateless {
		return nil, refuse(jsonrpc.CodeInvalidRequest, "this connection has begun with initialize: %s cannot be mixed in", version)
	}
	caps, has, err := wire.Member(meta, wire.MetaCapabilities)
	if err != nil || !has || caps.Kind() != '{' {
		return nil, refuse(jsonrpc.CodeInvalidParams, "_meta lacks %s", wire.MetaCapabilities)
	}
	s := &session{stateless: true, version: version}
	if s.caps, err = g.declared(caps); err != nil {
		return nil, err
	}
	if s.info, _, err = wire.Member(meta, wire.MetaClient); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.client == nil && method != "server/discover" || g.client != nil && g.client.stateless {
		g.client = s // one that only discovers may still choose initialize
	}
	return s, nil
}

func metaOf(params approval.Raw) (approval.Raw, error) {
	meta, has, err := wire.Member(params, "_meta")
	if err != nil || has && meta.Kind() != '{' {
		return nil, refuse(jsonrpc.CodeInvalidParams, "params and _meta must be objects")
	}
	return meta, nil
}

// inMeta is an object with a member of its _meta set, or without it if value is empty.
func inMeta(object approval.Raw, name string, value approval.Raw) (approval.Raw, error) {
	meta, err := metaOf(object)
	if err == nil {
		meta, err = wire.With(meta, name, value)
	}
	if err != nil {
		return nil, err
	}
	if string(meta) == "{}" {
		meta = nil
	}
	return wire.With(object, "_meta", meta)
}

// declared is what the server may know of the client's capabilities.
func (g *Gateway) declared(caps approval.Raw) (approval.Raw, error) {
	var err error
	if !g.o.Sampling && err == nil {
		caps, err = without(caps, "sampling")
	}
	if !g.o.Roots && err == nil {
		caps, err = without(caps, "roots")
	}
	return caps, err
}

// without keeps the bytes of an object that lacks the member.
func without(object approval.Raw, name string) (approval.Raw, error) {
	if _, has, err := wire.Member(object, name); !has {
		return object, err
	}
	return wire.With(object, name, nil)
}

func (g *Gateway) initialize(ctx context.Context, params approval.Raw) (approval.Raw, error) {
	if meta, err := metaOf(params); err != nil {
		return nil, err
	} else if _, newer, err := wire.Member(meta, wire.MetaVersion); err != nil || newer {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "initialize is no method of %s", wire.Version20260728)
	}
	var p struct {
		Version string       `json:"protocolVersion"`
		Caps    approval.Raw `json:"capabilities"`
		Info    approval.Raw `json:"clientInfo"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.Caps.Kind() != '{' || p.Info.Kind() != '{' {
		return nil, refuse(jsonrpc.CodeInvalidParams, "initialize needs protocolVersion, capabilities and clientInfo")
	}
	caps, err := g.declared(p.Caps)
	if err != nil {
		return nil, err
	}
	s := &session{version: p.Version, info: p.Info, caps: caps}
	if known := mcp.SupportedProtocolVersions(); wire.Stateless(s.version) || !slices.Contains(known, s.version) {
		s.version = wire.Version20251125
	}
	g.mu.Lock()
	again := g.client != nil
	if !again {
		g.client = s
	}
	g.mu.Unlock()
	if again {
		return nil, refuse(jsonrpc.CodeInvalidRequest, "this connection has begun already: initialize comes first and once")
	}
	conn, err := g.server(ctx, s)
	if err != nil {
		g.mu.Lock()
		g.client = nil // it may try again
		g.mu.Unlock()
		return nil, err
	}
	if !wire.Stateless(conn.Version()) {
		return clean(conn.Server())
	}
	return initializeResult(conn.Server(), s.version, g.o.Server)
}

// introduction is what a server says of itself, in the result of initialize or of server/discover.
type introduction struct {
	Capabilities approval.Raw            `json:"capabilities"`
	Instructions approval.Raw            `json:"instructions"`
	Info         approval.Raw            `json:"serverInfo"` // of initialize
	Meta         map[string]approval.Raw `json:"_meta"`      // of server/discover
}

// introductionOf reads it, without the capability that the other version does not know, or takes for another one.
func introductionOf(result approval.Raw, capability string) (i introduction, err error) {
	if err := json.Unmarshal(result, &i); err != nil {
		return i, err
	}
	if i.Capabilities.Kind() != '{' {
		i.Capabilities = approval.Raw(`{}`)
	}
	i.Capabilities, err = without(i.Capabilities, capability)
	return i, err
}

// result adds it to the members of a result in the other version, with a last one.
func (i introduction) result(members []codec.Field, last codec.Field) approval.Raw {
	members = append(members, codec.Field{Name: "capabilities", Value: i.Capabilities})
	if len(i.Instructions) > 0 {
		members = append(members, codec.Field{Name: "instructions", Value: i.Instructions})
	}
	return codec.Object(append(members, last))
}

// initializeResult says in the older version what server/discover has said.
func initializeResult(discovered approval.Raw, version, name string) (approval.Raw, error) {
	d, err := introductionOf(discovered, "extensions") // its methods are those of the newer version
	if err != nil {
		return nil, err
	}
	info := d.Meta[metaServer]
	if info.Kind() != '{' {
		info = approval.Raw(`{"name":` + string(quote(name)) + `,"version":""}`)
	}
	return d.result([]codec.Field{{Name: "protocolVersion", Value: quote(version)}}, codec.Field{Name: "serverInfo", Value: info}), nil
}

// discover answers server/discover.
func (g *Gateway) discover(ctx context.Context, s *session, conn *wire.Conn, params approval.Raw) (approval.Raw, error) {
	result := conn.Server()
	var err error
	if wire.Stateless(conn.Version()) {
		if result, err = g.pass(ctx, s, conn, "server/discover", params); err != nil {
			return nil, err
		}
	} else if result, err = discoverResult(result); err != nil {
		return nil, err
	}
	var d struct {
		Versions []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(result, &d); err != nil {
		return nil, err
	}
	if len(d.Versions) == 1 && d.Versions[0] == wire.Version20260728 {
		return result, nil
	}
	return wire.With(result, "supportedVersions", approval.Raw(`["`+wire.Version20260728+`"]`)) // those that are known here
}

// discoverResult says in the newer version what initialize has said.
func discoverResult(initialized approval.Raw) (approval.Raw, error) {
	i, err := introductionOf(initialized, "tasks") // another protocol than the extension of that name
	if err != nil {
		return nil, err
	}
	meta, err := wire.With(nil, metaServer, i.Info)
	return i.result([]codec.Field{
		{Name: "resultType", Value: quote("complete")},
		{Name: "supportedVersions", Value: codec.Array([]approval.Raw{quote(wire.Version20260728)})},
		{Name: "ttlMs", Value: approval.Raw("0")},
		{Name: "cacheScope", Value: quote("private")},
	}, codec.Field{Name: "_meta", Value: meta}), err
}

// pass sends a request to the server and returns its result in the client's version. One that asks for input is no result.
func (g *Gateway) pass(ctx context.Context, s *session, conn *wire.Conn, method string, params approval.Raw) (approval.Raw, error) {
	params, err := g.toServer(ctx, s, conn, params)
	if err != nil {
		return nil, err
	}
	result, err := conn.Call(ctx, method, params)
	if err != nil {
		return nil, g.errorFor(s, err)
	}
	return toClient(s, conn, method, result)
}

// toServer gives parameters the form of the server's version; the connection adds what is missing.
func (g *Gateway) toServer(ctx context.Context, s *session, conn *wire.Conn, params approval.Raw) (approval.Raw, error) {
	meta, err := metaOf(params)
	if err != nil {
		return nil, err
	}
	switch stateless := wire.Stateless(conn.Version()); {
	case s.stateless && stateless:
		own, _, err := wire.Member(meta, wire.MetaCapabilities)
		if err != nil || bytes.Equal(own, s.caps) {
			return params, err
		}
		return inMeta(params, wire.MetaCapabilities, s.caps)
	case stateless:
		if level := g.level(); level != "" {
			return inMeta(params, metaLevel, quote(level))
		}
		return params, nil
	case !s.stateless:
		return params, nil
	}
	if err := g.askForLogs(ctx, conn, meta); err != nil {
		return nil, err
	}
	for _, name := range []string{wire.MetaVersion, wire.MetaClient, wire.MetaCapabilities, metaLevel} {
		if meta, err = without(meta, name); err != nil {
			return nil, err
		}
	}
	if string(meta) == "{}" {
		meta = nil
	}
	return wire.With(params, "_meta", meta)
}

// toClient gives a result the form of the client's version.
func toClient(s *session, conn *wire.Conn, method string, result approval.Raw) (approval.Raw, error) {
	result, err := clean(result)
	if err != nil {
		return nil, err
	}
	stateless := wire.Stateless(conn.Version())
	switch {
	case s.stateless == stateless:
		return result, nil
	case stateless:
		if kind := resultType(result); kind != "complete" {
			return nil, fmt.Errorf("the server's result is of the type %.40q, which a client of %s does not know", kind, s.version)
		}
		return without(result, "resultType")
	}
	if result, err = wire.With(result, "resultType", approval.Raw(`"complete"`)); err != nil {
		return nil, err
	}
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		if result, err = wire.With(result, "ttlMs", approval.Raw("0")); err == nil {
			result, err = wire.With(result, "cacheScope", approval.Raw(`"private"`))
		}
	}
	return result, err
}

// resultType is "complete" where a result has none.
func resultType(result approval.Raw) string {
	raw, has, err := wire.Member(result, "resultType")
	var kind string
	if err != nil || has && json.Unmarshal(raw, &kind) != nil {
		return "invalid"
	}
	if !has {
		return "complete"
	}
	return kind
}

// clean takes our own names out of a server's _meta.
func clean(result approval.Raw) (approval.Raw, error) {
	if !bytes.Contains(result, []byte(metaOurs)) && !bytes.Contains(result, []byte(`\u00`)) { // how else ASCII may be written
		return result, nil
	}
	meta, has, err := wire.Member(result, "_meta")
	if err != nil {
		return nil, fmt.Errorf("the server's result: %w", err)
	}
	if !has || meta.Kind() != '{' {
		return result, nil
	}
	fields, err := codec.Fields(meta)
	if err != nil {
		return nil, fmt.Errorf("the server's result: %w", err)
	}
	kept := meta
	for _, f := range fields {
		if f.Name == metaOurs || strings.HasPrefix(f.Name, metaOurs+"/") || strings.HasPrefix(f.Name, metaOurs+".") {
			if kept, err = wire.With(kept, f.Name, nil); err != nil {
				return nil, err
			}
		}
	}
	if len(kept) == len(meta) {
		return result, nil
	}
	if string(kept) == "{}" {
		kept = nil
	}
	return wire.With(result, "_meta", kept)
}

// errorFor is an error of the server without what is ours, and screens the one of the protocol that asks for something: the
// person is to open URLs first.
func (g *Gateway) errorFor(s *session, err error) error {
	var own *jsonrpc.Error
	if !errors.As(err, &own) || own.Code == codeRejected {
		return err
	}
	if own.Code != codeURLRequired {
		data, err := clean(approval.Raw(own.Data))
		if err != nil {
			data = nil
		}
		return &jsonrpc.Error{Code: own.Code, Message: own.Message, Data: []byte(data)}
	}
	var data struct {
		Elicitations []approval.Raw `json:"elicitations"`
	}
	if json.Unmarshal(own.Data, &data) != nil {
		return refuse(jsonrpc.CodeInternalError, "the server wants a URL to be opened, but names none")
	}
	var hosts []string
	for i, params := range data.Elicitations {
		screened, host, err := screenURL(params)
		if err != nil {
			return err
		}
		data.Elicitations[i] = screened
		hosts = append(hosts, host)
	}
	if s.stateless { // which does not know the code
		return refuse(jsonrpc.CodeInternalError, "the server wants a page to be opened first, at %s", strings.Join(hosts, ", "))
	}
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: own.Code, Message: own.Message, Data: b}
}

// askForLogs sets an older server's level of log messages, which a client of 2026-07-28 says in each request that wants them.
func (g *Gateway) askForLogs(ctx context.Context, conn *wire.Conn, meta approval.Raw) error {
	raw, has, err := wire.Member(meta, metaLevel)
	var level string
	if err != nil || !has || json.Unmarshal(raw, &level) != nil {
		return err
	}
	g.mu.Lock()
	set := g.streams.level == level && g.streams.levelOf == conn
	g.streams.level, g.streams.levelOf = level, conn
	g.mu.Unlock()
	if set {
		return nil
	}
	_, err = conn.Call(ctx, "logging/setLevel", approval.Raw(`{"level":`+string(quote(level))+`}`))
	var own *jsonrpc.Error
	if errors.As(err, &own) {
		return nil // it has no log messages
	}
	return err
}

func (g *Gateway) setLevel(params approval.Raw) error {
	var p struct {
		Level string `json:"level"`
	}
	if json.Unmarshal(params, &p) != nil || p.Level == "" {
		return refuse(jsonrpc.CodeInvalidParams, "logging/setLevel needs a level")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.client != nil {
		g.client.level = p.Level
	}
	return nil
}

func (g *Gateway) level() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.client == nil {
		return ""
	}
	return g.client.level
}
