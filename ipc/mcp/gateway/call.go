package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// call has a call of a tool judged, and sends it to the server, once, if it is allowed.
func (g *Gateway) call(ctx context.Context, s *session, params approval.Raw) (approval.Raw, error) {
	var p asked
	if err := json.Unmarshal(params, &p); err != nil || p.Name == "" {
		return nil, refuse(jsonrpc.CodeInvalidParams, "tools/call needs a name, and members of the right types")
	}
	if len(p.Arguments) == 0 {
		p.Arguments = approval.Raw(`{}`)
	}
	if p.Arguments.Kind() != '{' {
		return nil, refuse(jsonrpc.CodeInvalidParams, "the arguments of a tool must be an object")
	}
	if isRound(p.State) {
		ctx = wire.WithSchema(ctx, g.tools.schemaOf(p.Name))
		return g.resume(ctx, s, "tools/call", params, p.State)
	}
	if p.State == "" {
		if result, err := g.judged(ctx, s, params, p, true); !errors.Is(err, errChanged) {
			return result, err
		}
	}
	return g.judged(ctx, s, params, p, false)
}

// asked is what a client says with tools/call.
type asked struct {
	Name      string       `json:"name"`
	Arguments approval.Raw `json:"arguments"`
	Meta      approval.Raw `json:"_meta"`
	State     string       `json:"requestState"`
}

// judged has a call judged, and sends it to the server if it is allowed. known: by the definition that is known already.
// The list is fetched meanwhile, and if it says something else, the error is errChanged.
func (g *Gateway) judged(ctx context.Context, s *session, params approval.Raw, p asked, known bool) (approval.Raw, error) {
	conn, err := g.server(ctx, s)
	if err != nil {
		return nil, err
	}
	age := time.Duration(0)
	if known {
		age = oldFetch
	}
	began := time.Now()
	t, err := g.toolNamed(ctx, conn, p.Name, age)
	var misfit error
	if t != nil {
		misfit = g.schemas.check(t.schema, p.Arguments)
	}
	switch {
	case err != nil:
		return nil, err
	case known && (t == nil || t.refused != "" || misfit != nil):
		return nil, errChanged // if it has
	case t == nil:
		return nil, refuse(jsonrpc.CodeInvalidParams, "the server lists no tool %.200q", show(p.Name))
	case t.refused != "":
		return toolError(s, "The gateway refuses this tool: "+t.refused+".")
	case misfit != nil:
		return toolError(s, "The arguments do not fit the tool's inputSchema: "+misfit.Error())
	}
	c := Call{
		Server: g.o.Server, Name: t.name, Definition: approval.Digest(t.definition),
		Meta: p.Meta, State: p.State, Stateless: s.stateless, Progress: g.progress(p.Meta),
	}
	if c.Changes, err = g.o.Pins.changes(g.o.Identity, t.definition, t.name); err != nil {
		return toolError(s, err.Error())
	}
	if c.Tool, c.Arguments, err = g.inGate(t.name, p.Arguments); err != nil {
		return nil, err
	}
	judging, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	changed := func() bool { return false }
	if known {
		looked := make(chan struct{})
		changed = func() bool { <-looked; return errors.Is(context.Cause(judging), errChanged) }
		g.work.Go(func() {
			defer close(looked)
			if now, err := g.toolNamed(ctx, conn, p.Name, time.Since(began)); err == nil && !now.is(c.Definition) {
				cancel(errChanged)
			}
		})
	}
	v, err := g.o.Judge.Judge(judging, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case (err != nil || len(v.Result) > 0) && changed():
		return nil, errChanged
	case err != nil:
		return toolError(s, err.Error())
	case len(v.Result) > 0:
		return withType(s, v.Result)
	}
	finish := v.Done
	if finish == nil {
		finish = func(result approval.Raw, err error) (approval.Raw, error) { return result, err }
	}
	to, params, err := g.allowed(ctx, s, params, p.Name, c, began)
	if err != nil {
		result, err := finish(nil, notCalled(err))
		if changed() {
			err = errChanged
		}
		return result, err
	}
	return g.begin(wire.WithSchema(ctx, t.schema), s, to, "tools/call", params, finish)
}

