package authentic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

const signedRest = "From: ricardo@human.test\nTo: x@home.test\nSubject: x\nDate: x\n\n1\n"

// Microsoft's servers write their results without a name.
const unnamedPass = "spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=human.test; dkim=pass (signature was verified) header.d=human.test;" +
	"dmarc=pass action=none header.from=human.test;compauth=pass reason=100"

// A field without a server's name counts where the configuration says that it is the server's
// own, and only there. A field with a name does not count there.
func TestResultsWithoutName(t *testing.T) {
	unnamed := &Authenticator{Unnamed: true}
	named := &Authenticator{AuthservID: "mx.home.test"}
	for value, want := range map[string]string{
		unnamedPass: "",
		" (a comment) dmarc=pass header.from=human.test;": "",
		"mx.home.test; dmarc=pass header.from=human.test": "does not have the form",
		"dmarc; dmarc=pass header.from=human.test":        "does not have the form",
		"; dmarc=pass header.from=human.test":             "does not have the form",
		"":                                                "does not have the form",
		"dmarc=pass header.from=evil.test":                "but the From field says human.test",
		"dmarc=fail header.from=human.test":               "DMARC failed",
		"dmarc=pass header.from=human.test; dmarc=pass header.from=human.test":         "two results",
		"spf=pass (x) smtp.mailfrom=human.test":                                        "nothing about DMARC",
		"dmarc=pass header.from=human.test header.from=evil.test":                      "does not say for which From domain",
		`dmarc=none reason="dmarc=pass header.from=human.test" header.from=human.test`: "dmarc=none",
		"dmarc=none (dmarc=pass header.from=human.test) header.from=human.test":        "dmarc=none",
		"spf=fail smtp.mailfrom=a;dmarc=pass header.from=human.test\nX: y":             "",
		"spf=none\nAuthentication-Results: dmarc=pass header.from=human.test":          "nothing about DMARC",
		"none": "nothing about DMARC",
	} {
		raw := buildRecipe(t, "Authentication-Results: "+value+"\n"+signedRest)
		_, err := unnamed.Prove(context.Background(), raw)
		if want == "" {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, want, value)
		}
		if value != "mx.home.test; dmarc=pass header.from=human.test" {
			_, err = named.Prove(context.Background(), raw)
			require.Error(t, err, value)
		}
	}
	_, err := unnamed.Prove(context.Background(), buildRecipe(t, signedRest))
	require.ErrorContains(t, err, "no Authentication-Results field")
}

// A quoted text in a comment is read, unless what is in it could end the comment.
func TestQuotedTextInComments(t *testing.T) {
	server := &Authenticator{AuthservID: "mx.home.test"}
	for comment, ok := range map[string]bool{
		`domain of "john doe"@human.test designates it`: true,
		`"a" and "b"`:                      true,
		`""`:                               true,
		`(nested "a b")`:                   true,
		`"a`:                               false,
		`"a) dmarc=pass header.from=x (b"`: false,
		`"a;b"`:                            false,
		`"a\"b"`:                           false,
		`"a(b"`:                            false,
		`a"`:                               false,
	} {
		_, err := server.Prove(context.Background(), buildRecipe(t, "Authentication-Results: mx.home.test; spf=pass ("+comment+") smtp.mailfrom=x; dmarc=pass header.from=human.test\n"+signedRest))
		require.Equal(t, ok, err == nil, "%s: %v", comment, err)
	}
}
