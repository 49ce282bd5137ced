package deliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// ownCommand splits a command into its English word and the rest; word is "" if it is none.
// In a group it needs a slash or the bot's name before it: people use such words in conversation.
func (w *incomingText) ownCommand() (word, rest string) {
	text, called := w.text, w.slash
	if first, after, _ := strings.Cut(text, " "); strings.HasPrefix(first, "@") {
		if slices.ContainsFunc(w.botNames(), func(n string) bool { return strings.EqualFold("@"+n, first) }) {
			text, called = strings.TrimLeft(after, " "), true
		}
	}
	if !called && w.Group {
		return "", ""
	}
	word, rest, _ = chat.CutCommand(text)
	return word, rest
}

// handleStart tells a user their ID and the chat's, which the configuration needs.
func (w *incomingText) handleStart() bool {
	word, _ := w.ownCommand()
	if word != "start" {
		return false
	}
	if len(w.workspaces) == 0 {
		if speak, _ := w.refusals.count(w.By, w.now()); !speak {
			return true // limits the answers to other users
		}
	}
	t := catalogFor(w.language)
	lines := []string{chat.Format(t.YourID, "id", w.person.ID)}
	if w.Group {
		lines = append(lines, chat.Format(t.ChatID, "id", string(w.At.Chat)))
	}
	if w.At.Thread != "" {
		lines = append(lines, chat.Format(t.ThreadID, "id", string(w.At.Thread)))
	}
	if len(w.workspaces) > 0 {
		lines = append(lines, chat.Format(t.YouDecideIn, "workspaces", strings.Join(w.workspaces, ", ")))
	}
	w.replyText(strings.Join(lines, "\n"))
	return true
}

// handleOwnCommand runs the commands that only this channel has.
func (w *incomingText) handleOwnCommand(ctx context.Context) bool {
	word, rest := w.ownCommand()
	t := catalogFor(w.language)
	switch word {
	case "help":
		w.replyText(t.Help)
	case "pending":
		if rest != "" {
			return false
		}
		w.replyWith(w.pendingList(ctx, w.listRequest(), 0))
	case "today":
		if rest != "" {
			return false
		}
		r := w.Interceptor.Today(ctx, chat.Message{From: w.person, Via: w.Name, Workspaces: w.workspaces, Language: w.language})
		w.log(r.Err)
		w.replyText(r.Text)
	case "status":
		w.replyWith(w.statusMessage(ctx))
	case "last":
		w.replyWith(w.lastDecided(ctx, perPage))
	case "grants":
		w.replyWith(w.grantList(ctx, w.listRequest()))
	case "pause", "resume":
		w.replyText(w.pauseOrResume(ctx, word, rest))
	case "show":
		w.handleShow(ctx, rest)
	case "stop", "undo":
		if rest != "" {
			return false
		}
		w.replyWith(w.whatItMeans(ctx, word))
	default:
		return false
	}
	return true
}

// whatItMeans says what the word stop or undo could mean, with what it could be about.
func (w *incomingText) whatItMeans(ctx context.Context, word string) Message {
	t := catalogFor(w.language)
	if word == "undo" {
		msg, last := w.grantList(ctx, w.listRequest()), w.lastDecided(ctx, 1)
		msg.Lines = slices.Concat([]string{t.UndoMeans}, msg.Lines, []string{t.LastDecision}, last.Lines)
		return msg
	}
	id := "<id>"
	if all, err := w.decidable(ctx, w.listRequest()); err == nil && len(all) == 1 {
		id = chat.Escape(all[0].Pending.ShortID)
	}
	msg := w.pendingList(ctx, w.listRequest(), 0)
	msg.Lines = append([]string{chat.Format(t.StopMeans, "id", id)}, msg.Lines...)
	return msg
}

func (w *incomingText) listRequest() listRequest {
	return listRequest{w.person, w.At, w.workspaces, w.language}
}

// statusMessage says which workspaces are paused, and lists the pending requests.
func (w *incomingText) statusMessage(ctx context.Context) Message {
	t := w.renderer(w.language)
	var lines []string
	for _, name := range w.workspaces {
		line := chat.Format(t.NotPaused, "workspace", chat.Escape(name))
		if paused := t.PauseLine(name, w.now()); paused != "" {
			line = chat.Escape(name) + ": " + paused
		}
		lines = append(lines, line)
	}
	msg := w.pendingList(ctx, w.listRequest(), 0)
	msg.Lines = append(lines, msg.Lines...)
	return msg
}

