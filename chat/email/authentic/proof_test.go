package authentic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a proof covers besides From: what a signature covers, or the complete header if the
// sender's own server delivered the email.
func TestProofCovers(t *testing.T) {
	const (
		rest  = "From: Ricardo <ricardo@human.test>\nTo: permesso@home.test\nSubject: x\nDate: x\n\n1\n"
		full  = "@sign d=human.test s=ed h=From:To:Subject:Date\n"
		pass  = "; dmarc=pass header.from=human.test\n"
		ours  = "Authentication-Results: mx.home.test; "
		alone = "Authentication-Results: mx.home.test" + pass
	)
	for _, c := range []struct {
		why, above, covers string // covers names the covered fields of To, Cc and Date
	}{
		{"a signature", full, "to date"},
		{"a signature, and an unsigned Cc", "Cc: permesso@home.test\n" + full, "to date"},
		{"one that also covers that there is no Cc", "@sign d=human.test s=ed h=from:to:cc:subject:date\n", "to cc date"},
		{"one that covers no recipient", "@sign d=human.test s=ed h=From:Subject:Date\n", "date"},
		{"the second covers them", "@sign d=human.test s=ed h=From:Subject\n" + full, "to date"},
		{"two that cover one each do not add up", "@sign d=human.test s=ed h=From:Subject:Date\n@sign d=human.test s=rsa h=From:Subject:To\n", "date"},
		{"a foreign one covers them", "@sign d=evil.test s=ed h=From:To:Subject:Date\n@sign d=human.test s=ed h=From:Subject\n", ""},
		{"a broken one covers them", "@sign d=human.test s=ed h=From:To:Subject:Date key=ed@evil.test\n@sign d=human.test s=ed h=From:Subject\n", ""},
		{"DMARC alone", alone, ""},
		{"DMARC, and a signature", alone + full, "to date"},
		{"DMARC, and a broken signature", alone + "@sign d=human.test s=ed h=From:To:Subject:Date key=ed@evil.test\n", ""},
		{"SPF of the address", ours + "spf=pass smtp.mailfrom=ricardo@human.test" + pass, "to cc date"},
		{"in other letters", ours + "spf=pass smtp.mailfrom=\"Ricardo@HUMAN.test\"" + pass, "to cc date"},
		{"after SPF of the name in HELO", ours + "spf=none smtp.helo=mail.human.test; spf=pass smtp.mailfrom=ricardo@human.test" + pass, "to cc date"},
		{"SPF of another address there", ours + "spf=pass smtp.mailfrom=mallory@human.test" + pass, ""},
		{"SPF of a subdomain", ours + "spf=pass smtp.mailfrom=ricardo@mail.human.test" + pass, ""},
		{"SPF failed", ours + "spf=fail smtp.mailfrom=ricardo@human.test" + pass, ""},
		{"two results", ours + "spf=fail smtp.mailfrom=ricardo@human.test; spf=pass smtp.mailfrom=ricardo@human.test" + pass, ""},
		{"two addresses", ours + "spf=pass smtp.mailfrom=ricardo@human.test smtp.mailfrom=mallory@evil.test" + pass, ""},
		{"SPF in a comment", ours + "spf=none (spf=pass smtp.mailfrom=ricardo@human.test)" + pass, ""},
		{"SPF of the domain", ours + "spf=pass smtp.mailfrom=human.test" + pass, ""},
		{"and a return path", "Return-Path: <ricardo@human.test>\n" + ours + "spf=pass smtp.mailfrom=human.test" + pass, "to cc date"},
		{"another return path", "Return-Path: <mallory@human.test>\n" + ours + "spf=pass smtp.mailfrom=human.test" + pass, ""},
		{"a return path from the sender", ours + "spf=pass smtp.mailfrom=human.test" + pass + "Return-Path: <ricardo@human.test>\n", ""},
		{"a return path that is not first", "Received: x\nReturn-Path: <ricardo@human.test>\n" + ours + "spf=pass smtp.mailfrom=human.test" + pass, ""},
		{"SPF by another server", alone + "Authentication-Results: mx.home.test; spf=pass smtp.mailfrom=ricardo@human.test\n", ""},
	} {
		p, err := allProofs(&zone{}).Prove(context.Background(), buildRecipe(t, c.above+rest))
		require.NoError(t, err, c.why)
		covers := ""
		for _, field := range []string{"to", "cc", "date"} {
			if p.Covers(field) {
				covers += " " + field
			}
		}
		require.Equal(t, c.covers, trimmed(covers), c.why)
	}

	p, err := (&Authenticator{TrustRelay: true}).Prove(context.Background(), buildRecipe(t, rest))
	require.NoError(t, err)
	require.True(t, p.Covers("Cc"), "a trusted relay")
	require.False(t, Proof{Sender: "a@b.test"}.Covers("To"), "the zero value")

	a := allProofs(&zone{})
	a.DKIM = false
	p, err = a.Prove(context.Background(), buildRecipe(t, alone+full+rest))
	require.NoError(t, err)
	require.False(t, p.Covers("To"), "signatures are not verified")
	_, err = allProofs(&zone{}).Prove(context.Background(), buildRecipe(t, alone+"@sign d=human.test s=flaky h=From:To:Subject:Date\n"+rest))
	var refusal *Error
	require.ErrorAs(t, err, &refusal)
	require.True(t, refusal.Undecided, "the key is looked up again later")
}

func trimmed(s string) string {
	if s == "" {
		return ""
	}
	return s[1:]
}

// An email without a Subject, without a Date, with another Sender or with two To fields is proved, so that its sender
// can be told.
func TestDoubts(t *testing.T) {
	const signed = "@sign d=human.test s=ed h=From:To:Date\nFrom: ricardo@human.test\nTo: permesso@home.test\nDate: x\n"
	a := allProofs(&zone{})
	for mail, doubt := range map[string]Doubt{
		signed + "\n1\n": NoSubject,
		"@sign d=human.test s=ed h=From:Subject\nFrom: ricardo@human.test\nSubject: x\n\n1\n":                                           NoDate,
		"@sign d=human.test s=ed h=From:Subject\nFrom: ricardo@human.test\nSubject: x\nDate: x\nSender: b@human.test\n\n1\n":            OtherSender,
		"@sign d=human.test s=ed h=From:Subject\nFrom: ricardo@human.test\nSubject: x\nDate: x\nSender: Ricardo@human.test (he)\n\n1\n": "",
		"To: b@human.test\n@sign d=human.test s=ed h=From:Subject:To\nFrom: ricardo@human.test\nTo: a@home.test\nSubject: x\n\n1\n":     Repeated,
	} {
		p, err := a.Prove(context.Background(), buildRecipe(t, mail))
		require.NoError(t, err, mail)
		require.Equal(t, doubt, p.Doubt, mail)
		require.Equal(t, "ricardo@human.test", p.Sender)
	}
	_, err := a.Prove(context.Background(), buildRecipe(t, "Subject: added\n"+signed+"\n1\n"))
	require.ErrorContains(t, err, "does not cover the Subject field")
}
