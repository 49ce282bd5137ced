package approval

import (
	"time"
)

// Person is a human decider, known by an id that cannot be chosen freely: a numeric
// chat id, an authenticated address, a local UID.
type Person struct {
	Channel string // the entrance: one of those below, or a channel's name
	ID      string // "123456789", "ann@example.org", "1000"
	Name    string // shown to others: "ann", "operator:root"
}

// The entrances that are no channels.
const (
	EntranceLocal  = "local"  // terminal, CLI and browser of a process that can read HOME
	EntranceSocket = "socket" // a local user who cannot
	EntranceKey    = "key"    // an approver's HTTP API key
)

// StableID is the id that documents and the audit log keep. A local user has the same
// one at every entrance.
func (p Person) StableID() string {
	if p.Channel == EntranceSocket {
		return EntranceLocal + ":" + p.ID
	}
	return p.Channel + ":" + p.ID
}

// StoredPending is a verified pending as stored on disk.
type StoredPending struct {
	Pending *Pending
	SHA256  string // of the file's bytes
}

// Key names the pending's request.
func (w StoredPending) Key() Key { return Key{w.Pending.SourceGroup, w.Pending.RequestID} }

// Workspace is the operator's configuration of one agent's workspace.
type Workspace struct {
	Name           string
	Autonomy       string
	Approvers      []string // names; empty: no approver may decide
	Principal      string   // if set, only this approver decides
	OwnDomains     []string // in lower case; a recipient elsewhere is an outsider; empty: unknown
	Channels       []string
	LocalDecisions bool // the local operator may decide
	Timeout        time.Duration
	MaxTimeout     time.Duration
	QuietHours     QuietHours
	Language       string
	ChatJID        string
	Limits         Limits
	Sessions       map[string]string // autonomy of single sessions; can only lower it
	RememberExec   bool              // a grant may cover every release-only exec_cmd of a client
	ReleaseTrust   Trust             // of release-only requests; zero: they neither taint nor fall under the trifecta
	NoFolder       bool              // requests come only over the API: a file in the requests folder is refused
	BindsSessions  bool              // the host issues session ids; agents cannot choose them. Only with NoFolder
	Secrets        bool              // the agent has the secret taint from the start
	Admin          bool              // the agent must have no tool that reads public content
}

// Limits bound what one workspace may use. Zero means the default.
type Limits struct {
	Pending      int   // at once: 32
	AskPerMinute int   // 60
	PerMinute    int   // all requests: 600
	RequestSize  int   // bytes: 256 KiB
	Running      int   // handlers at once: 8
	Stored       int64 // bytes on the disk of records, responses and errors: 256 MiB
}

// WithDefaults replaces zero fields by their defaults.
func (l Limits) WithDefaults() Limits {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&l.Pending, 32)
	def(&l.AskPerMinute, 60)
	def(&l.PerMinute, 600)
	def(&l.RequestSize, MaxRequestSize)
	def(&l.Running, 8)
	if l.Stored == 0 {
		l.Stored = 256 << 20
	}
	return l
}

// Approver is a person who may decide, with every id they may use.
type Approver struct {
	Autonomy string // of agents that work for this person as the principal of their workspace: not more; "": that of the workspace
	Name     string
	IDs      map[string]string // by Person.Channel: "telegram", "email", "local"
	Language string
}
