package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
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

// listen reads one address or a list of them. isSet reports whether the file sets it.
func (s *section) listen() (list []Listen, isSet bool) {
	const key = "listen"
	n := s.node.children[key]
	if n != nil && n.kind == array {
		for _, item := range s.texts(key, listenHint) {
			list = s.addListen(list, item)
		}
		return list, true
	}
	if n = s.get(key, text, listenHint); n == nil {
		s.setDefault(key, DefaultListen)
		return []Listen{{"tcp", DefaultListen}}, false
	}
	if n.text == "" {
		return nil, true
	}
	return s.addListen(nil, n), true
}

// addListen adds one address.
func (s *section) addListen(list []Listen, n *node) []Listen {
	l := Listen{"tcp", n.text}
	if path, ok := strings.CutPrefix(n.text, unixPrefix); ok {
		l = Listen{"unix", path}
	}
	switch {
	case l.Network == "unix" && !socketPath(l.Address):
		s.fail(n.val, "listen", listenHint, "listen: a socket's path must be absolute and of at most %d bytes", maxSocket)
		return list
	case l.Network == "unix":
	default:
		at, err := netip.ParseAddrPort(n.text)
		if err != nil {
			s.fail(n.val, "listen", listenHint, "listen must be an address with a port, or unix: and a path")
			return list
		}
		if !at.Addr().IsLoopback() {
			s.warn(n.val, "listen", "listen on 127.0.0.1 behind a TLS proxy, or use a Unix socket",
				"the HTTP API is reachable from other machines: keys and requests are sent unencrypted")
		}
	}
	if slices.Contains(list, l) {
		s.fail(n.val, "listen", "", "listen has the same address twice")
		return list
	}
	return append(list, l)
}

func socketPath(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && len(path) <= maxSocket &&
		!strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) })
}

// listenHosts returns the host names of the HTTP API besides its addresses.
func (s *section) listenHosts() (hosts []string) {
	const key, hint = "listen_hosts", `a list of names as clients write them: listen_hosts = ["host.docker.internal:8765"]`
	for _, n := range s.texts(key, hint) {
		if len(n.text) > maxHostLength || !hostPattern().MatchString(n.text) {
			s.fail(n.val, key, hint, "%s must hold host names in lower case, with a port or without", key)
			continue
		}
		hosts = append(hosts, n.text)
	}
	return hosts
}
