package email

import (
	"fmt"
	"html"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	nethtml "golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// button is a link of the HTML part.
type button struct{ label, link string }

var anchors = regexp.MustCompile(`(?s)<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>`)

func buttonsOf(page string) (all []button) {
	for _, m := range anchors.FindAllStringSubmatch(page, -1) {
		all = append(all, button{html.UnescapeString(m[2]), html.UnescapeString(m[1])})
	}
	return all
}

// phone is how a mail program writes a reply that a link has opened.
type phone func(body string) (kind, text string)

var phones = map[string]phone{
	"plain text": func(body string) (string, string) { return "text/plain; charset=utf-8", body },
	"a signature below": func(body string) (string, string) {
		return "text/plain; charset=utf-8", body + "\r\nSent from my iPhone"
	},
	"HTML": func(body string) (string, string) {
		lines := strings.Split(html.EscapeString(body), "\r\n")
		return "text/html; charset=utf-8", `<html><body dir="auto"><div dir="ltr">` + strings.Join(lines, "</div><div>") + "<br></div><div>Sent from Outlook for Android</div></body></html>"
	},
	"flowed": func(body string) (string, string) {
		return "text/plain; charset=utf-8; format=flowed; delsp=yes", body + "-- \r\nAnn"
	},
}

// tap is the reply that a phone sends from a link (RFC 6068): the recipient, the subject and the
// body are what the link says. It is no reply to a message: a link cannot say that.
func tap(t *testing.T, link string, p phone) mailbox.Incoming {
	t.Helper()
	rest, ok := strings.CutPrefix(link, "mailto:")
	require.True(t, ok, link)
	require.LessOrEqual(t, len(link), 1800, "some programs cut a longer one")
	require.Regexp(t, `^[A-Za-z0-9._~%@?&=-]+$`, rest)
	to, query, _ := strings.Cut(rest, "?")
	decode := func(s string) string {
		text, err := url.PathUnescape(s) // a plus sign is a plus sign
		require.NoError(t, err)
		return text
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		require.NotContains(t, fields, name)
		fields[name] = decode(value)
	}
	require.Len(t, fields, 2)
	require.NotContains(t, fields["subject"], "\n")
	kind, text := p(fields["body"])
	repliesWritten++
	raw := "From: Ann <" + annMail + ">\r\nTo: " + decode(to) + "\r\nSubject: =?utf-8?b?" + b64(fields["subject"]) + "?=\r\n" +
		fmt.Sprintf("Date: %s\r\nMessage-ID: <tap.%d@human.test>\r\n", time.Now().Format(time.RFC1123Z), repliesWritten) +
		"MIME-Version: 1.0\r\nContent-Type: " + kind + "\r\n\r\n" + text
	return mailbox.Incoming{Name: fmt.Sprintf("tap %d", repliesWritten), Raw: []byte(raw)}
}

// approveAndDeny are the two buttons of a card.
func approveAndDeny(t *testing.T, card parsedEmail) (approve, deny button) {
	t.Helper()
	all := buttonsOf(card.page)
	require.Len(t, all, 2, card.page)
	require.Contains(t, all[0].label, textsFor("").Buttons.Approve)
	require.Contains(t, all[1].label, textsFor("").Buttons.Deny)
	return all[0], all[1]
}

var hardObjects = map[string]string{
	"short":     "Meeting at 5",
	"long":      strings.Repeat("a long text ", 60),
	"non-ASCII": "Grüße 会议 в 5 📅 " + strings.Repeat("é", 300),
	"separates": `50% off & more? a=b#c;d + "e" <f@example.org>, g%0D%0ABcc: h`,
	"escaped":   "a\r\nBcc: eve@elsewhere.test\u202e\x00",
	"a tag":     "see [appr_0000000000000001 abcdefghijklmnopqrstuvwx23] =?utf-8?q?x?=",
}

// A tap on a button decides exactly what the button says, from every kind of mail program, with
// and without sub-addresses.
func TestTapDecides(t *testing.T) { synctest.Test(t, testTapDecides) }

func testTapDecides(t *testing.T) {
	for _, separator := range []string{"+", ""} {
		w := newRig(t)
		w.Addressing.Separator = separator
		for object, text := range hardObjects {
			for program, p := range phones {
				for _, approved := range []bool{true, false} {
					k := w.addNextPending("home", func(p *approval.Pending) { p.Summary = text })
					approve, deny := approveAndDeny(t, w.onlyEmail(w.runAndTakeSent()))
					b := deny
					if approved {
						b = approve
					}
					taken, _ := w.deliver(tap(t, b.link, p))
					require.Equal(t, Decided, taken.Status, "%s, %s, %s: %s", object, program, b.label, taken.Why)
					d := w.decision(k)
					require.NotNil(t, d)
					require.Equal(t, approved, d.Approved, "%s, %s", object, program)
					if approved {
						require.Equal(t, approval.Once, d.Scope, "nothing is remembered")
					}
				}
			}
		}
	}
}

// A button of a card decides about its own request only.
func TestTapDecidesItsOwnRequest(t *testing.T) { synctest.Test(t, testTapDecidesItsOwnRequest) }

func testTapDecidesItsOwnRequest(t *testing.T) {
	w := newRig(t)
	a, b := w.addPending("home", id1), w.addPending("home", "00000000000000aa")
	for _, m := range w.runAndTakeSent() {
		card := parseEmail(t, m)
		if strings.Contains(card.subject, a.ID) {
			approve, _ := approveAndDeny(t, card)
			taken, _ := w.deliver(tap(t, approve.link, phones["plain text"]))
			require.Equal(t, Decided, taken.Status)
			require.Equal(t, a, taken.Key)
		}
	}
	require.True(t, w.decision(a).Approved)
	require.Nil(t, w.decision(b))
}

// A button of a card whose request was replaced decides nothing.
func TestTapOnReplacedCard(t *testing.T) { synctest.Test(t, testTapOnReplacedCard) }

func testTapOnReplacedCard(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	approve, deny := approveAndDeny(t, w.onlyEmail(w.runAndTakeSent()))
	require.NoError(t, w.store.Remove(t.Context(), approval.DocPending, k))
	w.addPending("home", id1, func(p *approval.Pending) { p.Summary = "another thing" })
	for _, b := range []button{approve, deny} {
		taken, _ := w.deliver(tap(t, b.link, phones["plain text"]))
		require.Equal(t, Refused, taken.Status, b.label)
		require.Nil(t, w.decision(k))
	}
}

// A card that a reply cannot approve has no Approve button, and its Deny button denies. A reply
// that says approve all the same decides nothing.
func TestCardsWithoutApproveButton(t *testing.T) { synctest.Test(t, testCardsWithoutApproveButton) }

func testCardsWithoutApproveButton(t *testing.T) {
	for why, change := range map[string]func(w *rig, p *approval.Pending){
		"above the ceiling": func(w *rig, _ *approval.Pending) { w.ceilings["home"] = approval.Reversible },
		"not fully shown": func(_ *rig, p *approval.Pending) {
			p.RequestData = approval.Raw(`{"text":"` + strings.Repeat("word ", 60_000) + `"}`)
		},
		"a secret": func(w *rig, _ *approval.Pending) {
			style := w.Style
			w.Style = func(language string) chat.Style {
				s := style(language)
				s.Redact = unmaskable{}
				return s
			}
		},
	} {
		w := newRig(t)
		k := w.addPending("home", id1, func(p *approval.Pending) { change(w, p) })
		all := buttonsOf(w.onlyEmail(w.runAndTakeSent()).page)
		require.Len(t, all, 1, why)
		require.Contains(t, all[0].label, textsFor("").Buttons.Deny, why)
		taken, _ := w.deliver(tap(t, strings.Replace(all[0].link, "body=deny", "body=approve", 1), phones["plain text"]))
		require.Equal(t, Refused, taken.Status, why)
		require.Nil(t, w.decision(k), why)
		taken, _ = w.deliver(tap(t, all[0].link, phones["plain text"]))
		require.Equal(t, Decided, taken.Status, why)
		require.False(t, w.decision(k).Approved, why)
	}
}

// A question has a button for each option, and one to deny it.
func TestTapAnswersQuestion(t *testing.T) { synctest.Test(t, testTapAnswersQuestion) }

func testTapAnswersQuestion(t *testing.T) {
	w := newRig(t)
	options := []string{"main", "50% & \"more\"", "1"}
	ask := func(p *approval.Pending) {
		p.Type, p.Options, p.Agent.Title = approval.TypeQuestion, options, "Which?"
	}
	for i := range 4 {
		k := w.addNextPending("home", ask)
		all := buttonsOf(w.onlyEmail(w.runAndTakeSent()).page)
		require.Len(t, all, 4)
		taken, _ := w.deliver(tap(t, all[i].link, phones["HTML"]))
		require.Equal(t, Decided, taken.Status, all[i].label)
		if i < len(options) {
			require.Equal(t, options[i], w.decision(k).Answer)
		} else {
			require.Equal(t, approval.Denied, w.decision(k).Verdict)
		}
	}
	w.addNextPending("home", ask, func(p *approval.Pending) { p.Options = nil })
	require.Len(t, buttonsOf(w.onlyEmail(w.runAndTakeSent()).page), 1, "an answer in one's own words is written")
}

// The HTML part loads nothing, and its only links open a reply.
func TestPageHasNoOtherLinks(t *testing.T) { synctest.Test(t, testPageHasNoOtherLinks) }

func testPageHasNoOtherLinks(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1, func(p *approval.Pending) {
		p.Agent.Rationale = `<a href="https://evil.test">x</a> <img src=//evil.test/x.png> </style><style>a{background:url(//evil.test)}`
		p.Summary = `"><a href="mailto:eve@elsewhere.test?body=1">`
	})
	page := w.onlyEmail(w.runAndTakeSent()).page
	for _, b := range buttonsOf(page) {
		require.True(t, strings.HasPrefix(b.link, "mailto:permesso%2B"), b.link)
	}
	tags := regexp.MustCompile(`<[^>]*>`).FindAllString(page, -1)
	require.NotEmpty(t, tags)
	for _, tag := range tags {
		require.NotRegexp(t, `(?i)^<(img|link|script|iframe|form|base|object|embed|svg|video)\b|\b(src|action|background|ping)\s*=`, tag)
	}
	sheet := page[strings.Index(page, "<style"):strings.Index(page, "</style>")]
	require.NotRegexp(t, `(?i)url\s*\(|@import|@font-face|:visited`, sheet+strings.Join(tags, ""))
	require.False(t, flatten(page).sheetHides, "a reply that quotes it can be read")
}

