package chat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Notice is a request as a notification shows it: on a locked screen, and on servers that others run. It has words
// of the host alone: the question, the tool, the target and the workspace. No text that an agent wrote is in it.
type Notice struct {
	Title string // "🔐 May I post?"
	Text  string // "x_post · x.com/ricardo · personal · a7f3b2c1"
}

// Question is the title without its sign.
func (n Notice) Question() string { return strings.TrimPrefix(n.Title, sign) }

// noticeMessages are the sentences of notices. Comments about them are in messages/en.toml.
type noticeMessages struct{ Question, Settled, More, Open string }

func noticeCatalog(language string) *noticeMessages {
	return Messages[noticeMessages](language, "notice")
}

// maxNotice is how many characters of each part of a notice are shown.
const maxNotice = 80

// Notice returns the notice of a pending request.
func (s Style) Notice(p *approval.Pending) Notice {
	r := s.renderer(p)
	r.anySecret = true // no person consents to a notice
	parts := []string{noticePart(p.SourceGroup), noticePart(p.ShortID)}
	if p.ToolSHA256 != "" && p.ToolName != "" { // an unknown tool has a name that the agent chose
		parts = append([]string{noticePart(p.ToolName), r.noticeTarget()}, parts...)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return Notice{Title: sign + noticePart(r.noticeQuestion()), Text: strings.Join(parts, " · ")}
}

// SettledNotice returns the text that replaces a notice when its request is settled.
func (s Style) SettledNotice(rec *approval.Record) string {
	return Format(noticeCatalog(s.Language).Settled, "status", catalog(s.Language).status(string(rec.Status)), "id", noticePart(rec.ShortID()))
}

// MoreNotices says how many more requests wait than are shown.
func (s Style) MoreNotices(n int) string {
	return Format(noticeCatalog(s.Language).More, "n", strconv.Itoa(n))
}

// OpenNotice is the button that opens a request.
func (s Style) OpenNotice() string { return noticeCatalog(s.Language).Open }

func noticePart(s string) string {
	kept := clip(s, maxNotice)
	if kept != s {
		kept += "…"
	}
	return Escape(kept)
}

// noticeQuestion is the question in the operator's words. A verb with {fields} has words of the agent.
func (r renderer) noticeQuestion() string {
	p := r.p
	switch lang := Language(r.Language); {
	case p.Type == approval.TypeQuestion:
		return noticeCatalog(r.Language).Question
	case p.ToolName == "" || p.ToolSHA256 == "":
		return r.wants()
	case strings.Contains(cmp.Or(p.Verb[lang], p.Verb["en"]), "{"):
		return Format(r.MayI, "verb", Format(r.Run, "tool", r.tool()))
	}
	return r.question()
}

// noticeTarget is the target, "" if it is no name of a place: it may be filled in from the request, so a sentence, a
// long text and a secret are left out.
func (r renderer) noticeTarget() string {
	t := r.p.Target
	sentence := strings.Contains(t, " ") && strings.Contains(stringsIn(r.p.RequestData), " ")
	if sentence || strings.ContainsAny(t, "\n\r\t[]{}\"") || clip(t, maxNotice) != t || len(r.secrets(t)) > 0 {
		return ""
	}
	return Escape(t)
}