// errChanged takes a call back that was judged by an old definition.
var errChanged = fmt.Errorf("%w: the tool's definition has changed", ErrTakenBack)

// ErrNotCalled says that an allowed call has not reached the server, and never will.
var ErrNotCalled = errors.New("the server was not called")

func notCalled(err error) error { return fmt.Errorf("%w: %w", ErrNotCalled, err) }

// judgedAtOnce is how long a Judge may take without a new look at the tool's definition.
const judgedAtOnce = 50 * time.Millisecond

// allowed is what the server gets of an allowed call, and the connection for it. The person may have needed long: a tool
// that has become another one meanwhile is not called.
func (g *Gateway) allowed(ctx context.Context, s *session, params approval.Raw, name string, c Call, began time.Time) (*wire.Conn, approval.Raw, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	conn, err := g.server(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	t, err := g.toolNamed(ctx, conn, name, min(judgedAtOnce, time.Since(began)))
	if err != nil {
		return nil, nil, err
	}
	if !t.is(c.Definition) {
		return nil, nil, refuse(jsonrpc.CodeInvalidParams, "the tool's definition has changed while the call waited; it was not called: call it again to ask about the new one")
	}
	if err := g.o.Pins.pin(g.o.Identity, t.definition, t.name); err != nil {
		return nil, nil, fmt.Errorf("the definition cannot be kept: %w", err)
	}
	if c.State != "" || !s.stateless || !wire.Stateless(conn.Version()) { // they are the Judge's, or of no version that both know
		for _, member := range []string{"requestState", "inputResponses"} {
			if params, err = without(params, member); err != nil {
				return nil, nil, err
			}
		}
	}
	if t.name != name {
		params, err = wire.With(params, "name", quote(t.name))
	}
	return conn, params, err
}

// progress tells the client that a call still waits, if it wants to know.
func (g *Gateway) progress(meta approval.Raw) func(string) {
	token, has, err := wire.Member(meta, "progressToken")
	if err != nil || !has || token.Kind() != '"' && token.Kind() != '0' {
		return nil
	}
	said := 0
	return func(text string) {
		said++ // each number is larger than the last; the server's own come after them
		g.notify("notifications/progress", approval.Raw(fmt.Sprintf(`{"progressToken":%s,"progress":%.6f,"message":%s}`, token, float64(said)/1e6, quote(text))))
	}
}

func toolError(s *session, text string) (approval.Raw, error) {
	return withType(s, approval.Raw(`{"content":[{"type":"text","text":`+string(quote(text))+`}],"isError":true}`))
}

// withType adds the type of a complete result for a client that needs one.
func withType(s *session, result approval.Raw) (approval.Raw, error) {
	_, has, err := wire.Member(result, "resultType")
	if err != nil || has || !s.stateless {
		return result, err
	}
	return wire.With(result, "resultType", approval.Raw(`"complete"`))
}

const (
	maxRounds    = 10
	maxWaiting   = 1000             // requests whose answer was input_required
	roundTimeout = 10 * time.Minute // for the client to come back
	roundPrefix  = "permesso-round-"
)

// isRound tells whether a requestState is one of those below; any other is the Judge's.
func isRound(state string) bool { return strings.HasPrefix(state, roundPrefix) }

// rounds are requests between two rounds. A requestState for the client is the unguessable name of one, which is good for
// the same request, once: the server's own state stays here.
type rounds struct {
	waiting map[string]*round
	open    []*held
	asked   int
}

type finisher = func(approval.Raw, error) (approval.Raw, error)

type round struct {
	same   string               // the request
	state  approval.Raw         // of a server of 2026-07-28
	held   *held                // of an older server
	asked  map[string]*question // of held
	finish finisher
	expiry *time.Timer
}

// held is a call to an older server that stays open while the client is asked.
type held struct {
	conn      *wire.Conn
	caps      approval.Raw
	ctx       context.Context
	cancel    context.CancelFunc
	questions chan *question
	done      chan reply

	token, now approval.Raw // the progress token that its server knows, and the one of the client's present request
}

type question struct {
	inputRequest
	answer chan approval.Raw
}

// inRounds passes on a request that a server may answer with input_required, and that is not judged.
func (g *Gateway) inRounds(ctx context.Context, s *session, method string, params approval.Raw) (approval.Raw, error) {
	raw, _, err := wire.Member(params, "requestState")
	if err != nil {
		return nil, refuse(jsonrpc.CodeInvalidParams, "%v", err)
	}
	var state string
	if len(raw) > 0 && json.Unmarshal(raw, &state) != nil || state != "" && !isRound(state) {
		return nil, errState
	}
	if state != "" {
		return g.resume(ctx, s, method, params, state)
	}
	conn, err := g.server(ctx, s)
	if err != nil {
		return nil, err
	}
	return g.begin(ctx, s, conn, method, params, func(result approval.Raw, err error) (approval.Raw, error) { return result, err })
}

// begin sends a request to the server for the first time.
func (g *Gateway) begin(ctx context.Context, s *session, conn *wire.Conn, method string, params approval.Raw, finish finisher) (approval.Raw, error) {
	same, err := sameRequest(method, params)
	if err != nil {
		return finish(nil, notCalled(err))
	}
	if params, err = g.toServer(ctx, s, conn, params); err != nil {
		return finish(nil, notCalled(err))
	}
	switch stateless := wire.Stateless(conn.Version()); {
	case !s.stateless && stateless:
		return g.askInRounds(ctx, s, conn, method, params, finish)
	case s.stateless && !stateless:
		return g.await(ctx, s, method, same, g.hold(conn, s, method, params), finish)
	}
	result, err := conn.Call(ctx, method, params)
	return g.ended(s, conn, method, same, result, err, finish)
}

// ended gives the client the server's result. One that asks for input is not the end.
func (g *Gateway) ended(s *session, conn *wire.Conn, method, same string, result approval.Raw, err error, finish finisher) (approval.Raw, error) {
	if err != nil {
		return finish(nil, g.errorFor(s, err))
	}
	if wire.Stateless(conn.Version()) && resultType(result) == "input_required" {
		asked, err := g.askAgain(s, same, result, finish)
		if err != nil {
			return finish(nil, err)
		}
		return asked, nil
	}
	return finish(toClient(s, conn, method, result))
}

// askAgain is a server's input_required for the client, with a state of ours.
func (g *Gateway) askAgain(s *session, same string, result approval.Raw, finish finisher) (approval.Raw, error) {
	result, err := clean(result)
	if err != nil {
		return nil, err
	}
	list, err := g.inputs(result, s.caps)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		all, err := inputRequests(list)
		if err != nil {
			return nil, err
		}
		if result, err = wire.With(result, "inputRequests", all); err != nil {
			return nil, err
		}
	}
	state, _, err := wire.Member(result, "requestState")
	if err != nil {
		return nil, err
	}
	name, err := g.wait(&round{same: same, state: state, finish: finish})
	if err != nil {
		return nil, err
	}
	return wire.With(result, "requestState", quote(name))
}

