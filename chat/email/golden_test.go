package email

import (
	"regexp"
	"slices"
	"strings"
	"testing"

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
			m := &cardMail{pending: k.Pending, style: style, texts: textsFor(language)}
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
		"question": `"Wh`, "json": `"ni`, "long": "han",
	} {
		i := slices.IndexFunc(cardtest.Kinds(), func(k cardtest.Kind) bool { return k.Name == name })
		p := cardtest.Kinds()[i].Pending
		for _, language := range []string{"en", "it"} {
			style := cardtest.Style(t, false)
			style.Language = language
			subject := headline(style, p)
			require.Contains(t, string([]rune(subject)[:40]), object, language+" "+name)
			require.Contains(t, subject, p.ShortID, language+" "+name)
		}
	}
}

var (
	styled = regexp.MustCompile(`(<(?:span|p) style="([^"]*)">)([^<]*)`)
	looks  = regexp.MustCompile(`bold|larger|small|background: #\w+|color: #\w+`)
)

// withMarks writes weight, size and color of a text before it: [bold #a40].
func withMarks(page string) string {
	return styled.ReplaceAllStringFunc(page, func(s string) string {
		m := styled.FindStringSubmatch(s)
		if marks := looks.FindAllString(m[2], -1); len(marks) > 0 {
			return m[1] + "[" + strings.Join(marks, ", ") + "] " + m[3]
		}
		return s
	})
}
