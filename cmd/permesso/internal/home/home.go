// Package home is one HOME as permesso sees it: configuration, state folder,
// keys, log, grants, health.
package home

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// Home is one HOME with its configuration.
type Home struct {
	Config *config.Config
	Layout ipc.Layout
	Store  *ipc.Store
	FS     ipc.FS
	Live   Live // the daemon's configuration after reloads
}

// Load locates the state folder and reads its configuration.
func Load(a *console.Console) (*Home, error) {
	dir, err := Find(a)
	if err != nil {
		return nil, err
	}
	file, err := FileOf(a, dir)
	if err != nil {
		return nil, err
	}
	cfg, err := Reader(a).Load(file)
	if err != nil {
		return nil, err
	}
	return New(cfg, dir), nil
}

// Locate returns the home without its configuration.
func Locate(a *console.Console) (*Home, error) {
	dir, err := Find(a)
	return New(nil, dir), err
}

// ErrNoDaemon means that this user has no home.
var ErrNoDaemon = errors.New("no daemon for this user")

// NoDaemon is the ErrNoDaemon about a folder.
func NoDaemon(dir string) error {
	return console.Fail(console.ExitError, "run permesso init, then permesso serve; or name another home: --home, or sudo -u permesso for the system's daemon", "%w in %s", ErrNoDaemon, dir)
}

// New returns the home in a folder. cfg may be nil for what needs no configuration.
func New(cfg *config.Config, dir string) *Home {
	h := &Home{Config: cfg, Layout: ipc.Layout{Home: dir}, FS: ipc.OS()}
	h.Store = &ipc.Store{
		FS: h.FS, Layout: h.Layout, JournalSize: journalSize(), Verify: h.verify, SyncEach: ipc.SyncErrorsLost() != nil,
		RecoverLog: func(head []byte, lines [][]byte) ([]byte, error) {
			return audit.Recover(h.FS, h.Layout.Audit(), head, lines)
		},
	}
	if cfg != nil {
		h.Store.RequestSize = h.requestSize
	}
	return h
}

// JournalSize is the environment variable with the bytes of a new segment of the journal.
const JournalSize = "PERMESSO_JOURNAL_SIZE"

// journalSize returns 0 for the usual size, and -1, which Lock refuses, for what is no size.
func journalSize() int64 {
	text := os.Getenv(JournalSize)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 256<<10 || n > 64<<20 || n%4096 != 0 {
		return -1
	}
	return n
}

// verify checks a document's MAC for replay. Without the key, all that counts is that it is
// whole.
func (h *Home) verify(d approval.Doc, k approval.Key, b []byte) error {
	keys, err := h.LoadKeys()
	if err != nil {
		return nil //nolint:nilerr // the daemon refuses to start without it
	}
	_, err = keys.Seal.Open(d, k, b)
	return err
}

func (h *Home) requestSize(ws string) int64 {
	return int64(h.Current().Workspaces[ws].Limits.WithDefaults().RequestSize)
}

// Open is Load for a home that has keys.
func Open(a *console.Console) (*Home, *Keys, error) {
	h, err := Load(a)
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(h.Layout.Keys()); err != nil {
		return nil, nil, NoDaemon(h.Layout.Home)
	}
	if err := h.ActAsOwner(); err != nil {
		return nil, nil, err
	}
	k, err := h.LoadKeys()
	return h, k, err
}

// ActAsOwner drops root's privileges to those of the home's owner: the daemon
// could not read files that root writes. The decision's author stays root.
func (h *Home) ActAsOwner() error {
	info, err := os.Stat(h.Layout.Home)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	Operator() // read our UID before it changes
	uid, gid := int(owner.Uid), int(owner.Gid)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("act as the owner of %s: %w", h.Layout.Home, err)
	}
	return nil
}

// ReadLog is a read.Log of this home's audit log. In the daemon it has the entry of every
// document that can be seen, although files change before the log does.
func (h *Home) ReadLog(keep func(line []byte) bool, each func(event.Entry) error) error {
	_ = h.Store.Flush() // elsewhere nothing is under way; health has an error
	return audit.Backwards(h.FS, h.Layout.Audit(), keep, each)
}

// Viewer reads the documents of this home.
func (h *Home) Viewer(k *Keys) *read.Viewer {
	return &read.Viewer{Store: h.Store, Seal: k.Seal, Log: h.ReadLog}
}

// Operator is the local user, identified by UID.
var Operator = sync.OnceValue(func() approval.Person {
	return PersonOf(strconv.Itoa(os.Getuid()))
})

// PersonOf returns the local person of a UID.
func PersonOf(uid string) approval.Person {
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	return approval.Person{Channel: "local", ID: uid, Name: "operator:" + name}
}

// Served reports whether a daemon holds the home's lock.
func (h *Home) Served() (bool, error) {
	return h.Store.Leased()
}

// Reader reads configurations for this process.
func Reader(a *console.Console) config.Reader {
	r := config.Reader{CheckHandler: exec.Check, Advice: "man permesso.toml explains each key"}
	if a.Serving {
		r.DaemonUID = os.Getuid()
	}
	return r
}

