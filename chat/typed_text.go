package chat

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// written is a text, and for a text that becomes a file, what changes there.
func (t typedValue) written(s string) []Line {
	if before, ok := t.replaced(t.arg); ok {
		lines, added, removed := t.diff(before, s, func(s string) []string { return strings.Split(s, "\n") })
		return append([]Line{{LineLabel, t.label + ": " + t.changeCount(added, removed)}}, lines...)
	}
	if t.arg.Writes == "" {
		return t.text(LineText, s)
	}
	before := t.p.Before
	if before == nil || before.Arg != t.name {
		return append(t.text(LineText, s), Line{LineWarn, t.Values.FileUnread})
	}
	return t.fileDiff(before.Exists, before.Text, s)
}

// replaced is the text in whose place that of an argument comes.
func (r renderer) replaced(a approval.Argument) (before string, ok bool) {
	if a.Replaces == "" {
		return "", false
	}
	for _, f := range codec.FirstFields(r.p.RequestData) {
		if f.Name == a.Replaces {
			before, ok = f.Text()
		}
	}
	return before, ok
}

// isReplaced tells an argument that stands in the comparison with the text that replaces it.
func (v invocation) isReplaced(f codec.Field, all []codec.Field) bool {
	a := v.argument(f)
	if _, isText := f.Text(); !isText || a.Type != facts.TypeText || a.Replaces+a.Writes != "" {
		return false
	}
	return slices.ContainsFunc(all, func(by codec.Field) bool {
		a := v.argument(by)
		_, isText := by.Text()
		compares := isText && a.Type == facts.TypeText && a.Replaces == f.Name && f.Name != ""
		return compares && !v.inline[by.Name] && typedValue{renderer: v.renderer, arg: a, name: by.Name}.withheldIn(by.Value) == ""
	})
}

// fileDiff shows all lines of the new text. The signs of a diff precede the bar.
func (t typedValue) fileDiff(exists bool, before, after string) []Line {
	shown, added, removed := t.diff(before, after, fileLines)
	lines := append([]Line{{}}, shown...)
	what := t.changeCount(added, removed)
	if !exists {
		what = t.Values.NewFile + ", " + what
	}
	lines[0] = Line{LineLabel, t.label + ": " + what}
	switch {
	case after == "":
		lines = append(lines, Line{LineText, t.Values.EmptyFile})
	case !strings.HasSuffix(after, "\n"):
		lines = append(lines, Line{LineText, t.Values.NoFinalBreak})
	}
	return lines
}

// diff are the lines of two texts.
func (t typedValue) diff(before, after string, split func(string) []string) (lines []Line, added, removed int) {
	a, b := split(before), split(after)
	if kind := t.withheld(before); kind != "" {
		removed = len(a)
		lines = append(lines, Line{LineRemoved, "- " + withBar(t.maskText(&hidden{Span: Span{Kind: kind}, withheld: true}, ""))})
		a, before = nil, ""
	}
	old, now := t.fileBlock(before, len(a)), t.fileBlock(after, len(b))
	for _, e := range facts.Edits(a, b) {
		switch e.Sign {
		case '-':
			removed++
			lines = append(lines, Line{LineRemoved, "- " + withBar(old[e.At])})
		case '+':
			added++
			lines = append(lines, Line{LineAdded, "+ " + withBar(now[e.At])})
		default:
			lines = append(lines, Line{LineSame, "  " + withBar(now[e.At])})
		}
	}
	return lines, added, removed
}

func (t typedValue) changeCount(added, removed int) string {
	return Format(t.Values.FileChanges, "added", strconv.Itoa(added), "removed", strconv.Itoa(removed))
}

// fileLines are the lines of a file, whose last one ends with a line break too.
func fileLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func (t typedValue) fileBlock(s string, n int) []string { return t.blockLines(s, t.secrets(s))[:n] }

// patch shows a diff: each line as it is, its sign included.
func (t typedValue) patch(s string) []Line {
	lines, count := []Line{{}}, map[LineKind]int{}
	secrets, at := t.secrets(s), 0
	var h hunk
	for _, l := range strings.Split(s, "\n") {
		kind, sign := h.kind(l), ""
		if count[kind]++; kind == LineAdded || kind == LineRemoved {
			sign = l[:1]
		}
		body := l[len(sign):]
		lines = append(lines, Line{kind, withBar(sign + t.maskSpans(body, within(secrets, at+len(sign), at+len(l)), inBlock)[0])})
		at += len(l) + 1
	}
	what := t.changeCount(count[LineAdded], count[LineRemoved])
	lines[0] = Line{LineLabel, t.label + ": " + what}
	return lines
}

// within are the secrets in bytes start to end of a text, as parts of those bytes.
func within(secrets []hidden, start, end int) (part []hidden) {
	for _, h := range secrets {
		if h.Start < end && h.End > start {
			h.Start, h.End = max(h.Start, start)-start, min(h.End, end)-start
			part = append(part, h)
		}
	}
	return part
}

// hunk counts the lines that follow the head of a hunk, as patch does: a removed
// line "-- x" is not the head of a file. Elsewhere the sign decides.
type hunk struct{ before, after int }

var hunkHead = regexp.MustCompile(`^@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@`)

func (h *hunk) kind(l string) LineKind {
	sign := byte(' ') // an empty line is an unchanged one
	if l != "" {
		sign = l[0]
	}
	switch m := hunkHead.FindStringSubmatch(l); {
	case sign == '+' && h.after > 0:
		h.after--
		return LineAdded
	case sign == '-' && h.before > 0:
		h.before--
		return LineRemoved
	case sign == ' ' && h.before > 0 && h.after > 0:
		h.before, h.after = h.before-1, h.after-1
		return LineSame
	case m != nil:
		h.before, h.after = lineCount(m[1]), lineCount(m[2])
		return LineLabel
	case strings.HasPrefix(l, "+++ "), strings.HasPrefix(l, "--- "), strings.HasPrefix(l, "diff "):
		return LineLabel
	case sign == '+':
		return LineAdded
	case sign == '-':
		return LineRemoved
	case l != "" && sign == ' ':
		return LineSame
	}
	return LineText
}

// lineCount is 1 if a hunk's head does not give it.
func lineCount(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 1
	}
	return n
}