// wait keeps a round until the client comes back.
func (g *Gateway) wait(r *round) (state string, err error) {
	state = roundPrefix + rand.Text()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.rounds.waiting) >= maxWaiting {
		return "", fmt.Errorf("more than %d requests wait for input", maxWaiting)
	}
	g.rounds.waiting[state] = r
	r.expiry = time.AfterFunc(roundTimeout, func() {
		g.mu.Lock()
		_, waits := g.rounds.waiting[state]
		delete(g.rounds.waiting, state)
		g.mu.Unlock()
		if waits {
			r.drop(errors.New("the client did not come back with what the server asked for"))
		}
	})
	return state, nil
}

// dropRounds ends all rounds: the client has gone.
func (g *Gateway) dropRounds() {
	g.mu.Lock()
	all := g.rounds.waiting
	g.rounds.waiting = map[string]*round{}
	g.mu.Unlock()
	for _, r := range all {
		r.expiry.Stop()
		r.drop(errClosed)
	}
}

// drop ends a round that does not go on.
func (r *round) drop(why error) {
	if r.held != nil {
		r.held.cancel()
	}
	_, _ = r.finish(nil, why)
}

var errState = refuse(jsonrpc.CodeInvalidParams, "this requestState is not known, was used, has expired, or belongs to another request: make the request without it")

