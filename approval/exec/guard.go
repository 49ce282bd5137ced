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

var cgnat = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598

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
	if facts.PublicAddress(addr) {
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
