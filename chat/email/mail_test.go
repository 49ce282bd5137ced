package email

import (
	"fmt"
	"strings"
	"testing"

	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/stretchr/testify/require"
)

// nested puts a text into multiparts of that depth.
func nested(depth int) []byte {
	var b strings.Builder
	b.WriteString("From: a@example.org\r\n")
	for i := range depth {
		fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	b.WriteString("Content-Type: text/plain\r\n\r\n1\r\n")
	for i := depth - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "\r\n--b%d--\r\n", i)
	}
	return []byte(b.String())
}

func withParts(n int) []byte {
	return []byte("From: a@example.org\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
		strings.Repeat("--b\r\nContent-Type: text/plain\r\n\r\n1\r\n", n) + "--b--\r\n")
}

func TestReadCaps(t *testing.T) {
	full := append([]byte("From: a@example.org\r\n\r\n1\r\n\r\n"), make([]byte, mailbox.MaxMail)...)
	for _, c := range []struct {
		name string
		raw  []byte
		over bool
	}{
		{"full size", full[:mailbox.MaxMail], false},
		{"one byte more", full[:mailbox.MaxMail+1], true},
		{"20 parts", withParts(20), false},
		{"21 parts", withParts(21), true},
		{"5 deep", nested(5), false},
		{"6 deep", nested(6), true},
	} {
		m, err := readMail(c.raw)
		if c.over {
			require.True(t, err != nil || m.Doubt == "parts", c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Empty(t, m.Doubt, c.name)
	}
	// The parts of an attached message are not counted.
	enclosed := "From: a@example.org\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\n1\r\n--x\r\nContent-Type: message/rfc822\r\n\r\n" + string(withParts(30)) + "\r\n--x--\r\n"
	m, err := readMail([]byte(enclosed))
	require.NoError(t, err)
	text, clear := m.Answer()
	require.True(t, clear)
	require.Equal(t, "1", text)
}

func TestNoSecretInErrors(t *testing.T) {
	for _, raw := range []string{"permesso+" + replyToken + "@gate.example\r\n\r\n1", " " + replyToken + "\r\n\r\n1", "From: a@b.c\r\n" + replyToken, ""} {
		m, err := readMail([]byte(raw))
		if err == nil {
			require.NotEmpty(t, m.Doubt, "%q", raw)
			continue
		}
		require.NotContains(t, err.Error(), replyToken)
	}
}

func TestHeaderFields(t *testing.T) {
	m, err := readMail([]byte("From: Ricardo <ricardo@example.org>\r\nTo: \"permesso\" <permesso+x@gate.example>, b@example.org\r\nCC: c@example.org\r\n" +
		"Delivered-To: d@example.org\r\nX-Original-To: e@example.org\r\nEnvelope-To: f@example.org\r\n" +
		"Subject: =?utf-8?q?Re=3A_caf=C3=A9?=\r\n =?utf-8?q?_noir?=\r\nMessage-Id:\r\n <m@example.org>\r\nIn-Reply-To: <r@gate.example>\r\n" +
		"References: <o@gate.example>\r\n\t<r@gate.example>\r\n\r\n1\r\n"))
	require.NoError(t, err)
	require.Empty(t, m.Doubt)
	require.Equal(t, []string{"ricardo@example.org"}, m.From)
	require.Equal(t, []string{"permesso+x@gate.example", "b@example.org", "c@example.org", "d@example.org", "e@example.org", "f@example.org"}, m.Recipients)
	require.Equal(t, "Re: café noir", m.Subject)
	require.Equal(t, "<m@example.org>", m.MessageID)
	require.Equal(t, []string{"<r@gate.example>"}, m.InReplyTo)
	require.Equal(t, []string{"<o@gate.example>", "<r@gate.example>"}, m.References)
}

func TestSenders(t *testing.T) {
	for _, c := range []struct {
		from string // header lines
		want []string
		sure bool
		why  string
	}{
		{"From: a@example.org", []string{"a@example.org"}, true, "bare"},
		{"From: \"b@example.org\" <a@example.org>", []string{"a@example.org"}, true, "a display name is no address"},
		{"From: (b@example.org) a@example.org", nil, false, "a comment is no address, and not valid at the start"},
		{"From: =?utf-8?q?b=40example=2Eorg?= <a@example.org>", []string{"a@example.org"}, true, "an encoded name is no address"},
		{"From : a@example.org", []string{"a@example.org"}, true, "old form, accepted by other readers"},
		{"from: a@example.org", []string{"a@example.org"}, true, "lower-case field name"},
		{"From: a@example.org, b@example.org", []string{"a@example.org", "b@example.org"}, true, "both addresses are returned"},
		{"From: a@example.org\r\nFrom: b@example.org", []string{"a@example.org", "b@example.org"}, true, "every field"},
		{"From: us: a@example.org, b@example.org;", []string{"a@example.org", "b@example.org"}, true, "a group is all of its members"},
		{"From: =?utf-8?q?a=40example=2Eorg?=", nil, false, "an encoded word is no address"},
		{"From: \"a@example.org\"@example.net", nil, false, "without quotes it is another address"},
		{"From: \"a b\"@example.org", nil, false, "needs quotes"},
		{"From: a@example.org <b@example.org>", nil, false, "which?"},
		{"From: <a@example.org> b@example.org", nil, false, "which?"},
		{"From: =?x-none?q?a?= <a@example.org>", nil, false, "unknown charset"},
		{"From: a@example.org\r\nFrom: nowhere", []string{"a@example.org"}, false, "one cannot be read"},
		{"From:", nil, false, "an empty field"},
		{"X-From: a@example.org", nil, false, "none at all"},
		{"From: a@example.org\r\nX-Y: a\rFrom: b@example.org", []string{"a@example.org"}, false, "a bare CR, which some readers take for a line end"},
		{"From: a@example.org\x00", nil, false, "control character"},
		{"From: a@example.org\r\nX-Y: a\x00", []string{"a@example.org"}, false, "elsewhere in the header"},
	} {
		m, err := readMail([]byte(c.from + "\r\nTo: x@example.org\r\n\r\n1\r\n"))
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, m.From, c.why)
		require.Equal(t, c.sure, m.Doubt == "", "%s: %s", c.why, m.Doubt)
		_, clear := m.Answer()
		require.Equal(t, c.sure, clear, c.why)
	}
}

func TestFlowed(t *testing.T) {
	for _, c := range []struct {
		in, want, why string
		delsp         bool
	}{
		{"a \nb\nc", "a b\nc", "a blank at the end joins lines", false},
		{"a \nb", "ab", "DelSp removes the blank", true},
		{"> a \n> b\n>> c \n> d", "> a b\n>> c \n> d", "only at the same depth", false},
		{"> a \nb", "> a \nb", "a quotation ends with its mark", false},
		{"a \n-- \nb", "a \n-- \nb", "a signature is not joined", false},
		{"1 \n\nb", "1 \n\nb", "an empty line stays one", false},
		{" > a\n From b", "> a\nFrom b", "stuffed", false},
		{strings.Repeat(">", 40) + " a", ">>>>>>>> a", "depth is capped", false},
	} {
		require.Equal(t, c.want, unflow(c.in, c.delsp), c.why)
	}
}

func TestCharsets(t *testing.T) {
	for name, c := range map[string]struct{ head, body, want string }{
		"ISO-2022-JP": {"charset=ISO-2022-JP", "3 \x1b$B:#F|\x1b(B", "3 今日"},
		"Shift_JIS":   {"charset=shift_jis", "3 \x8d\xa1\x93\xfa", "3 今日"},
		"EUC-KR":      {"charset=euc-kr", "3 \xbe\xc6\xb4\xcf", "3 아니"},
		"KOI8-R":      {"charset=koi8-r", "3 \xce\xc5\xd4", "3 нет"},
		"windows":     {"charset=\"windows-1252\"", "3 caf\xe9 \x80", "3 café €"},
		"latin":       {"charset=iso-8859-15", "3 \xa4", "3 €"},
		"GB18030":     {"charset=gb18030", "3 \xb2\xbb", "3 不"},
		"none":        {"format=fixed", "3 café", "3 café"},
		"ASCII":       {"charset=us-ascii", "3 no", "3 no"},
	} {
		m, err := readMail([]byte("From: a@example.org\r\nContent-Type: text/plain; " + c.head + "\r\n\r\n" + c.body + "\r\n"))
		require.NoError(t, err, name)
		require.Empty(t, m.Doubt, name)
		text, clear := m.Answer()
		require.True(t, clear, name)
		require.Equal(t, c.want, text, name)
	}
}

// structured is an email with these parts, each with its header.
func structured(kind string, parts ...string) []byte {
	b := "From: a@example.org\r\nContent-Type: multipart/" + kind + "; boundary=b\r\n\r\n"
	for _, p := range parts {
		b += "--b\r\n" + strings.ReplaceAll(p, "\n", "\r\n") + "\r\n"
	}
	return []byte(b + "--b--\r\n")
}

func TestStructures(t *testing.T) {
	const plain, page = "Content-Type: text/plain\n\n", "Content-Type: text/html\n\n"
	for _, c := range []struct {
		raw  []byte
		want string // "": no answer
		why  string
	}{
		{structured("mixed", plain+"1", plain+"a list footer"), "1", "the first text"},
		{structured("mixed", page+"<p>1</p>", plain+"4 a list footer"), "1", "the first, though the second is plain text"},
		{structured("mixed", plain+" ", page+"<p>1</p>"), "1", "the first that is not empty"},
		{structured("alternative", page+"<p>1</p>", plain+"1"), "1", "any order"},
		{structured("mixed", "Content-Type: text/plain; name=x.txt\n\n1", plain+"2"), "2", "an attachment"},
		{structured("mixed", "Content-Type: image/png\n\n1", plain+"2"), "2", "a picture"},
		{structured("mixed", "Content-Type: message/rfc822\n\nFrom: b@example.org\n\n1"), "", "an attached message"},
		{structured("alternative", plain+"1", page+strings.Repeat("<div>", 600)), "", "what the writer saw cannot be read"},
		{structured("alternative", plain+"1", "Content-Type: text/html; charset=x-none\n\n<p>1"), "", "the same"},
		{structured("mixed", plain+"1", "a line that is no field\n\n2"), "", "a broken part, even behind the answer"},
		{structured("mixed", plain+"1", "Content-Type: text/plain;;\n\n2"), "", "a part without a valid type"},
		{structured("mixed"), "", "no part"},
		{[]byte("From: a@example.org\r\nContent-Transfer-Encoding: base64\r\n\r\nMQ==\r\n-- \r\nfoot"), "", "the end is not base64"},
		{[]byte("From: a@example.org\nSubject: x\n\n1\n"), "1", "LF line ends"},
		{[]byte("From: a@example.org\r\nContent-Type: text/plain\r\n\r\n"), "", "nothing"},
	} {
		m, err := readMail(c.raw)
		require.NoError(t, err, c.why)
		text, clear := m.Answer()
		require.Equal(t, c.want != "", clear, "%s: %q, %s", c.why, text, m.Doubt)
		if clear {
			require.Equal(t, c.want, text, c.why)
		}
	}
}
