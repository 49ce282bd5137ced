package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// newUI wires the web UI.
func (s *server) newUI() *web.Server {
	var errs rateLimited
	return &web.Server{
		People: uiPeople{s}, Viewer: s.Viewer(s.keys), Style: s.uiStyle,
		Workspaces: func() []string { return home.WorkspaceNames(s.Current()) }, Backend: s.uiBackend(),
		Log: func(err error) {
			if errs.allow("") {
				s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Str("via", web.Via).Msg("web UI failed")
			}
		},
	}
}

// openWebUI listens on the configured address; nil without one.
func (s *server) openWebUI() ([]part, error) {
	if s.Config.UI == "" || s.script != nil { // no people with a script
		return nil, nil
	}
	l, err := listenUI(s.Config)
	if err != nil {
		return nil, err
	}
	if at := l.Addr().String(); at != s.Config.UI && !s.Config.UISet {
		s.log.Warn().Str("path", at).Msg("web UI uses another port: " + s.Config.UI + " is in use; set ui to a free address")
	}
	s.ui.Hosts = names(l.Addr(), s.Config.ListenHosts)
	s.ui.BaseURL = "http://" + l.Addr().String()
	s.health.SetUI(s.ui.BaseURL)
	s.log.Info().Str("path", l.Addr().String()).Msg("web UI listening")
	return []part{{func(ctx context.Context) error { return s.ui.Run(ctx, l) }, []io.Closer{l}}}, nil
}

func listenUI(cfg *config.Config) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", cfg.UI)
	if errors.Is(err, syscall.EADDRINUSE) && !cfg.UISet {
		host, _, splitErr := net.SplitHostPort(cfg.UI)
		if splitErr != nil {
			return nil, splitErr
		}
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, console.Wrap(console.ExitError, fmt.Errorf("web UI: listen on %s: %w", cfg.UI, err), "set ui to another address, or to false to turn it off")
	}
	return l, nil
}

// giveLink logs who gets a link, but never the link. It is "" without a web UI.
func (s *server) giveLink(g web.User) (string, time.Duration, error) {
	if s.ui.BaseURL == "" {
		return "", 0, nil
	}
	address, life, err := s.ui.Link(g)
	if err == nil {
		s.log.Info().Str("by", g.Person.StableID()).Str("via", web.Via).Msg("web UI link issued")
	}
	return address, life, err
}

// uiPeople implements web.People.
type uiPeople struct{ *server }

// Rights implements web.People.
func (u uiPeople) Rights(g web.User) web.Rights {
	may, all := u.authorizer().May, home.WorkspaceNames(u.Current())
	r := web.Rights{Operator: g.Operator, Language: u.languageOf(g.Person)}
	for _, ws := range all {
		if name, ok := may(ws, nil, g.Person); ok {
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
	_, ok := u.authorizer().May(ws, p, g.Person)
	return ok
}

// Interceptor implements web.People.
func (u uiPeople) Interceptor(web.User) *chat.Interceptor { return u.interceptor() }

// uiStyle is the style of the web UI; "" is the configured language.
func (s *server) uiStyle(language string) chat.Style {
	style := s.style(language)
	style.Foot = s.foot()
	return style
}