// resume goes on with a request with which the client comes back.
func (g *Gateway) resume(ctx context.Context, s *session, method string, params approval.Raw, state string) (approval.Raw, error) {
	same, err := sameRequest(method, params)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	r := g.rounds.waiting[state]
	if r == nil || r.same != same {
		g.mu.Unlock()
		return nil, errState
	}
	delete(g.rounds.waiting, state)
	g.mu.Unlock()
	r.expiry.Stop()
	if r.held != nil {
		return g.answerHeld(ctx, s, method, params, r)
	}
	conn, err := g.server(ctx, s)
	if err == nil && !wire.Stateless(conn.Version()) {
		err = errState // another server than before
	}
	if err == nil {
		params, err = g.toServer(ctx, s, conn, params)
	}
	if err == nil {
		params, err = wire.With(params, "requestState", r.state)
	}
	if err != nil {
		return r.finish(nil, err)
	}
	result, err := conn.Call(ctx, method, params)
	return g.ended(s, conn, method, same, result, err, r.finish)
}

// sameRequest is a digest of all that two rounds of a request have in common.
func sameRequest(method string, params approval.Raw) (string, error) {
	fields, err := codec.Fields(params)
	if err != nil {
		return "", refuse(jsonrpc.CodeInvalidParams, "%v", err)
	}
	slices.SortFunc(fields, func(a, b codec.Field) int { return strings.Compare(a.Name, b.Name) })
	parts := [][]byte{[]byte(method)}
	for _, f := range fields {
		if f.Name != "_meta" && f.Name != "requestState" && f.Name != "inputResponses" {
			parts = append(parts, []byte(f.Name), f.Value)
		}
	}
	return approval.DigestAll(parts...), nil
}

// askInRounds asks an older client what a server of 2026-07-28 wants to know, until the server has an end.
func (g *Gateway) askInRounds(ctx context.Context, s *session, conn *wire.Conn, method string, params approval.Raw, finish finisher) (approval.Raw, error) {
	next := params
	for n := range maxRounds {
		result, err := conn.Call(ctx, method, next)
		if err != nil {
			return finish(nil, g.errorFor(s, err))
		}
		if resultType(result) != "input_required" {
			return finish(toClient(s, conn, method, result))
		}
		list, err := g.inputs(result, s.caps)
		if err != nil {
			return finish(nil, err)
		}
		var answers approval.Raw
		for _, q := range list {
			answer, err := g.ask(ctx, q.method, q.params)
			if err == nil {
				answers, err = wire.With(answers, q.key, answer)
			}
			if err != nil {
				return finish(nil, err)
			}
		}
		if len(list) == 0 {
			select {
			case <-time.After(min(time.Second<<n, 8*time.Second)):
			case <-ctx.Done():
				return finish(nil, ctx.Err())
			}
		}
		state, _, err := wire.Member(result, "requestState")
		if err == nil {
			next, err = wire.With(params, "requestState", state)
		}
		if err == nil {
			next, err = wire.With(next, "inputResponses", answers)
		}
		if err != nil {
			return finish(nil, err)
		}
	}
	return finish(nil, fmt.Errorf("the server asked %d times for input, and has no end", maxRounds))
}

// hold calls an older server apart from the client's request, which may end before.
func (g *Gateway) hold(conn *wire.Conn, s *session, method string, params approval.Raw) *held {
	h := &held{conn: conn, caps: s.caps, questions: make(chan *question), done: make(chan reply, 1)}
	h.token = tokenOf(params)
	h.now = h.token
	h.ctx, h.cancel = context.WithCancel(g.ctx)
	g.mu.Lock()
	g.rounds.open = append(g.rounds.open, h)
	g.mu.Unlock()
	g.work.Go(func() {
		result, err := conn.Call(h.ctx, method, params)
		h.cancel()
		g.mu.Lock()
		g.rounds.open = slices.DeleteFunc(g.rounds.open, func(o *held) bool { return o == h })
		g.mu.Unlock()
		h.done <- reply{result, err}
	})
	return h
}

