package email

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fullSize is the maximum size of an email, or a fortieth of it under the slow race
// detector.
func fullSize() int {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return mailbox.MaxMail / 40
	}
	return mailbox.MaxMail
}

// fillToSize repeats a text up to the maximum size of an email.
func fillToSize(head, text, tail string) []byte {
	n := (fullSize() - len(head) - len(tail)) / len(text)
	return []byte(head + strings.Repeat(text, n) + tail)
}

const (
	plainHead = "From: a@example.org\r\nSubject: x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
	htmlHead  = "From: a@example.org\r\nSubject: x\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
)

// expensiveEmails are emails of full size that are expensive to parse.
func expensiveEmails() map[string][]byte {
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < fullSize()-1000; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	return map[string][]byte{
		"blank lines":           fillToSize(plainHead, "\n", ""),
		"colons":                fillToSize(plainHead, "1:\n", ""),
		"colons before quotes":  fillToSize(plainHead, "a:\n> b\n", ""),
		"colons, blanks, quote": fillToSize(plainHead, "a:\n\n\n\n\n\n\n", "> x"),
		"attributions":          fillToSize(plainHead, "On 5 Jan 2026, A <a@b.c> wrote:\n", "> x"),
		"attribution starts":    fillToSize(plainHead, "On 5\n", ""),
		"attribution ends":      fillToSize(plainHead, "a@b:\n", ""),
		"header fields":         fillToSize(plainHead, "From: a@b\n", ""),
		"unknown fields":        fillToSize(plainHead, "Xyz: a\n", ""),
		"folded fields":         fillToSize(plainHead, "From: a\nb\n", ""),
		"rules":                 fillToSize(plainHead, "----\n", ""),
		"bottom":                fillToSize(plainHead+"1\n", "> a\nb\n", ""),
		"delimiters":            fillToSize(plainHead+"1\n", "--\na\n", ""),
		"menus":                 fillToSize(plainHead+"x\n", "1 once 2 session 3 deny\n\n", ""),
		"one line":              fillToSize(plainHead, "1 ", ""),
		"one line of colons":    fillToSize(plainHead, "from: to: ", ""),
		"flowed":                fillToSize(strings.Replace(plainHead, "utf-8", "utf-8; format=flowed", 1), "a \n", ""),
		"flowed quotation":      fillToSize(strings.Replace(plainHead, "utf-8", "utf-8; format=flowed; delsp=yes", 1), "> a \n", ""),
		"depth":                 fillToSize(strings.Replace(plainHead, "utf-8", "utf-8; format=flowed", 1), ">", ""),
		"quoted breaks":         fillToSize(htmlHead, "<br>", ""),
		"deep quotes":           []byte(htmlHead + strings.Repeat("<blockquote>", 500) + strings.Repeat("<br>a", fullSize()/6)),
		"too deep":              fillToSize(htmlHead, "<div>", ""),
		"items":                 fillToSize(htmlHead+"<ol>", "<li>", ""),
		"attributes":            []byte(htmlHead + "<p " + numbered("a%d=1 ") + ">x"),
		"formatting":            []byte(htmlHead + numbered("<p><b x=%d>")),
		"styles":                fillToSize(htmlHead+`<p style="`, "color:red;", `">x`),
		"entities":              fillToSize(htmlHead, "&nGt;", ""),
		"tables":                fillToSize(htmlHead, "<table>", ""),
		"base64":                fillToSize("From: a@b.c\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n", "PGJyPjxicj48", ""),
		"soft line ends":        fillToSize("From: a@b.c\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n", "=\r\n", ""),
		"escapes":               fillToSize("From: a@b.c\r\nContent-Type: text/plain; charset=iso-2022-jp\r\n\r\n", "\x1b$B!!\x1b(B", ""),
		"fields":                []byte(numbered("X-%d: a\r\n") + "\r\n"),
		"senders":               []byte(numbered("From: a%d@example.org\r\n") + "\r\n1"),
		"one long From":         []byte("From: " + numbered("a%d@example.org, ") + "b@example.org\r\n\r\n1"),
		"nested comments":       fillToSize("From: ", "(", " a@b.c\r\n\r\n1"),
		"encoded words":         fillToSize("From: a@b.c\r\nSubject: ", "=?utf-8?q?a?=\r\n ", "\r\n\r\n1"),
		"references":            []byte("From: a@b.c\r\nReferences: " + numbered("<%d@x>\r\n ") + "\r\n\r\n1"),
		"tags":                  fillToSize(plainHead, "appr_a7f3b2c1d4e5f6a7 ", ""),
		"parts":                 fillToSize("From: a@b.c\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n", "--b\r\n\r\na\r\n", "--b--"),
		"boundaries in boundaries": []byte("From: a@b.c\r\n" + strings.Repeat("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n", 5) +
			strings.Repeat("--b-\r\n", fullSize()/7)),
		"folded header": fillToSize("From: a@b.c\r\nX: a", "\r\n a", "\r\n\r\n1"),
	}
}

// cpuTime is the CPU time of this process, which does not depend on the load of the
// machine.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestBounds limits time and memory for the most expensive emails that we know.
func TestBounds(t *testing.T) {
	const most = 4 * time.Second // CPU time, with the race detector
	for name, raw := range expensiveEmails() {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(raw), mailbox.MaxMail)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := cpuTime(t)
			m, err := readMail(raw)
			text := ""
			if err == nil {
				text, _ = m.Answer()
				m.Refs(replySub)
				require.LessOrEqual(t, len(m.Text), 8*mailbox.MaxMail)
			}
			took := cpuTime(t) - start
			runtime.ReadMemStats(&after)
			require.Less(t, took, most)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20))
			require.LessOrEqual(t, len(text), 8*len(raw)) // an entity can be shorter than its characters
			t.Logf("%v, %d MiB, %v", took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, err)
		})
	}
}

// TestCorpora reads all collected emails: nothing panics or takes long.
func TestCorpora(t *testing.T) {
	for _, folder := range []string{"bounces", "mime"} {
		read, doubtful, refused := 0, 0, 0
		for _, file := range replyCorpus(t, folder) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			start := cpuTime(t)
			m, err := readMail(raw)
			switch {
			case err != nil:
				refused++
				continue
			case m.Doubt != "":
				doubtful++
			default:
				read++
			}
			text, clear := m.Answer()
			require.False(t, clear && decides(text), "%s: %q", filepath.Base(file), text)
			m.Refs(replySub)
			require.Less(t, cpuTime(t)-start, 2*time.Second, file)
		}
		t.Logf("%s: %d read, %d doubtful, %d refused", folder, read, doubtful, refused)
	}
}
