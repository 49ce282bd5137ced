package channeltest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc"
)

const workspace = "personal"

// gateRig is a gate with one approver.
type gateRig struct {
	*read.Viewer
	home     *gatetest.Rig
	decider  *gate.Decider
	sent     *sentStore
	state    *ipc.StateStore
	approver approval.Person
	changes  chan approval.Key

	mu      sync.Mutex
	refused int
}

func newGate(t *testing.T, channel, approver string) *gateRig {
	g := &gateRig{approver: approval.Person{Channel: channel, ID: approver}, changes: make(chan approval.Key, 100)}
	limits := approval.Limits{Pending: 100, AskPerMinute: 100, RequestSize: 1 << 20}
	g.home = gatetest.New(t, gatetest.Options{
		Dir: gatetest.MemoryFolder(t), Workspaces: []approval.Workspace{{Name: workspace, Limits: limits}},
		Gate: func(of *gate.Gate) { of.Changed = func(k approval.Key) { g.changes <- k } },
	})
	g.home.Open()
	g.home.Run(0)
	store, seal := g.home.Store, g.home.Seal
	g.Viewer = &read.Viewer{Store: store, Seal: seal}
	g.decider = &gate.Decider{
		Store: store, Seal: seal, May: g.May, Decided: g.home.Gate.Decided,
		Refused: func(k approval.Key, by approval.Person, _ string) { g.Refused(k, by) },
	}
	g.sent = &sentStore{&ipc.SentStore{Store: store, Channel: channel}}
	var err error
	g.state, err = g.sent.State("state")
	require.NoError(t, err)
	return g
}

// ask submits a request.
func (g *gateRig) ask(n int, text string) approval.Key {
	return g.askAs(fmt.Sprintf("%08x%08x", 0xa7000000+n, n), text)
}

// askAs submits a request with an ID.
func (g *gateRig) askAs(id, text string) approval.Key { return g.askTool("note", id, text) }

func (g *gateRig) askTool(tool, id, text string) approval.Key {
	k := approval.Key{Workspace: workspace, ID: id}
	g.home.WriteRequest(k, fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":{"text":%q}}`, k.ID, tool, text))
	g.home.Gate.Wake(k)
	return k
}

// decision is the decision on a request, nil if there is none.
func (g *gateRig) decision(k approval.Key) *approval.Decision {
	story, _ := g.Story(context.Background(), k) // the caller tries again
	return story.Decision
}

// May implements deliver.Channel.
func (g *gateRig) May(_ string, _ *approval.Pending, by approval.Person) (string, bool) {
	return "ann", by.Channel == g.approver.Channel && by.ID == g.approver.ID
}

// Refused implements deliver.Channel.
func (g *gateRig) Refused(approval.Key, approval.Person) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused++
}

// sentStore is a chat.SentStore that can be searched.
type sentStore struct{ *ipc.SentStore }

// has reports whether a record holds a text.
func (s *sentStore) has(text string) bool {
	ids, _ := s.List(workspace) // the caller tries again
	for _, id := range ids {
		b, _ := s.Load(approval.Key{Workspace: workspace, ID: id})
		if strings.Contains(string(b), text) {
			return true
		}
	}
	return false
}
