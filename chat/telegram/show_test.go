package telegram_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func saying(text string) string {
	b, _ := json.Marshal(text)
	return `"tool_name":"x_post","session_id":"s1","request_data":{"text":` + string(b) + `}`
}

func approving(m botapi.Message) bool {
	return slices.ContainsFunc(m.Buttons(), func(b string) bool {
		return strings.HasPrefix(b, "✅") || b == "✎ Allow with a note"
	})
}

// A card that is too long cannot be approved, by a button or by text, before all of it was shown.
func TestShowAll(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	text := strings.Repeat("All work and no play. ", 400) + "rm -rf /"
	m := h.ask(k, ann, saying(text))
	require.Equal(t, []string{"📄 Show all", "❌ Deny", "❓ Ask", "💡 Why?"}, m.Buttons())
	require.Contains(t, m.Text, " more chars]")
	require.LessOrEqual(t, utf16Len(m.Text), 4096)
	for _, words := range []string{"approve a7000001", "/approve a700"} {
		require.Contains(t, h.waitForReply(h.api.Say(ann, ann, words)).Text, "Not all of a7000001 was shown here yet", words)
	}
	for _, words := range []string{"1", "2", "4: note", "6", "approve a7000001"} {
		require.Contains(t, h.waitForReply(h.api.Reply(ann, ann, m.ID, words)).Text, "Not all of a7000001 was shown here yet", words)
	}

	require.Equal(t, "Sending the complete text.", h.tap(ann, m, "📄 Show all").Text)
	doc := h.waitForMessage(ann, "the document", func(m botapi.Message) bool { return m.Document != nil })
	require.Equal(t, "a7000001.txt", doc.Document.FileName)
	require.Equal(t, m.ID, doc.ReplyTo.ID)
	shown := chat.Escape(text)
	require.Contains(t, string(doc.Document.Content), shown)
	m = h.waitForEdit(m, "approve buttons", approving)
	require.Contains(t, m.Text, "📄 the complete text is in the document below")
	require.LessOrEqual(t, utf16Len(m.Text), 4096)
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	m = h.waitForText(m, "✅ Approved by ann")
	require.LessOrEqual(t, utf16Len(m.Text), 4096)
	require.Empty(t, h.api.State().Refused())
}

// masked finds one token, which a mask may hide.
type masked struct{ unmaskable }

const maskedToken = "hunter2hunter2"

func (m masked) For(*approval.Pending) chat.Redactor { return m }
func (masked) Unmaskable() []string                  { return nil }
func (masked) Tokens(value string) []chat.Span {
	if at := strings.Index(value, maskedToken); at >= 0 {
		return []chat.Span{{Start: at, End: at + len(maskedToken), Kind: "token"}}
	}
	return nil
}

// The document is the card without the cut: every line of the text, and a mask where the card has one.
func TestShowAllHasEveryLineAndTheMasks(t *testing.T) {
	h := newRig(t)
	h.style = func(s *chat.Style) { s.Redact = masked{} }
	h.start()
	k := keyIn(personal, 1)
	var text, want strings.Builder
	for i := range 1000 {
		end := fmt.Sprintf(" %04d the quick brown fox jumps over the lazy dog", i)
		if i == 2 || i == 999 {
			end += "\u202e"
		}
		fmt.Fprintln(&text, end)
		fmt.Fprintln(&want, "│ "+strings.ReplaceAll(end, "\u202e", `\u{202E}`))
	}
	m := h.ask(k, ann, saying("key "+maskedToken+"\n\tindented\n"+text.String()+"rm -rf /"))
	require.True(t, strings.HasPrefix(m.Text, "🔐 May I post?\n"), m.Text)
	require.Equal(t, 1, strings.Count(m.Text, "0010 the quick"))
	require.Contains(t, m.Text, "more chars are not shown. See all of it before you approve.")
	require.Contains(t, m.Text, "key ‹token, 14 characters›")
	require.Contains(t, m.Text, `│ \tindented`, "Telegram shows a tab as a space")
	require.NotContains(t, m.Text, maskedToken)
	require.False(t, approving(m))

	h.tap(ann, m, "📄 Show all")
	doc := h.waitForMessage(ann, "the document", func(m botapi.Message) bool { return m.Document != nil })
	content := string(doc.Document.Content)
	require.Equal(t, 1, strings.Count(content, "│ key ‹token, 14 characters›\n│ \tindented\n"+want.String()+"│ rm -rf /\n"))
	require.NotContains(t, content, maskedToken)
	require.NotContains(t, content, "not shown")
	h.waitForEdit(m, "approve buttons", approving)
	require.Empty(t, h.api.State().Refused())
}

