package email

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// autoCorpus reads a folder of ../shared/corpora, which is not part of the project. If it
// is missing, only the project's own emails are used, except under CI.
func autoCorpus(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	found := mailsIn(t, filepath.Join("..", "..", "..", "shared", "corpora", folder))
	require.True(t, len(found) > 0 || os.Getenv("CI") != "true", "the corpus %s is missing", folder)
	return found
}

func autoMails(t testing.TB) map[string][]byte {
	t.Helper()
	found := mailsIn(t, filepath.Join("..", "..", "testdata", "mail", "auto"))
	require.NotEmpty(t, found)
	return found
}

func mailsIn(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	found := map[string][]byte{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		found[filepath.Base(file)] = b
	}
	return found
}

// linesOf returns the lines of one of the project's lists, without comments.
func linesOf(t testing.TB, name string) []string {
	t.Helper()
	b, ok := autoMails(t)[name]
	require.True(t, ok, name)
	var lines []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func plainMail(subject, text string) []byte {
	return []byte("From: ricardo@human.test\r\nTo: permesso@home.test\r\nSubject: " + subject +
		"\r\nDate: Mon, 05 Jan 2026 10:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" +
		strings.ReplaceAll(text, "|", "\r\n") + "\r\n")
}

func TestMachinesAndPeople(t *testing.T) {
	for name, mail := range autoMails(t) {
		switch {
		case strings.HasPrefix(name, "machine-"):
			require.NotEmpty(t, automaticReason(mail), name)
		case strings.HasPrefix(name, "person-"):
			require.Empty(t, automaticReason(mail), name)
		}
	}
	for _, line := range linesOf(t, "people.txt") {
		subject, text, ok := strings.Cut(line, " / ")
		require.True(t, ok, line)
		require.Empty(t, automaticReason(plainMail(subject, text)), line)
	}
}

func TestOutOfOfficeInManyLanguages(t *testing.T) {
	languages := map[string]int{}
	for _, line := range linesOf(t, "subjects.txt") {
		language, subject, _ := strings.Cut(line, ": ")
		require.Contains(t, automaticReason(plainMail(subject, "Whatever.")), "subject", line)
		languages[language] |= 1
	}
	for _, line := range linesOf(t, "openings.txt") {
		language, text, _ := strings.Cut(line, ": ")
		require.Contains(t, automaticReason(plainMail("Re: Post to X", text)), "first lines", line)
		require.Contains(t, automaticReason(plainMail("Re: Post to X", strings.ToUpper(text))), "first lines", line)
		languages[language] |= 2
	}
	both := 0
	for _, seen := range languages {
		if seen == 3 {
			both++
		}
	}
	require.GreaterOrEqual(t, both, 10, "at least ten languages")
}

// The text after an answer never makes it an out-of-office note.
func TestNoTextMakesAnAnswerAutomatic(t *testing.T) {
	for _, line := range linesOf(t, "openings.txt") {
		_, text, _ := strings.Cut(line, ": ")
		for _, answer := range []string{"1|", "4 ", "5 ", "3|", "? ", "approve|", "Deny ", "2||"} {
			require.Empty(t, automaticReason(plainMail("Re: Post to X", answer+text)), answer+text)
		}
	}
}

func TestInvalidEmailIsAutomatic(t *testing.T) {
	for _, raw := range []string{"", "\r\n1\r\n", "hello\r\n\r\n1\r\n"} {
		require.Equal(t, "no header", automaticReason([]byte(raw)), "%q", raw)
	}
}

// written matches two emails by people among the bounces: one forwards a bounce, the
// other is a negative example.
var written = regexp.MustCompile(`(make-test-36|is-not-bounce-01)\.eml$`)

func bounces(t *testing.T) map[string][]byte {
	found := autoCorpus(t, "bounces")
	for name := range found {
		if written.MatchString(name) {
			require.Empty(t, automaticReason(found[name]), name)
			delete(found, name)
		}
	}
	return found
}

// unrecognized are bounces that look like a person's email.
func unrecognized(bounces map[string][]byte) (missed []string) {
	for name, mail := range bounces {
		if automaticReason(mail) == "" {
			missed = append(missed, name)
		}
	}
	return missed
}

func TestBounces(t *testing.T) {
	bounces := bounces(t)
	missed := unrecognized(bounces)
	t.Logf("%d of %d bounces recognized, as they are; missed: %v", len(bounces)-len(missed), len(bounces), missed)
	require.Empty(t, missed)
	// The rest cannot decide either, nor can bounces of unknown kinds: their first text is
	// not an answer. So a bounce decides nothing, even with a valid token and in the name
	// of an approver.
	for name, mail := range bounces {
		text := firstText(unixLines(mail))
		result := chat.Parse(text, chat.Context{Reply: true, Type: approval.TypeAction, ID: strings.Repeat("a", 16)})
		require.Contains(t, []chat.Kind{chat.Unclear, chat.NotAddressed}, result.Kind, name)
	}
}

var authorFields = regexp.MustCompile(`(?im)^(from|sender|return-path):.*\n([ \t].*\n)*`)

// A bounce with the approver as its sender is still recognized by the rest of its header
// or by its first lines.
func TestBouncesInTheNameOfAPerson(t *testing.T) {
	disguised := map[string][]byte{}
	for name, mail := range bounces(t) {
		disguised[name] = append([]byte("From: ricardo@human.test\n"), authorFields.ReplaceAll(unixLines(mail), nil)...)
	}
	missed := unrecognized(disguised)
	t.Logf("%d of %d recognized, without their author and return path; missed: %v", len(disguised)-len(missed), len(disguised), missed)
	require.Empty(t, missed)
}

var contentFields = regexp.MustCompile(`(?im)^(content-[a-z-]*|mime-version):.*\n([ \t].*\n)*`)

// TestReaddressedBounces: of a bounce that comes back as a reply by the approver, only the text is
// left. It gets no answer, but for two vacation notes that a person may have written so.
func TestReaddressedBounces(t *testing.T) {
	var missed []string
	for name, mail := range bounces(t) {
		head, body, _ := strings.Cut(string(unixLines(mail)), "\n\n")
		fields := strings.Join(contentFields.FindAllString(head+"\n", -1), "")
		raw := "From: ricardo@human.test\nTo: permesso@home.test\nSubject: Re: Post to X\n" + fields + "\n" + body
		if automaticReason([]byte(raw)) == "" && !strings.Contains(name, "rfc3834-0") {
			missed = append(missed, name)
		}
	}
	require.Empty(t, missed)
}

func TestPeopleOfTheCorpora(t *testing.T) {
	replies, complete := autoCorpus(t, "replies"), 0
	for name, mail := range replies {
		if isWholeMail(mail) {
			complete++
		} else {
			mail = append(plainMail("Re: Post to X", ""), mail...)
		}
		require.Empty(t, automaticReason(mail), name)
	}
	for name, mail := range autoCorpus(t, "mime") {
		if why := automaticReason(mail); strings.HasSuffix(name, "thirdparty__014.eml") {
			require.Contains(t, why, "x-beenthere", "an email to a mailing list")
		} else {
			require.Empty(t, why, name)
		}
	}
	require.True(t, complete > 3 || len(replies) == 0)
}

func isWholeMail(b []byte) bool {
	head, _, _ := bytes.Cut(unixLines(b), []byte("\n\n"))
	return regexp.MustCompile(`(?m)^From: `).Match(head) && regexp.MustCompile(`(?m)^Subject: `).Match(head)
}

// FuzzAutomatic: any bytes may arrive as an email. Nothing panics, and a field of an
// automatic email is recognized at any place in the header.
func FuzzAutomatic(f *testing.F) {
	for _, mail := range autoMails(f) {
		f.Add(mail)
	}
	for _, mail := range mailsIn(f, filepath.Join("..", "..", "testdata", "mail", "dkim")) {
		f.Add(mail)
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		why := automaticReason(mail)
		require.Equal(t, why, automaticReason(mail))
		require.Less(t, len(why), 200)
		require.NotContains(t, why, "\n")
		require.NotEmpty(t, automaticReason(append([]byte("Auto-Submitted: auto-replied\r\n"), mail...)))
	})
}
