package facts_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval/facts"
)

func TestRecipients(t *testing.T) {
	for _, tc := range []struct {
		why, in string
		want    []string // text, address, domain
		whole   bool
	}{
		{"an address", "ann@example.org", []string{"ann@example.org", "ann@example.org", "example.org"}, true},
		{"a display name", "Ann <ann@Example.ORG>", []string{"Ann <ann@Example.ORG>", "ann@Example.ORG", "example.org"}, true},
		{"several", "a@x.example, b@y.example", []string{"a@x.example", "a@x.example", "x.example", "b@y.example", "b@y.example", "y.example"}, true},
		{"several without spaces", "a@x.example,b@y.example", []string{"a@x.example", "a@x.example", "x.example", "b@y.example", "b@y.example", "y.example"}, false},
		{"a comma in quotation marks", `"Doe, J" <j@x.example>`, []string{`"Doe, J" <j@x.example>`, "j@x.example", "x.example"}, true},
		{"a comma in a comment", `j@x.example (Doe, J)`, []string{`j@x.example (Doe, J)`, "j@x.example", "x.example"}, true},
		{"an address in a display name", `"a@good.example" <b@evil.example>`, []string{`"a@good.example" <b@evil.example>`, "b@evil.example", "evil.example"}, true},
		{"the dot of another script", "ann@Example\u3002org", []string{"ann@Example\u3002org", "ann@Example\u3002org", "example.org"}, true},
		{"not an address", "everyone", []string{"everyone", "", ""}, true},
		{"nothing", "", []string{"", "", ""}, true},
		{"spaces", " a@x.example ", []string{"a@x.example", "a@x.example", "x.example"}, false},
		{"a line break", "a@x.example\nBcc: b@y.example", []string{"a@x.example\nBcc: b@y.example", "", ""}, true},
	} {
		all, whole := facts.Recipients(tc.in)
		var got []string
		for _, r := range all {
			got = append(got, r.Text, r.Address, r.Domain)
		}
		require.Equal(t, tc.want, got, tc.why)
		require.Equal(t, tc.whole, whole, tc.why)
	}
	require.True(t, facts.IsOwnDomain("example.org", []string{"x", "Example.org."}))
	require.True(t, facts.IsOwnDomain("xn--bcher-kva.example", []string{"B\u00fccher.example"}))
	require.False(t, facts.IsOwnDomain("mail.example.org", []string{"example.org"}), "another host may belong to another person")
	require.True(t, facts.IsOwnDomain("example.org", []string{"x", "Example.org."}))
	require.False(t, facts.IsOwnDomain("example.org", []string{"mail.example.org"}))
	require.False(t, facts.IsOwnDomain("badexample.org", []string{"example.org"}))
	require.False(t, facts.IsOwnDomain("example.org.evil.example", []string{"example.org"}))
	require.False(t, facts.IsOwnDomain("mail.", []string{"", "."}))
	require.False(t, facts.IsOwnDomain("", []string{"example.org"}))
}

