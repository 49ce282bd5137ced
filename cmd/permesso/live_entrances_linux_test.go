package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// The entrances at which the value of a key can be seen. The first six decide, the folder
// and the HTTP API submit.
const (
	atCLI      = "the command line" // over HOME/run/permesso.sock
	atSocket   = "the socket"       // the configured one
	atHTTP     = "the HTTP API"     // with a key
	atBrowser  = "the browser"
	atTelegram = "Telegram"
	atEmail    = "email"
	atFolder   = "a request file"
	atLog      = "the log"
	atEdit     = "the next edit"
	// atReopened is a channel that is opened again: TestChannelsAreReopened edits each of
	// its keys. What it does then, TestEmail shows with real mail servers.
	atReopened = "a reopened channel"
)

// liveEntrances says at which entrances a key counts. A key belongs to the longest of
// these that it is or begins with.
func liveEntrances() map[string][]string {
	local, people := []string{atCLI, atSocket, atBrowser}, []string{atSocket, atHTTP, atBrowser, atTelegram, atEmail}
	requests := []string{atFolder, atHTTP}
	return map[string][]string{
		"run_before":      {atCLI, atSocket, atHTTP, atBrowser, atTelegram, atEmail},
		"local_decisions": local, "workspaces.NAME.local_decisions": local,
		"workspaces.NAME.approvers": people, "workspaces.NAME.principal": people,
		"workspaces.NAME.agent_uid": {atCLI, atBrowser}, // an agent's UID cannot be an approver's
		"approvers.NAME.local":      {atSocket, atBrowser},
		"approvers.NAME.telegram":   {atTelegram}, "approvers.NAME.email": {atEmail},
		"language": {atTelegram}, "workspaces.NAME.language": {atTelegram}, "approvers.NAME.language": {atTelegram},
		"approvers.NAME.autonomy":  {atFolder},
		"workspaces.NAME.channels": {atTelegram}, "workspaces.NAME.telegram.": {atTelegram}, "workspaces.NAME.quiet_hours": {atTelegram},
		"workspaces.NAME.email_ceiling": {atEmail},
		"workspaces.NAME.admin":         {atEdit},
		"workspaces.NAME.":              requests, "tools.": requests, "mcp.": requests, "rules": requests, "provers.": requests,
		"workspaces.NAME.folder":         {atFolder},
		"workspaces.NAME.binds_sessions": {atHTTP},   // a request file names no session of the host
		"workspaces.NAME.limits.running": {atFolder}, // the HTTP API answers when there is a slot
		"rules[].match.client":           {atFolder}, // a key is another client
		"elicitation":                    {atHTTP},
		"log_level":                      {atLog}, "log_format": {atLog},
		"channels.telegram.":  {atTelegram},
		"channels.email.":     {atReopened},
		"channels.ntfy.":      {atReopened},
		"webhooks.NAME.":      {atReopened},
		"channels.email.from": {atEmail}, "channels.email.smtp.address": {atEmail}, "channels.email.sub_addressing": {atEmail},
		"channels.email.maildir": {atEmail}, "channels.email.trust_relay": {atEmail}, "channels.email.authserv_id": {atEmail},
	}
}

// entrancesOf returns where a key counts, nil if the table has no row for it.
func entrancesOf(key string) (entrances []string) {
	longest := ""
	for row, where := range liveEntrances() {
		open := strings.HasSuffix(row, ".") || row == "rules"
		if (key == row || open && strings.HasPrefix(key, row)) && len(row) >= len(longest) {
			longest, entrances = row, where
		}
	}
	return entrances
}

// withEntrances returns the checks, and those of a request file again for each other
// entrance of its key that submits and has no check of its own.
func (g *liveGroup) withEntrances() []liveCheck {
	has := func(key, entrance string) bool {
		return slices.ContainsFunc(g.checks, func(c liveCheck) bool { return c.key == key && c.entrance == entrance })
	}
	all := slices.Clone(g.checks)
	for _, c := range g.checks {
		if c.entrance == atFolder && slices.Contains(entrancesOf(c.key), atHTTP) && !has(c.key, atHTTP) {
			c.entrance = atHTTP
			c.see = byHTTP(c.see)
			all = append(all, c)
		}
	}
	return all
}

// byHTTP sees the same of requests by HTTP.
func byHTTP(see func(*live) string) func(*live) string {
	return func(l *live) string {
		l.byHTTP = true
		defer func() { l.byHTTP = false }()
		return see(l)
	}
}

