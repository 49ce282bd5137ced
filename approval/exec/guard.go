package exec

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/permesso-dev/permesso/approval/facts"
)

// special are the non-public addresses of IANA's special-purpose registries (RFC
// 6890). IPv6 addresses outside of 2000::/3 are never public and need no entry:
// loopback, ULA, link-local, multicast, NAT64's 64:ff9b::/96.
var nonPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23",     // Teredo, ORCHID and other protocols
	"2001:db8::/32", // documentation, like 3fff::/20
	"2002::/16",     // 6to4: contains any IPv4 address
	"3fff::/20",
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	cgnat         = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
)

func prefixes(ss ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(ss))
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// isPublic reports whether a is an address on the public network.
func isPublic(a netip.Addr) bool {
	if a.Is6() && !globalUnicast.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(nonPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isLocal reports whether a is private, loopback or CGNAT. A named host may have
// such an address. Cloud metadata on a link-local address is not among them.
func isLocal(a netip.Addr) bool { return a.IsPrivate() || a.IsLoopback() || cgnat.Contains(a) }

// allowance is one entry of allow_private.
type allowance struct {
	addr netip.Addr // valid, or host is set
	host string
	port string // "": any
}

var errAllowance = errors.New("must contain addresses or host names, each with or without a port")

func parseAllowance(s string) (allowance, error) {
	var a allowance
	if ap, err := netip.ParseAddrPort(s); err == nil {
		a.addr, a.port = ap.Addr().Unmap(), fmt.Sprint(ap.Port())
	} else if addr, err := netip.ParseAddr(s); err == nil {
		a.addr = addr.Unmap()
	} else {
		var hasPort bool
		a.host, a.port, hasPort = strings.Cut(s, ":")
		if hasPort && !facts.ValidPort(a.port) || !facts.PlainHost(a.host) {
			return allowance{}, errAllowance
		}
		return a, nil
	}
	if a.addr.Zone() != "" || a.addr.IsUnspecified() || a.addr.IsMulticast() {
		return allowance{}, errors.New("an address with a zone, an unspecified or a multicast address cannot be allowed")
	}
	return a, nil
}

// guard checks the address of the connection itself, not an earlier resolution of
// the host's name. This prevents DNS rebinding.
type guard struct {
	host    string // of the URL
	allowed []allowance
}

func newGuard(host string, allowPrivate []string) (guard, error) {
	g := guard{host: host}
	for _, s := range allowPrivate {
		a, err := parseAllowance(s)
		if err != nil {
			return g, err
		}
		g.allowed = append(g.allowed, a)
	}
	return g, nil
}

// privateError is a refused connection.
type privateError struct{ addr netip.Addr }

func (e *privateError) Error() string {
	return fmt.Sprintf("%s is not a public address; to allow it, add it to allow_private", e.addr)
}

func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	return g.check(ap)
}

func (g guard) check(ap netip.AddrPort) error {
	addr, port := ap.Addr().Unmap(), fmt.Sprint(ap.Port())
	if isPublic(addr) {
		return nil
	}
	for _, a := range g.allowed {
		if a.port != "" && a.port != port {
			continue
		}
		if a.addr.IsValid() && a.addr == addr || a.host != "" && a.host == g.host && isLocal(addr) {
			return nil
		}
	}
	return &privateError{addr}
}

// names says whether allow_private contains the host, by name or by address.
func (g guard) names(host string) bool {
	addr, _ := netip.ParseAddr(host)
	return slices.ContainsFunc(g.allowed, func(a allowance) bool {
		return a.host == host && host != "" || a.addr.IsValid() && a.addr == addr.Unmap()
	})
}
