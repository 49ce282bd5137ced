package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

const (
	maxSubscriptions = 1000
	ackTimeout       = 5 * time.Second
)

// streams are what either side listens to.
type streams struct {
	ofServer map[wire.ID]jsontext.Value    // a subscriptions/listen that was passed on: the client's id of it
	local    map[string]*listener          // one that is served here, by the client's id
	uris     map[string]context.CancelFunc // resources to which an older client has subscribed
	acks     map[wire.ID]chan struct{}     // ends when the server has heard of a listen of ours
	level    string                        // of log messages that a client of 2026-07-28 wants, "": none
	levelOf  *wire.Conn                    // the older server that was told
}

// listener is a client of 2026-07-28 that listens to an older server.
type listener struct {
	id   approval.Raw
	want wants
}

type wants struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
	acknowledged     = "notifications/subscriptions/acknowledged"
)

// hears tells whether a listener wants a notification; is says whether it is one that is listened to.
func (w wants) hears(method, uri string) (hears, is bool) {
	switch method {
	case toolsChanged:
		return w.Tools, true
	case promptsChanged:
		return w.Prompts, true
	case resourcesChanged:
		return w.Resources, true
	case resourceUpdated:
		return slices.Contains(w.URIs, uri), true
	}
	return true, false
}

// heard passes a notification of the server on. While the client does not read, the server waits.
func (g *Gateway) heard(conn *wire.Conn, method string, params approval.Raw) {
	params, err := clean(params)
	if err != nil {
		g.note("a notification of MCP server %s is no strict JSON", g.o.Server)
		return
	}
	client := g.session()
	stateless := wire.Stateless(conn.Version())
	switch {
	case client == nil:
	case stateless:
		params, pass := g.fromStream(client, method, params)
		if pass {
			g.notify(method, params)
		}
	case client.stateless:
		g.toListeners(method, params)
	default:
		g.notify(method, params)
	}
}

// fromStream names the client's subscription in a notification, or, for an older client, none.
func (g *Gateway) fromStream(client *session, method string, params approval.Raw) (_ approval.Raw, pass bool) {
	meta, err := metaOf(params)
	if err != nil {
		return nil, false
	}
	raw, has, err := wire.Member(meta, metaSubscription)
	if err != nil || !has {
		return params, err == nil
	}
	var id wire.ID
	if json.Unmarshal(raw, &id) != nil {
		return nil, false
	}
	g.mu.Lock()
	of := g.streams.ofServer[id]
	ack := g.streams.acks[id]
	if method == acknowledged {
		delete(g.streams.acks, id)
	}
	g.mu.Unlock()
	switch {
	case client.stateless && of == nil:
		return nil, false // of none that the client has
	case !client.stateless && method == acknowledged:
		if ack != nil {
			close(ack)
		}
		return nil, false
	case !client.stateless:
		of = nil
	}
	params, err = inMeta(params, metaSubscription, of)
	return params, err == nil
}

func (g *Gateway) toListeners(method string, params approval.Raw) {
	var p struct {
		URI string `json:"uri"`
	}
	_ = json.Unmarshal(params, &p)
	if method == "notifications/progress" {
		if params, err := g.progressOf(params); err == nil {
			g.notify(method, params)
		}
		return
	}
	if _, is := (wants{}).hears(method, p.URI); !is {
		g.mu.Lock()
		logs := g.streams.level != ""
		g.mu.Unlock()
		if logs || method != "notifications/message" {
			g.notify(method, params)
		}
		return
	}
	var ids []approval.Raw
	g.mu.Lock()
	for _, l := range g.streams.local {
		if hears, _ := l.want.hears(method, p.URI); hears {
			ids = append(ids, l.id)
		}
	}
	g.mu.Unlock()
	for _, id := range ids {
		one, err := inMeta(params, metaSubscription, id)
		if err != nil {
			return
		}
		g.notify(method, one)
	}
}

