package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// snapshot is policy's memory up to one entry of the log, so that a start does not
// have to read the complete log. It can be lost without harm.
type snapshot struct {
	Version  int                        `json:"version"`
	Seq      int64                      `json:"seq"` // of its last entry
	Accounts map[string]accountSnapshot `json:"accounts"`
	Kinds    map[string]int             `json:"kinds"`
	Uses     map[string]useSnapshot     `json:"uses"` // by grant
}

type accountSnapshot struct {
	Taints   map[string]map[string]bool `json:"taints"`
	Ask      map[string]bucketSnapshot  `json:"ask"`
	Deny     map[string]bucketSnapshot  `json:"deny"`
	Day      []dayCostSnapshot          `json:"day"`
	Sessions map[string]int64           `json:"sessions"`
	Asked    []askedSnapshot            `json:"asked"`
}

type bucketSnapshot struct {
	Used float64   `json:"used"`
	At   time.Time `json:"at"`
}

type dayCostSnapshot struct {
	At   time.Time `json:"at"`
	Cost int64     `json:"cost"`
}

type askedSnapshot struct {
	Entry approval.Entry `json:"entry"`
}

type useSnapshot struct {
	N    int       `json:"n"`
	Last time.Time `json:"last"`
}

// Snapshot encodes policy's memory for Restore.
func (e *Engine) Snapshot() ([]byte, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := snapshot{
		Version: approval.Version, Seq: e.seq, Kinds: e.approvalsByKind,
		Accounts: map[string]accountSnapshot{}, Uses: map[string]useSnapshot{},
	}
	for ws, a := range e.accounts {
		s.Accounts[ws] = a.snapshot()
	}
	for id, u := range e.pendingUses {
		s.Uses[id] = useSnapshot{u.n, u.last}
	}
	if e.grants != nil {
		for id, h := range e.grants.byID {
			if h.uses > 0 {
				s.Uses[id] = useSnapshot{h.uses, h.lastUsed}
			}
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode policy's memory: %w", err)
	}
	return b, nil
}

func (a *account) snapshot() accountSnapshot {
	s := accountSnapshot{
		Taints: a.taints, Sessions: a.sessions, Ask: map[string]bucketSnapshot{}, Deny: map[string]bucketSnapshot{},
	}
	for c, b := range a.ask {
		s.Ask[c] = bucketSnapshot{b.used, b.at}
	}
	for c, b := range a.deny {
		s.Deny[c] = bucketSnapshot{b.used, b.at}
	}
	for _, d := range a.day {
		s.Day = append(s.Day, dayCostSnapshot{d.at, d.cost})
	}
	for _, p := range a.asked {
		s.Asked = append(s.Asked, askedSnapshot{p.entry()})
	}
	return s
}

func (p *askedRequest) entry() approval.Entry {
	return approval.Entry{
		Event: approval.EventRequested, Time: p.f.Now, RequestID: p.f.RequestID, Workspace: p.f.Workspace, Tool: p.f.Tool,
		Capability: p.f.Capability, Target: p.f.Target, ActionType: p.f.ActionType, ClientID: p.f.ClientID,
		SessionID: p.f.SessionID, Channel: p.f.Channel, Sender: p.f.Sender, Exact: p.exact,
	}
}

// Restore loads a snapshot into an engine that has learned nothing yet. It returns
// the number of the snapshot's last entry: Learn continues with the next. On an
// error the engine is unchanged.
func (e *Engine) Restore(b []byte) (seq int64, err error) {
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return 0, fmt.Errorf("read policy's memory: %w", err)
	}
	if s.Version != approval.Version || s.Seq <= 0 {
		return 0, errors.New("read policy's memory: unsupported version")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	if e.seq != 0 {
		return 0, errors.New("restore policy's memory: the engine is not empty")
	}
	e.seq = s.Seq
	for k, n := range s.Kinds {
		e.approvalsByKind[k] = n
	}
	for ws, a := range s.Accounts {
		e.accounts[ws] = a.account()
	}
	e.pendingUses = map[string]grantUses{}
	for id, u := range s.Uses {
		e.pendingUses[id] = grantUses{u.N, u.Last}
	}
	return e.seq, nil
}

func (s *accountSnapshot) account() *account {
	a := newAccount()
	if s.Taints != nil {
		a.taints = s.Taints
	}
	if s.Sessions != nil {
		a.sessions = s.Sessions
	}
	for c, b := range s.Ask {
		a.ask[c] = bucket{b.Used, b.At}
	}
	for c, b := range s.Deny {
		a.deny[c] = bucket{b.Used, b.At}
	}
	for _, d := range s.Day {
		a.day = append(a.day, dayCost{d.At, d.Cost})
	}
	for _, p := range s.Asked {
		a.asked = append(a.asked, askedRequestOf(&p.Entry))
	}
	return a
}