// A reply that quotes the HTML part decides by its own text, with and without marks.
func TestQuotedPageDecidesNothing(t *testing.T) { synctest.Test(t, testQuotedPageDecidesNothing) }

func testQuotedPageDecidesNothing(t *testing.T) {
	for _, language := range []string{"en", "it"} {
		w := newRig(t)
		w.people["home"][0].Language = language
		k := w.addPending("home", id1, longLived)
		card := w.onlyEmail(w.runAndTakeSent())
		html := func(h map[string]string) { h["Content-Type"] = "text/html; charset=utf-8" }
		for _, text := range []string{card.page, "hm " + card.page, "<blockquote>" + card.page + "</blockquote>"} {
			taken, _ := w.deliver(replyTo(card, annMail, text, html))
			require.NotEqual(t, Decided, taken.Status, text)
			taken, _ = w.deliver(replyTo(card, annMail, flatten(text).text))
			require.NotEqual(t, Decided, taken.Status, text)
		}
		require.Nil(t, w.decision(k))
		taken, _ := w.deliver(replyTo(card, annMail, "3 too early\n\n"+flatten(card.page).text))
		require.Equal(t, Decided, taken.Status, language)
		require.Equal(t, "too early", w.decision(k).Feedback)
	}
}

// Each code of an email says whether it runs something, in both parts.
func TestCodesSayWhetherTheyRun(t *testing.T) {
	for _, language := range []string{"en", "it"} {
		p := postKind(t)
		m := &cardMail{pending: p, style: chat.Style{Language: language}, texts: textsFor(language), to: "permesso@gate.test"}
		letter, err := m.render()
		require.NoError(t, err)
		codes := textsFor(language).Codes
		for _, part := range []string{letter.Text(), flatten(letter.Page).text} {
			for code, effect := range map[string]string{"1": codes.Runs, "2": codes.Runs, "3": codes.RunsNothing, "4": codes.Runs, "5": codes.RunsNothing, "6": codes.Runs, "?": codes.RunsNothing} {
				require.True(t, slices.ContainsFunc(strings.Split(part, "\n"), func(l string) bool {
					l = strings.TrimPrefix(strings.TrimSpace(l), "· ")
					return strings.HasPrefix(strings.Replace(l, code+":", code, 1), code+" ") && strings.HasSuffix(l, "("+effect+")")
				}), "%s: code %s\n%s", language, code, part)
			}
		}
	}
}

