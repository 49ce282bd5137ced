package config

import "net/netip"

// DefaultUI is where the pages for people are, where nothing is said. Where that
// is somebody else's, a free port does as well.
const DefaultUI = "127.0.0.1:8766"

const uiHint = `for example ui = "` + DefaultUI + `"; false turns it off`

// ui is an address of this machine, or false; stated says that the file says so.
// Whoever opens the pages decides with them, and no line of theirs is encrypted:
// another machine is never let in.
func (s *section) ui() (at string, stated bool) {
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
		s.fail(n.val, key, "reach it from elsewhere with ssh -L 8766:127.0.0.1:8766", "ui must be an address of this machine: 127.0.0.1 or [::1]")
		return "", true
	}
	for _, l := range s.cfg.Listen {
		if l.Network == "tcp" && l.Address == n.text && addr.Port() != 0 {
			s.fail(n.val, key, uiHint, "ui and listen name the same place")
			return "", true
		}
	}
	return n.text, true
}
