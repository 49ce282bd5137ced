package facts

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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
		if hasPort && !ValidPort(a.port) || !PlainHost(a.host) {
			return allowance{}, errAllowance
		}
		return a, nil
	}
	if a.addr.Zone() != "" || a.addr.IsUnspecified() || a.addr.IsMulticast() {
		return allowance{}, errors.New("an address with a zone, an unspecified or a multicast address cannot be allowed")
	}
	return a, nil
}

// Private is what may be reached besides the public network: allow_private. It checks the
// address of the connection itself, not an earlier resolution of the host's name. This
// prevents DNS rebinding.
type Private struct {
	host    string // of the URL
	allowed []allowance
}

// NewPrivate reads allow_private for a URL with this host.
func NewPrivate(host string, allowPrivate []string) (Private, error) {
	g := Private{host: host}
	for _, s := range allowPrivate {
		a, err := parseAllowance(s)
		if err != nil {
			return g, err
		}
		g.allowed = append(g.allowed, a)
	}
	return g, nil
}

// PrivateError is a refused connection.
type PrivateError struct{ addr netip.Addr }

// Error implements error.
func (e *PrivateError) Error() string {
	return fmt.Sprintf("%s is not a public address; to allow it, add it to allow_private", e.addr)
}

// Check refuses to connect to an address with a port that is neither public nor allowed.
func (g Private) Check(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	addr, port := ap.Addr().Unmap(), fmt.Sprint(ap.Port())
	if PublicAddress(addr) {
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
	return &PrivateError{addr}
}

// Names says whether allow_private contains the host, by name or by address.
func (g Private) Names(host string) bool {
	addr, _ := netip.ParseAddr(host)
	return slices.ContainsFunc(g.allowed, func(a allowance) bool {
		return a.host == host && host != "" || a.addr.IsValid() && a.addr == addr.Unmap()
	})
}