// missingChecks lists what the table demands and no group checks, and checks that the
// table does not know.
func missingChecks(groups []liveGroup) (faults []string) {
	checked := map[string]bool{}
	for _, g := range groups {
		for _, c := range g.withEntrances() {
			checked[c.key+" at "+c.entrance] = true
			if !slices.Contains(entrancesOf(c.key), c.entrance) {
				faults = append(faults, c.key+" is checked at "+c.entrance+": add it to the table")
			}
		}
	}
	for _, r := range config.Rows() {
		if r.Restart {
			continue
		}
		where := entrancesOf(r.Path)
		if len(where) == 0 {
			faults = append(faults, r.Path+" has no row in the table of entrances")
		}
		for _, entrance := range where {
			if entrance != atReopened && !checked[r.Path+" at "+entrance] {
				faults = append(faults, "no group checks "+r.Path+" at "+entrance)
			}
		}
	}
	return faults
}

// atUnix sends a request to a Unix socket of the daemon.
func (l *live) atUnix(path, method, at, body string, headers ...string) (status int, answer []byte) {
	l.t.Helper()
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return httpapi.DialUnix(ctx, path) },
	}}
	r, err := http.NewRequestWithContext(l.t.Context(), method, "http://permesso/v1/local"+at, strings.NewReader(body))
	require.NoError(l.t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(r)
	require.NoError(l.t, err)
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	require.NoError(l.t, err)
	return resp.StatusCode, b.Bytes()
}

// browser is a session of the web UI, opened with a link that a socket gave to a user. uid
// is the user whose program runs with another effective UID, "" for this user.
func (l *live) browser(socket, uid string) *pageClient {
	l.t.Helper()
	if l.browsers[socket+uid] == nil {
		var headers []string
		if uid != "" {
			headers = []string{httpapi.RealUIDHeader, uid}
		}
		status, b := l.atUnix(socket, "POST", "/link", "{}", headers...)
		require.Equal(l.t, http.StatusOK, status, "%s", b)
		var link struct{ URL string }
		require.NoError(l.t, json.Unmarshal(b, &link))
		l.browsers[socket+uid] = openLink(l.group, link.URL)
	}
	return l.browsers[socket+uid]
}

// browserOf approves in the browser of the operator, of a user at the socket, or of an
// agent that runs as the daemon's user.
func browserOf(who, ws string) func(*live) string {
	return func(l *live) string {
		socket, uid := l.layout.Socket(), ""
		switch who {
		case "approver":
			socket = l.socket
		case "agent":
			uid = strconv.Itoa(agentUID())
		}
		b := l.browser(socket, uid)
		id, _ := l.ruled(ws, sayRequest)
		at := "r/" + ws + "/" + id
		status, text := b.get(at)
		found := shownDigest.FindStringSubmatch(text)
		if found == nil {
			return fmt.Sprintf("refused: status %d", status)
		}
		status, text, _ = b.post(at+"/decide", url.Values{"code": {"1"}, "sha": {found[1]}})
		if !strings.Contains(text, "Approved: ") {
			return fmt.Sprintf("refused: status %d", status)
		}
		return l.approvedFor(ws, id)
	}
}

var momentIn = regexp.MustCompile(`"(run_before|decided_at)":"([^"]+)"`)

// approvedFor waits for the end of an approved request, and returns how long after its
// approval it could begin.
func (l *live) approvedFor(ws, id string) string {
	l.t.Helper()
	l.responseIn(ws, id)
	b, err := os.ReadFile(filepath.Join(l.layout.Records(ws), id+".json"))
	require.NoError(l.t, err)
	at := map[string]time.Time{}
	for _, found := range momentIn.FindAllSubmatch(b, -1) {
		at[string(found[1])], err = time.Parse(time.RFC3339, string(found[2]))
		require.NoError(l.t, err)
	}
	return "approved for " + at["run_before"].Sub(at["decided_at"]).Round(time.Minute).String()
}

// earlier is a request of the first version that waits for an approval after the edit.
// shown waits until its card is there.
func earlier(ws string, shown func(l *live, id string), approve func(l *live, ws, id string) string) func(*live) string {
	return func(l *live) string {
		if l.version == 1 {
			return approve(l, ws, l.kept[ws])
		}
		id, _ := l.ruled(ws, sayRequest)
		l.kept[ws], _ = l.ruled(ws, sayRequest)
		shown(l, l.kept[ws])
		return approve(l, ws, id)
	}
}

// annInGroup approves in a group. The card is there, even if ann may not decide.
func annInGroup(ws string, chat int64) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		text := l.tapAs(1001, chat, id)
		if !strings.HasPrefix(text, "Approved") {
			return text
		}
		return l.approvedFor(ws, id)
	}
}

// annByEmail answers the email about a request, also after she is an approver no more.
func annByEmail(ws string) func(*live) string {
	return earlier(ws, func(l *live, id string) { l.awaitMail(id) }, func(l *live, ws, id string) string {
		if status := l.replyByEmail("inbox", id); !strings.HasPrefix(status, "decided") {
			return status
		}
		return l.approvedFor(ws, id)
	})
}