// await waits for the end of an open call, or for a question of its server.
func (g *Gateway) await(ctx context.Context, s *session, method, same string, h *held, finish finisher) (approval.Raw, error) {
	select {
	case o := <-h.done:
		return g.ended(s, h.conn, method, same, o.result, o.err, finish)
	case q := <-h.questions:
		asked := map[string]*question{q.key: q}
		for more := true; more; {
			select {
			case q := <-h.questions:
				asked[q.key] = q
			default:
				more = false
			}
		}
		return g.askHeld(&round{same: same, held: h, asked: asked, finish: finish})
	case <-ctx.Done():
		h.cancel()
		return finish(nil, ctx.Err())
	}
}

// askHeld is input_required for the open questions of a round.
func (g *Gateway) askHeld(r *round) (approval.Raw, error) {
	var list []inputRequest
	for _, q := range r.asked {
		list = append(list, q.inputRequest)
	}
	slices.SortFunc(list, func(a, b inputRequest) int { return strings.Compare(a.key, b.key) })
	all, err := inputRequests(list)
	var state string
	if err == nil {
		state, err = g.wait(r)
	}
	if err != nil {
		r.held.cancel()
		return r.finish(nil, err)
	}
	return approval.Raw(`{"resultType":"input_required","inputRequests":` + string(all) + `,"requestState":` + string(quote(state)) + `}`), nil
}

// tokenOf is the progress token of a request, nil if it has none.
func tokenOf(params approval.Raw) approval.Raw {
	meta, _, _ := wire.Member(params, "_meta") // an error leaves nil
	token, _, _ := wire.Member(meta, "progressToken")
	return token
}

// progressOf gives the progress of an open call the token of the client's present request.
func (g *Gateway) progressOf(params approval.Raw) (approval.Raw, error) {
	token, _, err := wire.Member(params, "progressToken")
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	now := token
	for _, h := range g.rounds.open {
		if len(h.token) > 0 && bytes.Equal(h.token, token) {
			now = h.now
		}
	}
	g.mu.Unlock()
	if bytes.Equal(now, token) {
		return params, nil
	}
	return wire.With(params, "progressToken", now)
}

func (g *Gateway) answerHeld(ctx context.Context, s *session, method string, params approval.Raw, r *round) (approval.Raw, error) {
	if token := tokenOf(params); len(token) > 0 {
		g.mu.Lock()
		r.held.now = token
		g.mu.Unlock()
	}
	responses, _, err := wire.Member(params, "inputResponses")
	for key, q := range r.asked {
		if err != nil {
			break
		}
		var answer approval.Raw
		var has bool
		if answer, has, err = wire.Member(responses, key); has && err == nil {
			q.answer <- answer
			delete(r.asked, key)
		}
	}
	if err != nil {
		r.drop(err)
		return nil, refuse(jsonrpc.CodeInvalidParams, "inputResponses: %v", err)
	}
	if len(r.asked) > 0 {
		return g.askHeld(r)
	}
	return g.await(ctx, s, method, r.same, r.held, r.finish)
}

// asks answers a request of an older server.
func (g *Gateway) asks(ctx context.Context, method string, params approval.Raw) (approval.Raw, error) {
	g.mu.Lock()
	client := g.client
	var h *held
	if n := len(g.rounds.open); n > 0 {
		h = g.rounds.open[n-1] // the protocol does not tell to which call a request belongs
	}
	g.rounds.asked++
	key := fmt.Sprintf("q%06d", g.rounds.asked)
	g.mu.Unlock()
	if client == nil {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "the client is not known yet")
	}
	caps := client.caps
	if client.stateless && h != nil {
		caps = h.caps
	}
	params, err := g.screen(method, params, caps)
	if err != nil {
		return nil, err
	}
	if !client.stateless {
		return g.ask(ctx, method, params)
	}
	if h == nil {
		return nil, refuse(jsonrpc.CodeMethodNotFound, "a client of %s is asked only during a call", wire.Version20260728)
	}
	q := &question{inputRequest{key, method, params}, make(chan approval.Raw, 1)}
	select {
	case h.questions <- q:
	case <-h.ctx.Done():
		return nil, h.ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case answer := <-q.answer:
		return answer, nil
	case <-h.ctx.Done():
		return nil, h.ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