// lastDecided lists the last decisions, at most n: of requests that have ended, and of those that a pause holds.
func (w *incomingText) lastDecided(ctx context.Context, n int) Message {
	t := w.renderer(w.language)
	if w.History == nil {
		return plain(t.NothingYet)
	}
	keys, err := w.History.Last(ctx, w.workspaces, n)
	waiting, failed := w.Viewer.Waiting(ctx, w.workspaces)
	if err = errors.Join(err, failed); err != nil {
		w.log(err)
		return plain(t.Unsure)
	}
	for _, p := range waiting {
		if _, ok := w.Guard.May(p.Pending.SourceGroup, p.Pending, w.person); ok {
			keys = append(keys, p.Key())
		}
	}
	var stories []read.Story
	for _, k := range keys {
		st, err := w.status(ctx, k)
		if err == nil && (st.Record != nil || st.aftermath() == tellPause) { // else pruned, or about to be; or undecided
			stories = append(stories, st.Story)
		}
	}
	slices.SortStableFunc(stories, func(a, b read.Story) int { return shownTime(b).Compare(shownTime(a)) })
	var lines []string
	for _, story := range stories[:min(n, len(stories))] {
		lines = append(lines, t.endedLines(story))
	}
	if len(lines) == 0 {
		lines = []string{t.NothingYet}
	}
	return plain(lines...)
}

// shownTime is the time that endedLines show.
func shownTime(s read.Story) time.Time {
	if s.Record != nil {
		return s.Record.EndedAt
	}
	return s.Decision.DecidedAt
}

// endedLines show when and how a request ended, or how it was decided, and what it was.
func (p renderer) endedLines(story read.Story) string {
	lines := p.outcomeLines(story)
	if story.Record != nil {
		lines = []string{p.Outcome(story.Record)}
		if !story.Record.EndedAt.IsZero() {
			lines[0] = p.dateTime(story.Record.EndedAt) + " · " + lines[0]
		}
	}
	if story.Pending != nil {
		lines = append(lines, chat.Escape(story.Pending.SourceGroup)+" · "+p.VerbAndObject(story.Pending))
	}
	return Truncate(strings.Join(lines, "\n"), p.maxText/perPage-2)
}

// pauseOrResume pauses or resumes the workspaces of this chat in which the user may decide, or one of them.
func (w *incomingText) pauseOrResume(ctx context.Context, word, rest string) string {
	t := catalogFor(w.language)
	if w.Pauser == nil {
		return t.Unavailable
	}
	names, reason := w.workspaces, rest
	if first, after, _ := strings.Cut(rest, " "); slices.Contains(w.workspaces, first) {
		names, reason = []string{first}, strings.TrimSpace(after)
	} else if word == "resume" && rest != "" {
		return chat.Format(t.WhichWorkspace, "workspaces", strings.Join(w.workspaces, ", "))
	}
	var lines []string
	for _, name := range names {
		lines = append(lines, w.pauseOrResumeOne(ctx, word, name, Truncate(chat.Escape(reason), maxExcerpt)))
	}
	return strings.Join(lines, "\n")
}

func (w *incomingText) pauseOrResumeOne(ctx context.Context, word, name, reason string) string {
	t := catalogFor(w.language)
	done, before := t.Resumed, t.NotPaused
	var changed bool
	var err error
	if word == "pause" {
		done, before = t.PausedNow, t.AlreadyPaused
		changed, err = w.Pauser.Pause(ctx, name, w.person, reason)
	} else {
		changed, err = w.Pauser.Resume(ctx, name, w.person)
	}
	still := ""
	if word == "resume" {
		still = w.renderer(w.language).PauseLine(name, w.now())
	}
	switch {
	case err != nil:
		w.log(err)
		return chat.Escape(name) + ": " + t.Unsure
	case still != "":
		return chat.Escape(name) + ": " + still + "\n" + t.AllPaused
	case !changed:
		return chat.Format(before, "workspace", chat.Escape(name))
	}
	return chat.Format(done, "workspace", chat.Escape(name))
}

// handleShow shows the card of a request in this chat, or how it ended.
func (w *incomingText) handleShow(ctx context.Context, prefix string) {
	t := catalogFor(w.language)
	prefix = strings.ToLower(prefix)
	if len(prefix) < 4 || !approval.MaybeID(prefix) {
		w.replyText(t.Help)
		return
	}
	all, err := w.decidable(ctx, w.listRequest())
	if err != nil {
		w.log(err)
		w.replyText(t.Unsure)
		return
	}
	all = approval.Named(all, prefix)
	switch ended := w.endedNamed(ctx, prefix); {
	case len(all) == 1:
		w.showCard(all[0].Pending, w.listRequest())
	case len(all) == 0 && len(ended) == 1:
		w.replyText(w.renderer(w.language).endedLines(ended[0]))
	default:
		w.replyText(chat.Format(t.NotFound, "id", prefix))
	}
}

// endedNamed returns the requests that are decided, of those whose IDs begin with the prefix.
func (w *incomingText) endedNamed(ctx context.Context, prefix string) (all []read.Story) {
	keys, err := w.Viewer.Find(ctx, w.workspaces, prefix)
	w.log(err)
	for _, k := range keys {
		story, err := w.Viewer.Story(ctx, k)
		w.log(err)
		if _, ok := w.Guard.May(k.Workspace, story.Pending, w.person); ok && (story.Decision != nil || story.Record != nil) {
			all = append(all, story)
		}
	}
	return all
}