// postKind is the post of cardtest.
func postKind(t testing.TB) *approval.Pending {
	t.Helper()
	for _, k := range cardtest.Kinds() {
		if k.Name == "post" {
			return k.Pending
		}
	}
	t.Fatal("no post")
	return nil
}

// Every text of the page has the contrast of WCAG 2 level AA, in light and in dark, and every
// button is large enough for a finger.
func TestPageIsReadable(t *testing.T) {
	for _, k := range cardtest.Kinds() {
		m := &cardMail{pending: k.Pending, style: cardtest.Style(t, false), texts: textsFor(""), to: "permesso@gate.test"}
		for _, m.ceiling = range []approval.Reversibility{"", approval.Reversible} {
			letter, err := m.render()
			require.NoError(t, err)
			doc, err := nethtml.Parse(strings.NewReader(letter.Page))
			require.NoError(t, err)
			sheet := darkColors(t, letter.Page)
			texts := 0
			for _, dark := range []bool{false, true} {
				requireContrast(t, doc, textStyle{}, sheet, dark, &texts)
			}
			require.Greater(t, texts, 10)
			links := regexp.MustCompile(`<a [^>]*>`).FindAllString(letter.Page, -1)
			require.NotEmpty(t, links)
			for _, link := range links {
				require.Regexp(t, `display: block; padding: 14px 8px;.*line-height: 24px`, link, "52 pixels high")
			}
		}
	}
}

