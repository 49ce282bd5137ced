package config

import "net/netip"

// DefaultUI is the default address of the web UI. If it is in use, the daemon takes
// a free port.
const DefaultUI = "127.0.0.1:8766"

const uiHint = `for example ui = "` + DefaultUI + `"; false turns it off`

// ui returns the address of the web UI, "" if it is off. isSet reports whether the
// file sets it. The address must be a loopback one: the pages take decisions, and
// their connections are not encrypted.
func (s *section) ui() (address string, isSet bool) {
	const key = "ui"
	if n := s.node.children[key]; n != nil && n.kind == boolean {
		if s.flag(key, true) {
			return DefaultUI, true
		}
		return "", true
	}
	n := s.get(key, text, uiHint)
	switch {
	case s.node.children[key] == nil:
		s.setDefault(key, DefaultUI)
		return DefaultUI, false
	case n == nil, n.text == "":
		return "", true
	}
	addr, err := netip.ParseAddrPort(n.text)
	switch {
	case err != nil:
		s.fail(n.val, key, uiHint, "ui must be an address with a port, or false")
		return "", true
	case !addr.Addr().IsLoopback() || addr.Addr().Is4In6():
		s.fail(n.val, key, "from another machine, use ssh -L 8766:127.0.0.1:8766", "ui must be a loopback address: 127.0.0.1 or [::1]")
		return "", true
	}
	for _, l := range s.cfg.Listen {
		if l.Network == "tcp" && l.Address == n.text && addr.Port() != 0 {
			s.fail(n.val, key, uiHint, "ui and listen have the same address")
			return "", true
		}
	}
	return n.text, true
}