// reply sees how a reply with these header lines is handled that is delivered into the
// maildir of this version.
func reply(headers ...string) func(*live) string {
	return func(l *live) string {
		folder := []string{"inbox", "inbox2"}[l.version]
		id, _ := l.ruled("default", sayRequest)
		return folder + " " + l.replyByEmail(folder, id, headers...)
	}
}

// replyByEmail delivers ann's approval into a maildir, and returns how it was handled.
func (l *live) replyByEmail(folder, id string, headers ...string) string {
	l.t.Helper()
	card := l.awaitMail(id)
	l.replies++
	name := fmt.Sprintf("%d.%d.test", time.Now().Unix(), l.replies)
	text := strings.Join(append(headers, "From: ann@example.org", "To: "+cmp.Or(headerOf(card, "Reply-To"), headerOf(card, "From")), "Subject: Re: "+subjectOf(card),
		"Message-ID: <"+name+"@example.org>", "Date: "+time.Now().UTC().Format(time.RFC1123Z), "", "1", ""), "\r\n")
	dir := filepath.Join(l.dir, folder)
	temp := filepath.Join(dir, "tmp", name)
	require.NoError(l.t, os.WriteFile(temp, []byte(text), 0o600))
	require.NoError(l.t, os.Rename(temp, filepath.Join(dir, "new", name)))
	handled := regexp.MustCompile(`"mail":"maildir ` + regexp.QuoteMeta(name) + `","status":"(\w+)".*"why":"([^"]*)"`)
	var found []string
	await(l.t, l.d.log, func() bool { found = handled.FindStringSubmatch(l.d.logged()); return found != nil })
	return strings.TrimSpace(found[1] + " " + found[2])
}

// headerOf is a header of a mail that the sink has taken.
func headerOf(taken, name string) string {
	_, text, _ := strings.Cut(taken, "\n") // the envelope
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return err.Error()
	}
	return m.Header.Get(name)
}

func subjectOf(taken string) string {
	subject, err := new(mime.WordDecoder).DecodeHeader(headerOf(taken, "Subject"))
	if err != nil {
		return err.Error()
	}
	return subject
}

// replyAddress sees where a mail is answered.
func replyAddress(mailOf func(*live) string) func(*live) string {
	return func(l *live) string {
		m := mailOf(l)
		return headerOf(m, "Reply-To") + " " + headerOf(m, "From")
	}
}

// cardServer sees to which Telegram a card is sent.
func cardServer(l *live) string {
	id, _ := l.ruled("default", sayRequest)
	first := l.api
	defer func() { l.api = first }()
	name := "the first server"
	if l.version == 1 {
		l.api, name = l.other, "the other server"
	}
	l.card(1001, id)
	return name
}

// feedBefore sees whether an allowed request is reported before the card of a later one.
func feedBefore(l *live) string {
	first := l.api
	defer func() { l.api = first }()
	if l.version == 1 {
		l.api = l.other
	}
	allowed, _ := l.ruled("default", `{"tool_name":"free"}`)
	reported := func(s botapi.State) bool {
		return slices.ContainsFunc(s.FromBot(1001), func(m botapi.Message) bool { return strings.Contains(m.Text, approval.ShortID(allowed)) })
	}
	if l.version == 1 {
		ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
		defer cancel()
		require.NoError(l.t, l.api.Await(ctx, reported), l.d.logged())
		return "a feed"
	}
	later, _ := l.ruled("default", sayRequest)
	l.card(1001, later)
	if reported(l.api.State()) {
		return "a feed"
	}
	return "no feed"
}

// lastHook waits until the bot has set the webhook of this version.
func lastHook(l *live) string {
	l.t.Helper()
	path := []string{"/one", "/two"}[l.version]
	found := ""
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	require.NoError(l.t, l.api.Await(ctx, func(s botapi.State) bool {
		for _, c := range s.Calls {
			if c.Method == "setWebhook" && strings.HasSuffix(c.Params["url"], path) {
				found = c.Params["url"] + " " + c.Params["secret_token"]
			}
		}
		return found != ""
	}), l.d.logged())
	return found
}

// hookListens sees at which of the two addresses updates are taken.
func hookListens(l *live) string {
	lastHook(l)
	var taken []string
	for _, at := range l.hooks {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
		}
		taken = append(taken, strconv.FormatBool(err == nil))
	}
	return strings.Join(taken, " ")
}

// botToken sees whether Telegram knows the bot's token.
func botToken(l *live) string {
	if l.version == 1 {
		l.awaitHealth("channeltelegram")
		return "refused"
	}
	return "accepted by " + cardServer(l)
}
