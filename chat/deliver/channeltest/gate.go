package channeltest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat/deliver"
)

const workspace = "personal"

// gate holds requests and decisions in memory, with one approver.
type gate struct {
	approver approval.Person
	changes  chan approval.Key

	mu      sync.Mutex
	stories map[approval.Key]read.Story
	order   []approval.Key
	refused int
}

func newGate(channel string, approver deliver.ID) *gate {
	return &gate{
		approver: approval.Person{Channel: channel, ID: string(approver)}, changes: make(chan approval.Key, 100), stories: map[approval.Key]read.Story{},
	}
}

// ask adds a pending request.
func (g *gate) ask(n int, text string) approval.Key {
	id := fmt.Sprintf("%08x%08x", 0xa7000000+n, n)
	now := time.Now().UTC()
	p := &approval.Pending{
		Version: 1, RequestID: id, ShortID: approval.ShortID(id), Type: approval.TypeAction, SourceGroup: workspace, ToolName: "note",
		RequestData: approval.Raw(fmt.Sprintf(`{"text":%q}`, text)), Timestamp: now, ExpiresAt: now.Add(time.Hour),
	}
	k := approval.Key{Workspace: workspace, ID: id}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stories[k], g.order = read.Story{Pending: p, SHA256: "sha of " + id}, append(g.order, k)
	g.changes <- k
	return k
}

// Story implements deliver.Channel.
func (g *gate) Story(_ context.Context, k approval.Key) (read.Story, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stories[k], nil
}

// Waiting implements chat.Interceptor and deliver.Channel.
func (g *gate) Waiting(context.Context, []string) (all []approval.StoredPending, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.order {
		if s := g.stories[k]; s.Decision == nil {
			all = append(all, approval.StoredPending{Pending: s.Pending, SHA256: s.SHA256})
		}
	}
	return all, nil
}

// Find implements chat.Interceptor and deliver.Channel.
func (g *gate) Find(_ context.Context, _ []string, prefix string) ([]approval.Key, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.order), func(k approval.Key) bool { return !strings.HasPrefix(k.ID, prefix) }), nil
}

// Decide implements chat.Decider. A decided request is settled at once.
func (g *gate) Decide(_ context.Context, in decide.Input) (*approval.Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, known := g.stories[in.Key]
	switch {
	case in.By.Channel != g.approver.Channel || in.By.ID != g.approver.ID:
		return nil, &decide.Refusal{Reason: decide.ErrNotAuthorized}
	case !known || in.PendingSHA256 != "" && in.PendingSHA256 != "sha of "+in.Key.ID:
		return nil, &decide.Refusal{Reason: decide.ErrUnknown}
	case s.Decision != nil:
		return nil, &decide.Refusal{Reason: decide.ErrDecided, By: s.Decision.DecidedBy, At: s.Decision.DecidedAt, Verdict: s.Decision.Verdict}
	}
	now := time.Now().UTC()
	s.Decision = &approval.Decision{
		Version: 1, RequestID: in.Key.ID, Approved: in.Verdict == approval.Approved, Verdict: in.Verdict, Code: in.Code, Scope: in.Scope, Feedback: in.Feedback,
		DecidedBy: "ann", DecidedByID: in.By.Channel + ":" + in.By.ID, Via: in.Via, DecidedAt: now,
	}
	s.Record = &approval.Record{Version: 1, RequestID: in.Key.ID, Workspace: workspace, Status: approval.Status(in.Verdict), EndedAt: now}
	s.SHA256 = ""
	g.stories[in.Key] = s
	g.changes <- in.Key
	return s.Decision, nil
}

// decision is the decision on a request, nil if there is none.
func (g *gate) decision(k approval.Key) *approval.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stories[k].Decision
}

// May implements deliver.Channel.
func (g *gate) May(_ string, _ *approval.Pending, by approval.Person) (string, bool) {
	return "ann", by == g.approver
}

// Refused implements deliver.Channel.
func (g *gate) Refused(approval.Key, approval.Person) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused++
}

// files is a chat.StateStore in memory, and with its keys a chat.SentStore.
type files struct {
	mu sync.Mutex
	m  map[string][]byte
}

func (f *files) Put(name string, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = map[string][]byte{}
	}
	f.m[name] = slices.Clone(b)
	return nil
}

func (f *files) Get(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.m[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return slices.Clone(b), nil
}

func (f *files) List() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.m)), nil
}

func (f *files) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, name)
	return nil
}

type sentStore struct{ files }

func (s *sentStore) Load(k approval.Key) ([]byte, error) { return s.Get(k.ID) }
func (s *sentStore) Save(k approval.Key, b []byte) error { return s.Put(k.ID, b) }
func (s *sentStore) Remove(k approval.Key) error         { return s.files.Remove(k.ID) }
func (s *sentStore) List(string) ([]string, error)       { return s.files.List() }