// listen answers subscriptions/listen, whose answer is the stream's end.
func (g *Gateway) listen(ctx context.Context, s *session, conn *wire.Conn, m message) (approval.Raw, error) {
	if !s.stateless {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "subscriptions/listen is of %s", wire.Version20260728)
	}
	if wire.Stateless(conn.Version()) {
		params, err := g.toServer(ctx, s, conn, m.Params)
		if err != nil {
			return nil, err
		}
		result, err := callAs(ctx, g, conn, params, g.streams.ofServer, m.ID)
		if err == nil {
			result, err = clean(result)
		}
		if err != nil {
			return nil, err
		}
		return inMeta(result, metaSubscription, m.ID)
	}
	var p struct {
		Want wants `json:"notifications"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil || len(p.Want.URIs) > maxSubscriptions {
		return nil, refuse(jsonrpc.CodeInvalidParams, "subscriptions/listen needs notifications, with at most %d resources", maxSubscriptions)
	}
	l := &listener{m.ID, p.Want}
	g.mu.Lock()
	g.streams.local[string(m.ID)] = l
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.streams.local, string(m.ID))
		var left []string
		for _, uri := range l.want.URIs {
			if !g.subscribed(uri) {
				left = append(left, uri)
			}
		}
		g.mu.Unlock()
		g.tell(context.WithoutCancel(ctx), conn, "resources/unsubscribe", left)
	}()
	for _, uri := range p.Want.URIs {
		if _, err := conn.Call(ctx, "resources/subscribe", uriParams(uri)); err != nil {
			return nil, err
		}
	}
	want, err := json.Marshal(p.Want)
	if err != nil {
		return nil, err
	}
	g.notify(acknowledged, approval.Raw(fmt.Sprintf(`{"notifications":%s,"_meta":{"%s":%s}}`, want, metaSubscription, m.ID)))
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-conn.Done():
		return nil, conn.Err()
	}
}

// callAs sends subscriptions/listen. all has v by its id until it ends.
func callAs[V any](ctx context.Context, g *Gateway, conn *wire.Conn, params approval.Raw, all map[wire.ID]V, v V) (approval.Raw, error) {
	var of wire.ID
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(all, of)
	}()
	return conn.CallAs(ctx, "subscriptions/listen", params, func(id wire.ID) {
		g.mu.Lock()
		defer g.mu.Unlock()
		of, all[id] = id, v
	})
}

// subscribed tells whether a listener that is served here wants a resource. g.mu is held.
func (g *Gateway) subscribed(uri string) bool {
	for _, l := range g.streams.local {
		if slices.Contains(l.want.URIs, uri) {
			return true
		}
	}
	return false
}

func (g *Gateway) tell(ctx context.Context, conn *wire.Conn, method string, uris []string) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	for _, uri := range uris {
		if _, err := conn.Call(ctx, method, uriParams(uri)); err != nil {
			return // it has ended, or does not know the resource
		}
	}
}

func uriParams(uri string) approval.Raw { return approval.Raw(`{"uri":` + string(quote(uri)) + `}`) }

// hearChanges listens, for an older client, to what a server of 2026-07-28 tells only to who listens.
func (g *Gateway) hearChanges() {
	conn := g.conns.now()
	client := g.session()
	if conn == nil || client == nil || client.stateless || !wire.Stateless(conn.Version()) {
		return
	}
	var d struct {
		Caps map[string]approval.Raw `json:"capabilities"`
	}
	if json.Unmarshal(conn.Server(), &d) != nil {
		return
	}
	tells := func(list string) bool {
		var c struct {
			Changed bool `json:"listChanged"`
		}
		return json.Unmarshal(d.Caps[list], &c) == nil && c.Changed
	}
	want := wants{Tools: tells("tools"), Prompts: tells("prompts"), Resources: tells("resources")}
	if !want.Tools && !want.Prompts && !want.Resources {
		return
	}
	if err := g.listenFor(g.ctx, conn, want); err != nil {
		g.note("MCP server %s does not tell when its lists change: %v", g.o.Server, err)
	}
}

// listenFor opens a stream that lasts as long as ctx, and returns when the server has heard of it.
func (g *Gateway) listenFor(ctx context.Context, conn *wire.Conn, want wants) error {
	b, err := json.Marshal(struct {
		Want wants `json:"notifications"`
	}{want})
	if err != nil {
		return err
	}
	ack, ended := make(chan struct{}), make(chan error, 1)
	g.work.Go(func() {
		_, err := callAs(ctx, g, conn, b, g.streams.acks, ack)
		ended <- err
	})
	select {
	case <-ack:
		return nil
	case err := <-ended:
		if err == nil {
			err = refuse(jsonrpc.CodeInvalidParams, "the server sends no such notifications")
		}
		return err
	case <-time.After(ackTimeout):
		return nil
	}
}

// subscribe answers resources/subscribe and resources/unsubscribe of an older client.
func (g *Gateway) subscribe(ctx context.Context, s *session, conn *wire.Conn, method string, params approval.Raw) (approval.Raw, error) {
	var p struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(params, &p) != nil || p.URI == "" {
		return nil, refuse(jsonrpc.CodeInvalidParams, "%s needs a uri", method)
	}
	var result approval.Raw
	stream, cancel := context.WithCancel(g.ctx)
	var err error
	if !wire.Stateless(conn.Version()) {
		result, err = g.pass(ctx, s, conn, method, params)
	} else if method == "resources/subscribe" {
		err = g.listenFor(stream, conn, wants{URIs: []string{p.URI}})
	}
	if err != nil {
		cancel()
		return result, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endStream(p.URI)
	switch {
	case method != "resources/subscribe":
		cancel()
	case len(g.streams.uris) >= maxSubscriptions:
		cancel()
		return nil, refuse(jsonrpc.CodeInternalError, "more than %d resources are subscribed to", maxSubscriptions)
	default:
		g.streams.uris[p.URI] = cancel
	}
	return result, nil
}

// endStream ends the stream of a resource, if there is one. g.mu is held.
func (g *Gateway) endStream(uri string) {
	if end := g.streams.uris[uri]; end != nil {
		end()
		delete(g.streams.uris, uri)
	}
}

// subscribeAgain tells a server that was started again what an older client listens to, and the client that all lists may
// have changed.
func (g *Gateway) subscribeAgain(conn *wire.Conn) {
	g.mu.Lock()
	client := g.client
	var uris []string
	for uri := range g.streams.uris {
		uris = append(uris, uri)
	}
	g.mu.Unlock()
	if client == nil || client.stateless {
		return
	}
	if !wire.Stateless(conn.Version()) {
		g.tell(g.ctx, conn, "resources/subscribe", uris)
	} else {
		g.hearChanges()
		for _, uri := range uris {
			stream, cancel := context.WithCancel(g.ctx)
			if g.listenFor(stream, conn, wants{URIs: []string{uri}}) != nil {
				cancel()
				continue
			}
			g.mu.Lock()
			g.endStream(uri)
			g.streams.uris[uri] = cancel
			g.mu.Unlock()
		}
	}
	g.notify(toolsChanged, nil)
}
