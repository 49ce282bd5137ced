package facts

import (
	"net/netip"
	"slices"
)

// nonPublic are the non-public addresses of IANA's special-purpose registries (RFC
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

var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(ss ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(ss))
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// PublicAddress reports whether a is an address on the public network.
func PublicAddress(a netip.Addr) bool {
	if !a.IsValid() || a.Is6() && !globalUnicast.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(nonPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}