// If the recipients' texts are said to be the whole text, they are.
func TestWholeRecipientsAreTheText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.SampledFrom([]string{"a@b.c", ",", ", ", " ", `"`, "<", ">", "(", ")", `\`, "\n", "x", ":", ";"})
		text := strings.Join(rapid.SliceOfN(piece, 0, 10).Draw(rt, "pieces"), "")
		all, whole := facts.Recipients(text)
		var texts []string
		for _, r := range all {
			texts = append(texts, r.Text)
		}
		require.Equal(rt, text == strings.Join(texts, ", "), whole || text == strings.Join(texts, ", "))
		require.NotEmpty(rt, all)
	})
}

func TestPlaceOf(t *testing.T) {
	for in, want := range map[string]facts.Place{
		"https://api.example.org/v1":           {Host: "api.example.org", Scheme: "https"},
		"https://api.example.org:443/":         {Host: "api.example.org", Scheme: "https"},
		"HTTP://api.example.org:80":            {Host: "api.example.org", Scheme: "http"},
		"http://api.example.org:8080":          {Host: "api.example.org", Scheme: "http", Port: "8080"},
		"https://good.example@evil.example/":   {Host: "evil.example", Scheme: "https", User: true},
		"https://xn--80ak6aa92e.com/":          {Host: "xn--80ak6aa92e.com", Scheme: "https", Punycode: true, Unicode: "аррӏе.com"},
		"https://a.XN--80AK6AA92E.com/":        {Host: "a.XN--80AK6AA92E.com", Scheme: "https", Punycode: true, Unicode: "a.аррӏе.com"},
		"https://xn--0.com/":                   {Host: "xn--0.com", Scheme: "https", Punycode: true},
		"https://[2001:db8::1]:8443/":          {Host: "2001:db8::1", Scheme: "https", Port: "8443", IP: true},
		"https://127.0.0.1/":                   {Host: "127.0.0.1", Scheme: "https", IP: true},
		"https://2130706433/":                  {Host: "2130706433", Scheme: "https", IP: true},
		"https://0x7f.1/":                      {Host: "0x7f.1", Scheme: "https", IP: true},
		"https://1e100.net/":                   {Host: "1e100.net", Scheme: "https"},
		"https://good.example%2eevil.example/": {Odd: true},
		"https://good.example\\@evil.example":  {Odd: true},
		"https://good.example\\.evil.example/": {Odd: true},
		"https://":                             {Odd: true},
		"javascript:alert(1)":                  {Odd: true},
		"nothing":                              {Odd: true},
		"https://[fe80::1%25en 0]/":            {Odd: true},
		"https://a b/":                         {Odd: true},
		"https://example.org\u3002evil.com/l":  {Host: "example.org.evil.com", Written: "example.org\u3002evil.com", Scheme: "https"},
		"https://example.org\uff0eevil.com/l":  {Host: "example.org.evil.com", Written: "example.org\uff0eevil.com", Scheme: "https"},
		"https://example.org\uff61evil.com/l":  {Host: "example.org.evil.com", Written: "example.org\uff61evil.com", Scheme: "https"},
		"https://p\u0430ypal.com:8443/":        {Host: "xn--pypal-4ve.com", Written: "p\u0430ypal.com", Scheme: "https", Port: "8443", Punycode: true, Unicode: "p\u0430ypal.com"},
		"https://\uff11\uff12\uff17.0.0.1/":    {Host: "127.0.0.1", Written: "\uff11\uff12\uff17.0.0.1", Scheme: "https", IP: true},
		"https://a\ufffdb/":                    {Odd: true},
		"https://evil.c\u2100.example.org/":    {Odd: true}, // becomes evil.ca/c
	} {
		got := facts.PlaceOf(in)
		if want.Odd {
			require.True(t, got.Odd, in)
			continue
		}
		require.Equal(t, want, got, in)
	}
	require.Equal(t, facts.Place{Host: "a.example", Port: "8443"}, facts.HostPlace("a.example:8443"))
	for _, odd := range []string{"", "a.example/x", "u@a.example", "a b", "https://a.example", "a.example#", "a\\b"} {
		require.True(t, facts.HostPlace(odd).Odd, odd)
	}
}

func TestAmountOf(t *testing.T) {
	for in, want := range map[string]facts.Amount{
		"0":        {Valid: true, Zero: true},
		"10.50":    {Valid: true},
		"007":      {Valid: true},
		"-0.00":    {Valid: true, Zero: true, Negative: true},
		"+5":       {Valid: true},
		"1e5":      {Valid: true, Exponent: true},
		"0E-5":     {Valid: true, Exponent: true, Zero: true},
		"1,000":    {},
		"1.":       {},
		".5":       {},
		"1e":       {Exponent: true},
		"":         {},
		"-":        {Negative: true},
		"5 EUR":    {},
		"١٢":       {},
		"0x10":     {},
		"Infinity": {},
	} {
		want.Text = in
		got := facts.AmountOf(in)
		if !want.Valid {
			require.False(t, got.Valid, in)
			continue
		}
		require.Equal(t, want, got, in)
	}
	require.True(t, facts.IsCurrency("EUR"))
	require.False(t, facts.IsCurrency("eur") || facts.IsCurrency("currency") || facts.IsCurrency(""))
}
