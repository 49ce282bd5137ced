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
