package facts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrivate(t *testing.T) {
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
			g := Private{host: "api.example.org"}
			for _, s := range row.allowed {
				a, err := parseAllowance(s)
				require.NoError(t, err)
				g.allowed = append(g.allowed, a)
			}
			err := g.Check(row.address)
			require.Equal(t, row.ok, err == nil, "%v", err)
		})
	}
}
