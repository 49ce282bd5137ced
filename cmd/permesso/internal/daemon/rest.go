package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
	"github.com/permesso-dev/permesso/security/receipt"
)

// apiListener is the HTTP API with its listeners.
type apiListener struct {
	server    *httpapi.Server
	listeners []net.Listener
	locks     []io.Closer
}

// openAPI listens on the configured addresses.
func (s *server) openAPI() (d *apiListener, err error) {
	d = &apiListener{server: s.api}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	for _, at := range s.Config.Listen {
		l, err := d.listen(s.FS, at)
		if errors.Is(err, syscall.EADDRINUSE) && !s.Config.ListenSet {
			s.log.Warn().Msg("HTTP API disabled: address already in use: " + at.Address + "; set listen to another address, or to \"\" to turn it off")
			continue
		}
		if err != nil {
			return d, err
		}
		d.listeners = append(d.listeners, l)
		s.api.Hosts = append(s.api.Hosts, names(l.Addr(), s.Config.ListenHosts)...)
		s.log.Info().Str("path", l.Addr().String()).Msg("HTTP API listening")
	}
	return d, nil
}

func (d *apiListener) listen(fsys ipc.FS, at config.Listen) (net.Listener, error) {
	if at.Network != "unix" {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), at.Network, at.Address)
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
		}
		if err != nil {
			return nil, console.Wrap(console.ExitError, fmt.Errorf("listen on %s: %w", at.Address, err), "set listen to another address, or to \"\" to turn it off")
		}
		return l, nil
	}
	lock, err := fsys.TryLock(at.Address + ".lock")
	if errors.Is(err, ipc.ErrLocked) {
		return nil, console.Fail(console.ExitLocked, "configure another socket for one of them", "another daemon listens on %s", at.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
	}
	d.locks = append(d.locks, lock)
	return httpapi.ListenUnix(at.Address)
}

// names are the host names by which a request may address a listener.
func names(at net.Addr, more []string) (list []string) {
	addr, ok := at.(*net.TCPAddr)
	if !ok {
		return nil
	}
	port := fmt.Sprint(addr.Port)
	if ip := addr.IP; ip.IsLoopback() || ip.IsUnspecified() {
		list = append(list, net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("localhost", port), net.JoinHostPort("::1", port))
	}
	if !addr.IP.IsUnspecified() {
		list = append(list, net.JoinHostPort(addr.IP.String(), port))
	}
	for _, name := range more {
		list = append(list, name)
		if !strings.Contains(name, ":") {
			list = append(list, net.JoinHostPort(name, port))
		}
	}
	return list
}

// run serves until ctx ends.
func (d *apiListener) run(ctx context.Context) error { return d.server.Run(ctx, d.listeners...) }

func (d *apiListener) close() {
	for _, l := range d.listeners {
		_ = l.Close() // already closed if Run has run
	}
	for _, l := range d.locks {
		_ = l.Close()
	}
}

// newAPI wires the HTTP API.
func (s *server) newAPI() (*httpapi.Server, error) {
	verifier, err := receipt.LoadVerifier(s.FS, s.Layout.Keys())
	if err != nil {
		return nil, err
	}
	v := s.Viewer(s.keys)
	return &httpapi.Server{
		Service: &service.Service{Gate: s.gate, Viewer: v, History: v, Settings: apiWorkspaces{s}}, Local: s.controlService().Operations(),
		Decider: s.gateDecider(), Keys: s.CachedKeyring(s.keys), Feed: s.feed, Grants: s.memory, Receipts: apiReceipts{s, verifier},
		Inbox: mailIntake{s}, Ready: s.ready, Metrics: s.metrics.metrics, Version: s.app.Version, Log: s.log,
	}, nil
}

// ready returns an error while no new requests are accepted.
func (s *server) ready(ctx context.Context) error {
	if p, degraded := s.gate.Degraded(); degraded {
		return errors.New(p.Reason)
	}
	return s.gate.Alive(ctx)
}

// apiWorkspaces implements service.settings.
type apiWorkspaces struct{ *server }

// WorkspaceInfo implements service.settings.
func (p apiWorkspaces) WorkspaceInfo(name string) (service.WorkspaceInfo, bool) {
	cfg := p.Current()
	ws, ok := cfg.Workspaces[name]
	if !ok {
		return service.WorkspaceInfo{}, false
	}
	at := service.WorkspaceInfo{Channels: ws.Channels, MaxSize: ws.Limits.WithDefaults().RequestSize, Targets: map[string][]string{}}
	add := func(channel, target string) {
		if target != "" {
			at.Targets[channel] = append(at.Targets[channel], target)
		}
	}
	if channel, chat, ok := strings.Cut(ws.ChatJID, ":"); ok {
		add(channel, chat)
	}
	for _, who := range peopleOf(cfg, name) {
		for channel, id := range who.IDs {
			if channel != approval.EntranceLocal {
				add(channel, id)
			}
		}
	}
	return at, true
}

// apiReceipts implements httpapi.Receipts.
type apiReceipts struct {
	*server
	verifier *receipt.Verifier
}

// Check implements httpapi.Receipts.
func (p apiReceipts) Check(text, tool, argsSHA256 string, allowExpired bool) error {
	return home.CheckReceipt(p.verifier, text, tool, argsSHA256, allowExpired)
}

// Parse implements httpapi.Receipts.
func (p apiReceipts) Parse(text string) (approval.ReceiptFacts, error) { return p.verifier.Parse(text) }

// Redeem implements httpapi.Receipts.
func (p apiReceipts) Redeem(ctx context.Context, f approval.ReceiptFacts, by string) error {
	k := approval.Key{Workspace: f.Workspace, ID: f.RequestID}
	err := p.MarkRedeemed(ctx, p.keys, k, by)
	if err == nil {
		p.audit.Note(approval.Entry{Event: approval.EventRedeemed, Workspace: k.Workspace, RequestID: k.ID, Tool: f.Tool, By: by, Via: "rest"})
	}
	return err
}
