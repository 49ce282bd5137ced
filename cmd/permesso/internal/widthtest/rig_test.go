package widthtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
)

// worker runs one case after the other: its socket serves the home of the current one.
type worker struct {
	dir     string
	client  *control.Client // of permesso grant add
	service *control.Service
	stop    func() error
}

// newWorker serves the control socket as the daemon does. A worker needs stop.
func newWorker(dir string) (*worker, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	first := home.New(config.Default(), dir)
	if err := first.Prepare(); err != nil {
		return nil, err
	}
	w := &worker{dir: dir, service: &control.Service{Home: first, Running: true}}
	l, err := httpapi.ListenLocal(first.Layout.Socket(), true)
	if err != nil {
		return nil, err
	}
	server := &httpapi.LocalServer{
		API: &httpapi.Server{Local: w.service.Operations(), Version: "1", Log: zerolog.Nop()},
		Who: func(_, _ string) *httpapi.Caller {
			return &httpapi.Caller{Person: home.Operator(), Via: "cli", Operator: true}
		},
		Refused: func(approval.Person) {},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	w.stop = func() error {
		cancel()
		return <-done
	}
	a := &console.Console{
		Err: os.Stderr, Out: os.Stdout, Env: func(string) string { return "" }, Version: "1",
		HomeFlag: dir,
	}
	if w.client, err = control.Open(ctx, a); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// rig is a home with its gate, as the daemon makes it. Only the handlers are not real.
type rig struct {
	*worker
	home    *home.Home
	memory  *home.Memory
	log     *audit.Log
	gate    *gate.Gate
	decider *gate.Decider
	release func() error
	shift   time.Duration // of the clock
	n       int           // requests so far

	facts  approval.Facts // of the request that was judged last
	ruling approval.Ruling
	auto   map[string]string // by request that policy allowed: its grant, "" without one
}

// open opens a new home with this configuration.
func (w *worker) open(toml string) (*rig, error) {
	cfg, err := config.Parse("permesso.toml", []byte(toml))
	if err != nil {
		return nil, err
	}
	r := &rig{worker: w, home: home.New(cfg, filepath.Join(w.dir, "case")), auto: map[string]string{}}
	if err := r.home.Prepare(); err != nil {
		return nil, err
	}
	if r.release, err = r.home.Lock(context.Background()); err != nil {
		return nil, err
	}
	k, err := r.home.MakeKeys()
	if err != nil {
		return nil, err
	}
	if r.log, err = r.home.OpenAudit(k); err != nil {
		return nil, err
	}
	if r.memory, err = r.home.NewMemory(k, zerolog.Nop()); err != nil {
		return nil, err
	}
	r.log.OnEntry = r.observe
	r.memory.Audit = r.log.Append
	if err := r.load(toml); err != nil {
		return nil, err
	}
	r.gate = &gate.Gate{
		Store: r.home.Store, Seal: k.Seal, Receipts: k.Signer, Grants: r.memory,
		Executor: &gatetest.Executor{}, Audit: r.log, Config: r.snapshot,
		Words: chat.Words{},
		Log:   zerolog.Nop(), Now: r.now, Inline: true,
	}
	r.decider = r.home.Decider(k)
	r.decider.Grants, r.decider.Now = r.memory, r.now
	*w.service = control.Service{
		Home: r.home, Keys: k, Viewer: r.home.Viewer(k), Running: true, Decider: r.decider,
		Memory: func() (*home.Memory, error) { return r.memory, nil }, Audit: r.log.Append, Log: func(error) {},
	}
	_, err = r.gate.Start(context.Background())
	return r, err
}

// load makes a configuration the current one, as a reload does.
func (r *rig) load(toml string) error {
	cfg, err := config.Parse("permesso.toml", []byte(toml))
	if err != nil {
		return err
	}
	now, err := r.memory.Settings(cfg)
	if err != nil {
		return err
	}
	r.home.Live.Set(now)
	if r.gate != nil {
		r.gate.Reconfigured()
	}
	return nil
}

func (r *rig) close() error {
	return errors.Join(r.log.Close(), r.release(), os.RemoveAll(r.home.Layout.Home))
}

// addKey creates the API key of a client.
func (r *rig) addKey(client, workspace string) error {
	hash := client + strings.Repeat("0", 64-len(client))
	return errors.Join(r.home.Layout.PrepareAPIKeys(r.home.FS), r.home.Keyring(r.service.Keys).Save(&apikey.Key{
		Version: approval.Version, ID: apikey.ID(hash), Hash: hash, Workspace: workspace, Scopes: []string{apikey.MayRequest},
		CreatedAt: r.now(), CreatedBy: "operator",
	}, store.Replace))
}

func (r *rig) now() time.Time { return time.Now().Add(r.shift) }

func (r *rig) observe(e event.Entry) {
	r.memory.Observe(e)
	if e.Event == event.AutoApproved {
		r.auto[e.RequestID] = e.Grant
	}
}

// spy is the policy of one configuration, and keeps what it is asked.
type spy struct {
	gate.Policy
	r *rig
}

// Judge implements gate.Policy.
func (s spy) Judge(f approval.Facts) approval.Ruling {
	s.r.facts, s.r.ruling = f, s.Policy.Judge(f)
	return s.r.ruling
}

func (r *rig) snapshot() (gate.Settings, gate.Policy) {
	settings, p := r.home.Live.Config()
	return settings, spy{p, r}
}

// outcome is how the gate took a request.
type outcome struct {
	key     approval.Key
	pending *approval.Pending // asked
	sha     string            // of pending
	allowed bool              // by policy
	grant   string            // that allowed it
}

// send submits a request as the HTTP API does.
func (r *rig) send(c call) (o outcome, err error) {
	r.n++
	o.key = approval.Key{Workspace: c.Workspace, ID: fmt.Sprintf("%08x%08x", r.n, 0xabcdef01)}
	from := submit.Origin{}
	if c.Client != submit.FolderClient(c.Workspace) {
		from.ClientID = c.Client
	}
	r.facts, r.ruling = approval.Facts{}, approval.Ruling{}
	result, err := r.gate.Submit(context.Background(), o.key, []byte(c.json(o.key.ID)), from)
	if errors.Is(err, submit.ErrWorkspaceRefused) || errors.Is(err, approval.ErrMalformed) {
		return o, nil
	}
	o.pending, o.sha = result.Pending, result.SHA256
	o.grant, o.allowed = r.auto[o.key.ID]
	return o, err
}

// decide decides what was asked, and lets it run.
func (r *rig) decide(o outcome, code, commands string) error {
	a := decide.ByCode(code, "")
	a.Key, a.PendingSHA256, a.Commands, a.By, a.Via = o.key, o.sha, commands, home.Operator(), "cli"
	if _, err := r.decider.Decide(context.Background(), a); err != nil {
		return fmt.Errorf("decide %s: %w", code, err)
	}
	_, err := r.gate.Step(context.Background(), o.key)
	return err
}

// grantOf returns a grant, nil if there is none.
func (r *rig) grantOf(id string) *grant.Use {
	all := r.memory.Grants()
	if i := slices.IndexFunc(all, func(g grant.Use) bool { return g.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
}

// alone says how policy rules on the request that was judged last, of a client that has read
// nothing, without grants and limits that are used up.
func (r *rig) alone() (approval.Ruling, error) {
	e := &policy.Engine{Scan: r.memory.Scan, Resolve: home.Resolve}
	err := e.Load(r.home.Current().PolicyConfig())
	return e.Judge(r.facts), err
}
