package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultListen is the default address of the HTTP API.
const DefaultListen = "127.0.0.1:8765"

// Listen is one address of the HTTP API.
type Listen struct {
	Network string // tcp or unix
	Address string // address and port, or an absolute path
}

const (
	unixPrefix    = "unix:"
	listenHint    = `for example listen = "` + DefaultListen + `", or ["` + DefaultListen + `", "unix:/run/permesso/rest.sock"]; "" turns it off`
	maxHostLength = 253
)

var hostPattern = pattern(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[0-9]{1,5})?$`)

func validHostName(name string) bool {
	return len(name) <= maxHostLength && hostPattern().MatchString(name)
}

// listen reads one address or a list of them. A single empty one turns it off.
func (s *section) listen() (all []Listen) {
	if n := s.node.children["listen"]; n != nil && n.kind == text && n.text == "" {
		return nil
	}
	for _, n := range s.items("listen") {
		l := Listen{"tcp", n.text}
		if path, ok := strings.CutPrefix(n.text, unixPrefix); ok {
			l = Listen{"unix", path}
		}
		switch {
		case l.Network == "tcp" && !s.checkListen(n):
		case l.Network == "unix" && !socketPath(l.Address):
			s.fail(n.val, "listen", listenHint, "listen: a socket's path must be absolute and of at most %d bytes", maxSocket)
		case slices.Contains(all, l):
			s.fail(n.val, "listen", "", "listen has the same address twice")
		default:
			all = append(all, l)
		}
	}
	return all
}

func (s *section) checkListen(n *node) bool {
	at, err := netip.ParseAddrPort(n.text)
	if err != nil {
		s.fail(n.val, "listen", listenHint, "listen must be an address with a port, or unix: and a path")
		return false
	}
	if !at.Addr().IsLoopback() {
		s.warn(n.val, "listen", "listen on 127.0.0.1 behind a TLS proxy, or use a Unix socket",
			"the HTTP API is reachable from other machines: keys and requests are sent unencrypted")
	}
	return true
}

func absolutePath(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && printable(path)
}

func socketPath(path string) bool { return absolutePath(path) && len(path) <= maxSocket }

// DefaultUI is the default address of the web UI. If it is in use, the daemon takes
// a free port.
const DefaultUI = "127.0.0.1:8766"

const uiHint = `for example ui = "` + DefaultUI + `"; false turns it off`

// uiType is a loopback address, because the pages take decisions and their
// connections are not encrypted. Its value is "" if the UI is off.
func uiType() valueType {
	return valueType{
		kinds: []kind{text, boolean}, text: "loopback address and port, or false", schema: schema{"type": []string{"string", "boolean"}},
		read: func(s *section, k Key, n *node) any {
			switch n.text {
			case "true":
				return DefaultUI
			case "false", "":
				return ""
			}
			addr, err := netip.ParseAddrPort(n.text)
			switch {
			case err != nil:
				s.fail(n.val, k.Name, uiHint, "ui must be an address with a port, or false")
			case !addr.Addr().IsLoopback() || addr.Addr().Is4In6():
				s.fail(n.val, k.Name, "from another machine, use ssh -L 8766:127.0.0.1:8766", "ui must be a loopback address: 127.0.0.1 or [::1]")
			}
			return n.text
		},
	}
}

func (s *section) ui() string {
	address := s.text("ui")
	for _, l := range s.cfg.Listen {
		if port, err := netip.ParseAddrPort(address); s.has("ui") && l.Network == "tcp" && l.Address == address && err == nil && port.Port() != 0 {
			s.fail(s.position("ui"), "ui", uiHint, "ui and listen have the same address")
		}
	}
	return address
}
