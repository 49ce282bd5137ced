package facts

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublicAddress(t *testing.T) {
	for _, a := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255",
		"169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700::1111", "2a00::1", "2001:200::1", "2003::1",
	} {
		require.True(t, PublicAddress(netip.MustParseAddr(a)), a)
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
		require.False(t, PublicAddress(netip.MustParseAddr(a)), "%s: %s", a, why)
	}
	require.False(t, PublicAddress(netip.Addr{}), "no address")
}
