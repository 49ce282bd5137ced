package telegram

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// own parts a command that only this channel has into its word and the rest; word is "" where it is none.
// Without a slash or our name before it, it is one in a private chat only, and alone: in a group people say
// such words to one another.
func (w *written) own() (word, rest string) {
	text, called := w.text, w.slash
	if first, after, _ := strings.Cut(text, " "); strings.HasPrefix(first, "@") {
		if slices.ContainsFunc(w.ourNames(), func(n string) bool { return strings.EqualFold("@"+n, first) }) {
			text, called = strings.TrimLeft(after, " "), true
		}
	}
	if i := strings.IndexAny(text, " \t\r\n"); i >= 0 {
		text, rest = text[:i], strings.Trim(text[i:], " \t\r\n")
	}
	if !called && (w.m.Chat.ID < 0 || rest != "") {
		return "", ""
	}
	switch word = strings.ToLower(text); word {
	case "start", "help", "pending", "last", "grants", "pause", "resume", "show":
		return word, rest
	}
	return "", ""
}

// start tells everybody their number and that of the chat: they belong into the configuration.
func (w *written) start() bool {
	word, _ := w.own()
	if word != "start" {
		return false
	}
	if len(w.theirs) == 0 && !w.strangers.refuse(w.m.From.ID, w.now()) {
		return true // nobody is told without end
	}
	t := catalogue(w.language)
	lines := []string{say(t.yourID, "id", w.person.ID)}
	if w.m.Chat.ID < 0 {
		lines = append(lines, say(t.chatID, "id", strconv.FormatInt(w.m.Chat.ID, 10)))
	}
	if thread := threadOf(w.m); thread != 0 {
		lines = append(lines, say(t.threadID, "id", strconv.Itoa(thread)))
	}
	if len(w.theirs) > 0 {
		lines = append(lines, say(t.greeting, "workspaces", strings.Join(w.theirs, ", ")))
	}
	w.say(strings.Join(lines, "\n"))
	return true
}

// special does what only this channel understands.
func (w *written) special(ctx context.Context) bool {
	word, rest := w.own()
	t := catalogue(w.language)
	switch word {
	case "help":
		w.say(t.help)
	case "pending":
		if rest != "" {
			return false
		}
		w.send(w.pendings(ctx, w.asker(), 0))
	case "last":
		w.send(w.lastSettled(ctx))
	case "grants":
		w.send(w.grants(ctx, w.asker()))
	case "pause", "resume":
		w.say(w.brake(ctx, word, rest))
	case "show":
		w.show(ctx, rest)
	default:
		return false
	}
	return true
}

func (w *written) asker() asker {
	return asker{w.person, w.m.Chat.ID, threadOf(w.m), w.theirs, w.language}
}

// send answers with a message that is more than a sentence.
func (w *written) send(l look) { w.reply(w.m.Chat.ID, threadOf(w.m), w.m.ID, l) }

// lastSettled is what was decided last.
func (w *written) lastSettled(ctx context.Context) look {
	t := w.painter(w.language)
	if w.History == nil {
		return plain(t.nothingYet)
	}
	keys, err := w.History.Last(ctx, w.theirs, perPage)
	if err != nil {
		w.log(err)
		return plain(t.unsure)
	}
	var lines []string
	for _, k := range keys {
		st, err := w.Viewer.Story(ctx, k)
		if err != nil || st.Record == nil {
			continue // pruned, or being pruned
		}
		lines = append(lines, t.settled(st))
	}
	if len(lines) == 0 {
		lines = []string{t.nothingYet}
	}
	return plain(lines...)
}

// settled is one line about how a request ended.
func (p painter) settled(st Story) string {
	line := p.Outcome(st.Record)
	if !st.Record.EndedAt.IsZero() {
		line = p.date(st.Record.EndedAt) + " · " + line
	}
	if st.Pending != nil {
		line += "\n" + p.Line(st.Pending)
	}
	return cut(line, maxText/perPage-2)
}

// brake holds the workspaces of this chat in which the person may decide, or one of them, or lets them go.
func (w *written) brake(ctx context.Context, word, rest string) string {
	t := catalogue(w.language)
	if w.Pauser == nil {
		return t.notHere
	}
	names, reason := w.theirs, rest
	if first, after, _ := strings.Cut(rest, " "); slices.Contains(w.theirs, first) {
		names, reason = []string{first}, strings.TrimSpace(after)
	} else if word == "resume" && rest != "" {
		return say(t.noWorkspace, "workspaces", strings.Join(w.theirs, ", "))
	}
	var lines []string
	for _, name := range names {
		lines = append(lines, w.brakeOne(ctx, word, name, cut(chat.Escape(reason), maxToast)))
	}
	return strings.Join(lines, "\n")
}

func (w *written) brakeOne(ctx context.Context, word, name, reason string) string {
	t := catalogue(w.language)
	done, before := t.resumed, t.notPaused
	var changed bool
	var err error
	if word == "pause" {
		done, before = t.paused, t.wasPaused
		changed, err = w.Pauser.Pause(ctx, name, w.person, reason)
	} else {
		changed, err = w.Pauser.Resume(ctx, name, w.person)
	}
	switch {
	case err != nil:
		w.log(err)
		return chat.Escape(name) + ": " + t.unsure
	case !changed:
		return say(before, "workspace", chat.Escape(name))
	}
	return say(done, "workspace", chat.Escape(name))
}

// show brings the card of a request to this chat.
func (w *written) show(ctx context.Context, prefix string) {
	t := catalogue(w.language)
	prefix = strings.ToLower(prefix)
	if len(prefix) < 4 || !isHex(prefix) {
		w.say(t.help)
		return
	}
	all, err := w.Viewer.Waiting(ctx, w.theirs)
	if err != nil {
		w.log(err)
		w.say(t.unsure)
		return
	}
	all = slices.DeleteFunc(all, func(x approval.Waiting) bool {
		_, ok := w.Guard.May(x.Pending.SourceGroup, x.Pending, w.person)
		return !ok || !strings.HasPrefix(x.Pending.RequestID, prefix)
	})
	if len(all) != 1 {
		w.say(say(t.noSuch, "id", prefix))
		return
	}
	w.bring(all[0].Key(), w.asker())
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