// Prepare creates the folders of the home and of all workspaces.
func (h *Home) Prepare() error {
	if err := h.Layout.PrepareHome(h.FS); err != nil {
		return err
	}
	for name := range h.Config.Workspaces {
		if err := h.Layout.Prepare(h.FS, name); err != nil {
			return err
		}
	}
	return nil
}

// WorkspaceNames returns the configured workspaces, sorted.
func WorkspaceNames(c *config.Config) []string { return slices.Sorted(maps.Keys(c.Workspaces)) }

// Keys are the secret keys of one home.
type Keys struct {
	Seal   *seal.Key
	Signer *receipt.Signer
}

// LoadKeys reads the key of the seals.
func (h *Home) LoadKeys() (*Keys, error) {
	s, err := seal.Load(h.FS, h.Layout.Keys())
	if err != nil {
		return nil, err
	}
	return &Keys{Seal: s}, nil
}

// MakeKeys creates missing keys, and can sign. The caller holds the lock, or is init.
func (h *Home) MakeKeys() (*Keys, error) {
	if err := h.checkKeysLost(); err != nil {
		return nil, err
	}
	s, err := seal.LoadOrCreate(h.FS, h.Layout.Keys())
	if err != nil {
		return nil, err
	}
	signer, err := receipt.LoadOrCreate(h.FS, h.Layout.Keys(), h.Config.GateName)
	if err != nil {
		return nil, err
	}
	return &Keys{Seal: s, Signer: signer}, nil
}

// checkKeysLost refuses a HOME with a signed log and without one of its keys: another key would
// verify nothing of it.
func (h *Home) checkKeysLost() error {
	if _, err := h.FS.Stat(audit.CheckpointPath(h.Layout.Audit())); err != nil {
		return nil //nolint:nilerr // a new HOME, or opening the log says what is wrong
	}
	if _, err := seal.Load(h.FS, h.Layout.Keys()); errors.Is(err, seal.ErrNoKey) {
		return err
	}
	if _, err := receipt.Load(h.FS, h.Layout.Keys()); errors.Is(err, receipt.ErrNoKey) {
		return err
	}
	return nil
}

// Settings is one immutable configuration with its policy.
type Settings struct {
	cfg    *config.Config
	policy gate.Policy // nil: for lookups only
}

// SettingsOf returns settings without a policy.
func SettingsOf(cfg *config.Config) *Settings { return &Settings{cfg: cfg} }

// Settings returns settings with the policy of the same configuration.
func (m *Memory) Settings(cfg *config.Config) (*Settings, error) {
	view, err := m.View(cfg.PolicyConfig())
	if err != nil {
		return nil, err
	}
	return &Settings{cfg, &configuredPolicy{m, view}}, nil
}

// configuredPolicy is the policy of one configuration.
type configuredPolicy struct {
	*Memory
	view *policy.View
}

// Judge implements gate.Policy.
func (j *configuredPolicy) Judge(f approval.Facts) approval.Ruling { return j.view.Judge(f) }

// JudgeProgram implements gate.Policy.
func (j *configuredPolicy) JudgeProgram(steps []approval.Facts) (run approval.Ruling, each []approval.Ruling) {
	return j.view.JudgeProgram(steps)
}

// OffersProgram implements gate.Policy.
func (j *configuredPolicy) OffersProgram(f approval.Facts, steps []approval.Facts, given approval.Ruling) []approval.Offer {
	return j.view.OffersProgram(f, steps, given)
}

// Reserve reads the ruling's grant again, so that a revocation takes effect at
// once.
func (j *configuredPolicy) Reserve(f approval.Facts, r approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	if r.Grant != "" && !human {
		j.reloadGrant(r.Grant)
	}
	return j.view.Reserve(f, r, human)
}

// Workspace implements gate.Settings.
func (s *Settings) Workspace(name string) (approval.Workspace, bool) {
	ws, ok := s.cfg.Workspaces[name]
	return ws, ok
}

// Tool implements gate.Settings.
func (s *Settings) Tool(name string) (approval.Tool, bool) {
	t, ok := s.cfg.Tools[name]
	return t, ok
}

// ToolNames implements gate.Settings.
func (s *Settings) ToolNames() []string { return slices.Sorted(maps.Keys(s.cfg.Tools)) }

// Approver implements gate.People.
func (s *Settings) Approver(by approval.Person) string { return s.cfg.Approver(by) }

// IsAgent implements gate.People.
func (s *Settings) IsAgent(uid string) bool { return s.cfg.IsAgent(uid) }

// Provers implements gate.Settings.
func (s *Settings) Provers() facts.Provers { return s.cfg.Provers }

// Live is the current settings: the one pointer that a reload swaps.
type Live struct{ now atomic.Pointer[Settings] }

// Set replaces the current settings.
func (l *Live) Set(s *Settings) { l.now.Store(s) }

// Config implements gate.Gate's Config.
func (l *Live) Config() (gate.Settings, gate.Policy) {
	now := l.now.Load()
	return now, now.policy
}

// Current is the current configuration: after reloads in a daemon, as read
// otherwise.
func (h *Home) Current() *config.Config {
	if now := h.Live.now.Load(); now != nil {
		return now.cfg
	}
	return h.Config
}
