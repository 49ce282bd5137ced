package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// snapshotVersion changes with what a snapshot counts: one of another version is not used, and
// the log is read from its beginning.
const snapshotVersion = 2

// snapshot is policy's memory up to one entry of the log, so that a start does not
// have to read the complete log. It can be lost without harm.
type snapshot struct {
	Version  int                  `json:"version"`
	Seq      int64                `json:"seq"` // of its last entry
	Accounts map[string]*account  `json:"accounts"`
	Kinds    map[string]int       `json:"kinds"`
	Uses     map[string]grantUses `json:"uses"` // by grant
}

// Snapshot encodes policy's memory for Restore.
func (e *Engine) Snapshot() ([]byte, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := snapshot{
		Version: snapshotVersion, Seq: e.seq, Kinds: e.approvalsByKind, Accounts: e.accounts, Uses: map[string]grantUses{},
	}
	maps.Copy(s.Uses, e.pendingUses)
	if e.grants != nil {
		for id, h := range e.grants.byID {
			if h.uses > 0 {
				s.Uses[id] = grantUses{h.uses, h.lastUsed}
			}
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode policy's memory: %w", err)
	}
	return b, nil
}

// Restore loads a snapshot into an engine that has learned nothing yet. It returns
// the number of the snapshot's last entry: Learn continues with the next. On an
// error the engine is unchanged.
func (e *Engine) Restore(b []byte) (seq int64, err error) {
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return 0, fmt.Errorf("read policy's memory: %w", err)
	}
	if s.Version != snapshotVersion || s.Seq <= 0 {
		return 0, errors.New("read policy's memory: unsupported version")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	if e.seq != 0 {
		return 0, errors.New("restore policy's memory: the engine is not empty")
	}
	e.seq, e.pendingUses = s.Seq, s.Uses
	maps.Copy(e.approvalsByKind, s.Kinds)
	for ws, stored := range s.Accounts {
		stored = cmp.Or(stored, &emptyAccount)
		a := newAccount()
		maps.Copy(a.Taints, stored.Taints)
		maps.Copy(a.Ask, stored.Ask)
		maps.Copy(a.Deny, stored.Deny)
		maps.Copy(a.Sessions, stored.Sessions)
		maps.Copy(a.Asked, stored.Asked)
		a.Day = stored.Day
		e.accounts[ws] = a
	}
	return e.seq, nil
}