// While the document cannot be sent there are no approve buttons. Show all survives a restart.
func TestShowAllWaitsForItsDocument(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, saying(strings.Repeat("x", 9000)))
	h.api.Fail("sendDocument", botapi.Fault{Kind: botapi.BadGateway})
	h.tap(ann, m, "📄 Show all")
	h.waitForState("some attempts", func(s botapi.State) bool {
		n := 0
		for _, c := range s.Calls {
			if c.Method == "sendDocument" {
				n++
			}
		}
		return n > 2
	})
	now, _ := h.api.State().Message(ann, m.ID)
	require.False(t, approving(now))
	h.stopChannel()
	h.api.ClearFaults()
	h.start()
	h.waitForEdit(m, "approve buttons", approving)
}

// There is an approve button only if every byte was shown, for sizes from nothing to a mebibyte.
func TestApproveOnlyWhatWasShown(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.start(func(c *channel) { c.Every = time.Hour }) // hints suffice
	sizes := []int{0, 1, 2}
	for n := 4; n <= 16<<10; n *= 4 {
		sizes = append(sizes, n-2, n, n+2)
	}
	sizes = append(sizes, 64<<10, 256<<10, 1<<20)
	for n := 3500; n <= 4200; n += 35 { // near the size limit of a message
		sizes = append(sizes, n)
	}
	if os.Getenv("PERMESSO_SOAK") != "" {
		for n := 3400; n <= 4300; n++ {
			sizes = append(sizes, n)
		}
	}
	whole, cut := 0, 0
	for i, size := range sizes {
		if raceDetector && (size > 1<<16 || i%3 != 0) {
			continue // without the race detector all are tried
		}
		k := keyIn(personal, 1000+i)
		text := strings.Repeat("ab🔐é", size/8+1)
		for text = text[:size]; !json.Valid([]byte(`"`+text+`"`)) || strings.ToValidUTF8(text, "") != text; {
			text = text[:len(text)-1]
		}
		m := h.ask(k, ann, fmt.Sprintf(`"tool_name":"note","request_data":{"text":%q,"n":%d}`, text, i))
		require.LessOrEqual(t, utf16Len(m.Text), 4096, size)
		all := strings.Contains(m.Text, "text: "+chat.Escape(text)) || text == "" && strings.Contains(m.Text, `text: ""`)
		require.Equal(t, all, approving(m), "%d bytes: shown %v, buttons %q", size, all, m.Buttons())
		if all {
			whole++
			h.decideAsOperator(k, approval.Denied)
			continue
		}
		cut++
		h.tap(ann, m, "📄 Show all")
		h.waitForEdit(m, "approve buttons", approving)
		docs := h.api.State().FromBot(ann)
		doc := docs[slices.IndexFunc(docs, func(x botapi.Message) bool { return x.Document != nil && x.ReplyTo.ID == m.ID })]
		require.Contains(t, string(doc.Document.Content), "text: "+chat.Escape(text))
		h.decideAsOperator(k, approval.Denied)
	}
	require.NotZero(t, whole)
	require.NotZero(t, cut)
	require.Empty(t, h.api.State().Refused())
}

// The options of a question can be longer than a message: then they are sent as a document too.
func TestLongOptions(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	option := strings.Repeat("\u202e", 66)
	var options []string
	for i := range 8 {
		b, _ := json.Marshal(fmt.Sprint(i) + option[:len(option)-3])
		options = append(options, string(b))
	}
	m := h.ask(k, ann, `"type":"question","title":"?","options":[`+strings.Join(options, ",")+`]`)
	require.Equal(t, []string{"📄 Show all", "❌ Deny", "❓ Ask"}, m.Buttons(), m.Text)
	h.tap(ann, m, "📄 Show all")
	m = h.waitForEdit(m, "options", func(m botapi.Message) bool { return len(m.Buttons()) > 3 })
	require.Len(t, m.Buttons(), 11)
	h.tap(ann, m, m.Buttons()[7])
	require.Equal(t, approval.StatusAnswered, h.waitForResponse(k).Status)
	require.True(t, strings.HasPrefix(h.decisionOf(k).Answer, "7"))
	require.Empty(t, h.api.State().Refused())
}

// utf16Len counts as Telegram does.
func utf16Len(s string) (n int) {
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}
