package email

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const otherID, oldestID = "bbbbbbbbbbbbbbbb", "cccccccccccccccc"

func TestRefs(t *testing.T) {
	const second = "zyxwvutsrqponmlkjihgfedc76"
	m := &inboundMail{
		Recipients: []string{"bob@gate.example", "Permesso+" + strings.ToUpper(replyToken) + "@GATE.example", "permesso+" + replyToken + "@gate.example"},
		InReplyTo:  []string{"<appr_" + replyID + ".r4nd0m@gate.example>"},
		References: []string{"<x@example.org>", "<appr_" + oldestID + ".first@gate.example>", "<appr_" + otherID + ".first@gate.example>", "<appr_" + replyID + ".r4nd0m@gate.example>"},
		Subject:    "AW: Post to X [appr_" + replyID + " " + second + "]",
		Text:       "1\n\n> Subject: Post to X [appr_" + replyID + "]\n> [appr_" + otherID + "\n> " + second + "]\n> appr_short\n",
	}
	require.Equal(t, []cardRef{
		{Token: replyToken, Where: inAddress},
		{ID: replyID, Where: inThread},
		{ID: otherID, Where: inThread},
		{ID: oldestID, Where: inThread},
		{ID: replyID, Token: second, Where: inSubject},
		{ID: replyID, Where: inBody},
		{ID: otherID, Where: inBody},
	}, m.Refs(replySub))

	const uuid = "0190f3c2-1b7e-7c4a-9d2e-5f60718293a4"
	m = &inboundMail{
		InReplyTo: []string{newMessageID(uuid, "r-4", "gate.example")},
		Subject:   "Re: Post [appr_" + strings.ToUpper(uuid) + " " + second + "]", Text: "> [appr_" + uuid + "]\n> appr_0190f3c2-1b7e\n",
	}
	require.Equal(t, []cardRef{
		{ID: uuid, Where: inThread}, {ID: uuid, Token: second, Where: inSubject}, {ID: uuid, Where: inBody},
	}, m.Refs(replySub), "a UUID with its dashes")
}

func TestReplyAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"permesso+" + replyToken + "@gate.example":                                    replyToken,
		"PERMESSO+" + strings.ToUpper(replyToken) + "@Gate.Example":                   replyToken,
		"permesso+" + replyToken + "@gate.example.org":                                "", // another domain
		"permesso+" + replyToken + "@gate.example@evil.example":                       "",
		"permesso+" + replyToken[1:] + "@gate.example":                                "", // too short
		"permesso+x" + replyToken + "@gate.example":                                   "", // too long
		"permesso+" + replyToken[:25] + "1@gate.example":                              "", // no base32
		"permesso-" + replyToken + "@gate.example":                                    "",
		"x-permesso+" + replyToken + "@gate.example":                                  "",
		"permesso+" + strings.Replace(replyToken, "k", "\u212a", 1) + "@gate.example": "", // a Kelvin sign
		"permesso@gate.example":                                                       "",
	} {
		require.Equal(t, want, replySub.token(address), address)
	}
	require.Equal(t, "permesso+"+replyToken+"@gate.example", replySub.Address(replyToken))
	require.Empty(t, Addressing{}.Address(replyToken), "no reply address without sub-addressing")
	require.Empty(t, Addressing{}.token("@"))
	require.Empty(t, Addressing{Local: "permesso", Domain: "gate.example"}.token("permesso"+replyToken+"@gate.example"))
}

func TestMessageIDs(t *testing.T) {
	id := newMessageID(replyID, "a-Z_9", "gate.example")
	require.Equal(t, "<appr_"+replyID+".a-Z_9@gate.example>", id)
	for s, want := range map[string]string{
		id:                            replyID,
		strings.Trim(id, "<>"):        replyID,
		strings.ToUpper(id):           replyID, // some servers change the case
		"<appr_" + replyID + "@x>":    "",
		"<appr_abc.r@x>":              "", // too short
		"<xappr_" + replyID + ".r@x>": "",
		"<appr_" + strings.Repeat("a", 65) + ".r@x>": "",
		"": "",
	} {
		got, ok := parseMessageID(s)
		require.Equal(t, want, got, s)
		require.Equal(t, want != "", ok, s)
	}
}

func TestSubjectTags(t *testing.T) {
	for subject, want := range map[string][]cardRef{
		"Re: x " + SubjectTag(replyID, ""):           {{ID: replyID, Where: inSubject}},
		"x " + SubjectTag(replyID, replyToken):       {{ID: replyID, Token: replyToken, Where: inSubject}},
		"[APPR_" + strings.ToUpper(replyID) + "]":    {{ID: replyID, Where: inSubject}},
		"x_appr_" + replyID:                          nil,
		"appr_" + replyID + "g":                      nil,
		"appr_" + strings.Repeat("a", 65):            nil,
		"appr_" + strings.Repeat("a", 64) + " hello": {{ID: strings.Repeat("a", 64), Where: inSubject}},
	} {
		require.Equal(t, want, (&inboundMail{Subject: subject}).Refs(replySub), subject)
	}
	many := &inboundMail{}
	for range 40 {
		many.Text += "appr_" + fmt.Sprintf("%016x", len(many.Text)) + " "
	}
	require.Len(t, many.Refs(replySub), 40)
	many.InReplyTo = []string{newMessageID(replyID, "r", "gate.example")}
	many.Subject = many.Text[:400]
	require.Len(t, many.Refs(replySub), maxRefs)
}
