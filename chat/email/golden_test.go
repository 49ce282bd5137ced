package email

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/cardtest"
)

// A mail of each kind: subject, text part, and the HTML part with marks for its styles.
func TestGoldenMails(t *testing.T) {
	for _, k := range cardtest.Kinds() {
		for _, language := range []string{"en", "it"} {
			name := k.Name + ".txt"
			if language == "it" {
				if !slices.Contains([]string{"mail", "edit"}, k.Name) {
					continue
				}
				name = k.Name + ".it.txt"
			}
			style := cardtest.Style(t, false)
			style.Language, style.Foot = language, "log 1042 9f3c"
			m := &cardMail{pending: k.Pending, style: style, texts: textsFor(language), to: "permesso@gate.test"}
			letter, err := m.render()
			require.NoError(t, err)
			got := "Subject: " + headline(style, k.Pending) + "\n\n" + strings.Join(letter.Lines, "\n")
			cardtest.Golden(t, "email_"+name, got)
			cardtest.Golden(t, "email_html_"+name, cardtest.VisibleHTML(withMarks(letter.Page), ""))
		}
	}
}

// The question and the object begin within the first 40 characters of a subject.
func TestSubjectsOfKinds(t *testing.T) {
	for name, object := range map[string]string{
		"mail": `"Bo`, "shell": `"cu`, "edit": "/sr", "payment": "125", "post": `"Me`, "release": "git",
		"question": `"Wh`, "json": `"ni`, "long": "han", "call": "npm",
	} {
		i := slices.IndexFunc(cardtest.Kinds(), func(k cardtest.Kind) bool { return k.Name == name })
		p := cardtest.Kinds()[i].Pending
		for _, language := range []string{"en", "it"} {
			style := cardtest.Style(t, false)
			style.Language = language
			subject := headline(style, p)
			require.Contains(t, string([]rune(subject)[:40]), object, language+" "+name)
			require.Regexp(t, ` · personal$`, subject, language+" "+name)
		}
	}
}

var classed = regexp.MustCompile(`(<\w+ [^>]*class="(\w+)"[^>]*>)([^<\n]+)`)

// withMarks writes the class of an element before its text: [alert].
func withMarks(page string) string { return classed.ReplaceAllString(page, "$1[$2] $3") }

// The README shows the email that a person sees.
func TestReadmeShowsTheEmail(t *testing.T) {
	style := cardtest.Style(t, false)
	style.Zone, style.Foot = time.FixedZone("CET", 3600), "log 1042 9f3c"
	m := &cardMail{pending: postKind(t), style: style, texts: textsFor(""), to: "permesso@gate.test"}
	letter, err := m.render()
	require.NoError(t, err)
	shown := cardtest.VisibleHTML(letter.Page, "")
	shown, _, _ = strings.Cut(shown, "\n"+textsFor("").WhyAsked)
	block := "<!-- made by TestReadmeShowsTheEmail -->\n```\n" + headline(style, m.pending) + " " + SubjectTag(m.pending.RequestID, "") + "\n\n" +
		strings.Replace(shown, "✓ Approve ✕ Deny", "[ ✓ Approve ]  [ ✕ Deny ]", 1) + "\n```\n"
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := "<!-- made by TestReadmeShowsTheEmail: text -->\n```\n" + strings.Join(letter.Lines, "\n") + "\n```\n"
	if *update {
		for begin, made := range map[string]string{"TestReadmeShowsTheEmail -->": block, "TestReadmeShowsTheEmail: text -->": text} {
			readme = regexp.MustCompile("(?s)<!-- made by "+begin+"\n```\n.*?```\n").ReplaceAllLiteral(readme, []byte(made))
		}
		require.NoError(t, os.WriteFile("README.md", readme, 0o644))
	}
	require.Contains(t, string(readme), block)
	require.Contains(t, string(readme), text)
}
