package config

import "net/netip"

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
