package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/local"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// pages are the pages for people, and the private socket at which whoever can
// read the home asks for a link to them.
type pages struct {
	server   *web.Server
	listener net.Listener
	socket   *local.Server
	private  *net.UnixListener
}

// newUI is what stands behind the pages.
func (s *server) newUI() *web.Server {
	var errs seldom
	return &web.Server{
		People: uiPeople{s, &seldom{}}, Viewer: uiViewer{s.viewer(s.keys)}, Style: s.uiStyle,
		Workspaces: func() []string { return sortedNames(s.conf()) }, Backend: s.uiHouse(),
		Log: func(err error) {
			if errs.allow("") {
				s.log.Error().Err(err).EmbedObject(advice{err}).Str("via", web.Via).Msg("pages")
			}
		},
	}
}

// openPages listens where the configuration says; nil where it says nowhere, or
// where this system does not tell who asks for a link.
func (s *server) openPages() (*pages, error) {
	if s.cfg.UI == "" || s.script != nil { // a script answers alone
		return nil, nil
	}
	if !local.Supported {
		s.log.Warn().Msg("no pages are served: this system does not tell who asks for them")
		return nil, nil
	}
	l, err := listenUI(s.cfg)
	if err != nil {
		return nil, err
	}
	if at := l.Addr().String(); at != s.cfg.UI && !s.cfg.UIStated {
		s.log.Warn().Str("path", at).Msg("the pages are at another port: " + s.cfg.UI + " is somebody else's; name one with ui")
	}
	private, err := local.ListenPrivate(s.layout.UISocket())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.ui.Hosts = names(l.Addr(), s.cfg.ListenHosts)
	s.ui.Home = "http://" + l.Addr().String()
	s.health.pages(s.ui.Home)
	s.log.Info().Str("path", l.Addr().String()).Msg("people decide in a browser here: permesso ui")
	return &pages{server: s.ui, listener: l, socket: s.privateServer(), private: private}, nil
}

func listenUI(cfg *config.Config) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", cfg.UI)
	if errors.Is(err, syscall.EADDRINUSE) && !cfg.UIStated {
		host, _, splitErr := net.SplitHostPort(cfg.UI)
		if splitErr != nil {
			return nil, splitErr
		}
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, &exit{codeError, fmt.Errorf("serve pages on %s: %w", cfg.UI, err), "name another address with ui, or turn it off: ui = false"}
	}
	return l, nil
}

// run serves until ctx ends.
func (p *pages) run(ctx context.Context) error {
	errs := make(chan error, 1)
	go func() { errs <- p.socket.Run(ctx, p.private) }()
	return errors.Join(p.server.Run(ctx, p.listener), <-errs)
}

func (p *pages) close() {
	if p != nil {
		_ = p.listener.Close() // Run has done it, unless it never ran
		_ = p.private.Close()
	}
}

// privateServer answers whoever can enter the home's run folder: the operator, or
// root. It gives links and nothing else; they have the files for the rest.
func (s *server) privateServer() *local.Server {
	server := s.localServer()
	server.Decider = refusing{}
	server.Who = func(uid string) (approval.Person, []string) {
		p := personOf(uid)
		if uid != "0" && uid != strconv.Itoa(os.Geteuid()) {
			return p, nil
		}
		return p, sortedNames(s.conf())
	}
	server.May = func(string, *approval.Pending, approval.Person) bool { return false }
	server.Link = func(p approval.Person) (string, time.Duration, error) {
		return s.giveLink(web.User{Person: p, Operator: true})
	}
	return server
}

// refusing decides nothing.
type refusing struct{}

// Decide implements chat.Decider.
func (refusing) Decide(context.Context, approval.DecisionInput) (*approval.Decision, error) {
	return nil, &approval.Refusal{Reason: approval.ErrNotApplicable, Hint: "permesso decide does that"}
}

// linkFor gives an approver who comes through the public socket a link.
func (s *server) linkFor(p approval.Person) (string, time.Duration, error) {
	if s.ui.Home == "" {
		return "", 0, errors.New("the gate serves no pages: see ui in permesso.toml")
	}
	return s.giveLink(web.User{Person: p})
}

// giveLink says in the log who was given a link, never which.
func (s *server) giveLink(g web.User) (string, time.Duration, error) {
	address, life, err := s.ui.Link(g)
	if err == nil {
		s.log.Info().Str("by", "local:"+g.Person.ID).Str("via", web.Via).Msg("somebody was given a link to the pages")
	}
	return address, life, err
}

// uiPeople says who may what at the pages.
type uiPeople struct {
	*server
	refusals *seldom
}

// deciderOf is Decide for a guest: one who came through the public socket is an
// approver or nobody.
func (u uiPeople) deciderOf(g web.User) *gate.Decider {
	d := u.localDecider()
	if g.Operator {
		d = u.decider(u.keys, u.server)
	}
	refused := d.Refused
	d.Refused = func(k approval.Key, by approval.Person, via string) {
		if u.refusals.allow(by.ID) {
			refused(k, by, via)
		}
	}
	return d
}

// Rights implements web.People.
func (u uiPeople) Rights(g web.User) web.Rights {
	d, all := u.deciderOf(g), sortedNames(u.conf())
	r := web.Rights{Operator: g.Operator, Language: u.languageOf(g.Person)}
	for _, ws := range all {
		if name, ok := d.May(ws, nil, g.Person); ok {
			r.Name, r.Decide = name, append(r.Decide, ws)
		}
	}
	if r.See = r.Decide; g.Operator {
		r.See = all
	}
	return r
}

// May implements web.People.
func (u uiPeople) May(g web.User, ws string, p *approval.Pending) bool {
	_, ok := u.deciderOf(g).May(ws, p, g.Person)
	return ok
}

// Interceptor implements web.People.
func (u uiPeople) Interceptor(g web.User) *chat.Interceptor {
	decider := afresh(func() *gate.Decider { return u.deciderOf(g) })
	return &chat.Interceptor{
		Decider: decider, Viewer: u.viewer(u.keys), Zone: time.Local, Redact: newRedaction(), Revoker: revoker{u.memory, decider},
		CanDecide: decider.Standing, Paused: u.pausedIn,
	}
}

// uiStyle is how the pages show things; "" is the gate's own language.
func (s *server) uiStyle(language string) chat.Style {
	style := s.style()
	if language != "" {
		style.Language = language
	}
	style.WouldAllow, style.Earlier = s.memory.wouldAllow, earlier(s.viewer(s.keys))
	style.Foot = auditFoot(s.audit.Newest())
	return style
}

// uiViewer knows the slot, too.
type uiViewer struct{ *gate.Viewer }

// Decided implements web.Viewer.
func (v uiViewer) Decided(w approval.Waiting) *approval.Decision {
	b, err := v.Store.Read(approval.DocDecision, w.Key())
	if err != nil {
		return nil
	}
	d := v.Decision(w.Key(), b)
	if d == nil || d.PendingSHA256 != w.SHA256 {
		return nil
	}
	return d
}