// darkColors are the declarations of the style sheet, by class.
func darkColors(t *testing.T, page string) map[string]string {
	t.Helper()
	_, dark, ok := strings.Cut(page, "@media (prefers-color-scheme: dark) {")
	require.True(t, ok)
	sheet := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\.(\w+) \{(.*)\}$`).FindAllStringSubmatch(dark, -1) {
		sheet[m[1]] = m[2]
	}
	require.NotEmpty(t, sheet)
	return sheet
}

func requireContrast(t *testing.T, n *nethtml.Node, l textStyle, sheet map[string]string, dark bool, texts *int) {
	t.Helper()
	if n.Type == nethtml.ElementNode {
		if n.Data == "head" {
			return
		}
		l = l.with(n, styleOf(n))
		for _, a := range n.Attr {
			if a.Key == "class" && dark {
				require.Contains(t, sheet, a.Val)
				l = l.with(n, styleOf(&nethtml.Node{Attr: []nethtml.Attribute{{Key: "style", Val: sheet[a.Val]}}}))
			}
		}
	}
	if n.Type == nethtml.TextNode && strings.TrimSpace(n.Data) != "" {
		*texts++
		require.NotNil(t, l.fg, n.Data)
		require.GreaterOrEqual(t, contrast(*l.fg, *l.background()), 4.5, "dark: %t, %v on %v: %s", dark, *l.fg, *l.background(), n.Data)
	}
	for c := range n.ChildNodes() {
		requireContrast(t, c, l, sheet, dark, texts)
	}
}

// contrast is the contrast ratio of WCAG 2.
func contrast(a, b color) float64 {
	luminance := func(c color) float64 {
		var parts [3]float64
		for i, v := range c {
			if parts[i] = float64(v) / 255; parts[i] <= 0.04045 {
				parts[i] /= 12.92
			} else {
				parts[i] = math.Pow((parts[i]+0.055)/1.055, 2.4)
			}
		}
		return 0.2126*parts[0] + 0.7152*parts[1] + 0.0722*parts[2]
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
