package exec

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsPublic(t *testing.T) {
	for _, a := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255",
		"169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700::1111", "2a00::1", "2001:200::1", "2003::1",
	} {
		require.True(t, isPublic(netip.MustParseAddr(a)), a)
	}
	for a, why := range map[string]string{
		"0.0.0.0": "unspecified, which Linux treats as itself", "0.1.2.3": "this network", "10.0.0.1": "RFC 1918", "172.16.0.1": "RFC 1918",
		"172.31.255.255": "RFC 1918", "192.168.1.1": "RFC 1918", "100.64.0.1": "CGNAT", "100.127.255.255": "CGNAT", "127.0.0.1": "loopback",
		"127.255.255.255": "loopback", "169.254.169.254": "cloud metadata", "192.0.0.192": "cloud metadata, too", "192.0.2.1": "documentation",
		"192.88.99.1": "6to4 relays", "198.18.0.1": "benchmarks", "198.51.100.1": "documentation", "203.0.113.1": "documentation",
		"224.0.0.1": "multicast", "239.255.255.250": "multicast", "240.0.0.1": "reserved", "255.255.255.255": "broadcast",
		"::": "unspecified", "::1": "loopback", "::127.0.0.1": "IPv4-compatible", "::ffff:0:127.0.0.1": "translated",
		"64:ff9b::7f00:1": "NAT64", "64:ff9b:1::a00:1": "local NAT64", "100::1": "discarded", "2001::1": "Teredo", "2001:0:7f00:1::": "Teredo",
		"2001:20::1": "ORCHID", "2001:db8::1": "documentation", "2002:7f00:1::": "6to4 of loopback", "3fff::1": "documentation",
		"5f00::1": "segment routing", "fc00::1": "ULA", "fd00:ec2::254": "cloud metadata", "fe80::1": "link-local", "fec0::1": "site-local",
		"ff02::1": "multicast", "4000::1": "unassigned",
	} {
		require.False(t, isPublic(netip.MustParseAddr(a)), "%s: %s", a, why)
	}
}

func TestGuard(t *testing.T) {
	for _, row := range []struct {
		why, address string
		allowed      []string
		ok           bool
	}{
		{"public", "1.1.1.1:443", nil, true},
		{"private", "10.1.2.3:443", nil, false},
		{"mapped into IPv6", "[::ffff:10.1.2.3]:443", nil, false},
		{"mapped, and public", "[::ffff:1.1.1.1]:443", nil, true},
		{"allowed", "10.1.2.3:443", []string{"10.1.2.3"}, true},
		{"allowed and mapped", "[::ffff:10.1.2.3]:443", []string{"10.1.2.3"}, true},
		{"another is allowed", "10.1.2.3:443", []string{"10.1.2.4", "other.example"}, false},
		{"allowed with its port", "10.1.2.3:443", []string{"10.1.2.3:443"}, true},
		{"allowed with another port", "10.1.2.3:443", []string{"10.1.2.3:80"}, false},
		{"the host is allowed", "10.1.2.3:443", []string{"api.example.org"}, true},
		{"the host is allowed with another port", "10.1.2.3:443", []string{"api.example.org:80"}, false},
		{"loopback of an allowed host", "[::1]:443", []string{"api.example.org"}, true},
		{"ULA of an allowed host", "[fd00::1]:443", []string{"api.example.org"}, true},
		{"an allowed host does not allow the metadata service", "169.254.169.254:80", []string{"api.example.org"}, false},
		{"nor the unspecified address", "0.0.0.0:80", []string{"api.example.org"}, false},
		{"nor NAT64", "[64:ff9b::a00:1]:80", []string{"api.example.org"}, false},
		{"the metadata service by address", "169.254.169.254:80", []string{"169.254.169.254"}, true},
		{"not an address", "api.example.org:80", []string{"api.example.org"}, false},
	} {
		t.Run(row.why, func(t *testing.T) {
			g := guard{host: "api.example.org"}
			for _, s := range row.allowed {
				a, err := parseAllowance(s)
				require.NoError(t, err)
				g.allowed = append(g.allowed, a)
			}
			err := g.control(t.Context(), "tcp", row.address, nil)
			require.Equal(t, row.ok, err == nil, "%v", err)
		})
	}
}
