package chat

import (
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval/facts"
)

// written is a text, and for a text that becomes a file, what changes there.
func (t typedValue) written(s string) []Line {
	if t.arg.Writes == "" {
		return t.text(LineText, s)
	}
	before := t.p.Before
	if before == nil || before.Arg != t.name {
		return append(t.text(LineText, s), Line{LineWarn, t.Values.FileUnread})
	}
	return t.fileDiff(before.Exists, before.Text, s)
}

// fileDiff shows all lines of the new text. The signs of a diff precede the bar.
func (t typedValue) fileDiff(exists bool, before, after string) []Line {
	a, b := fileLines(before), fileLines(after)
	old, now := t.fileBlock(before, len(a)), t.fileBlock(after, len(b))
	lines, added, removed := []Line{{}}, 0, 0
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
	what := Format(t.Values.FileChanges, "added", strconv.Itoa(added), "removed", strconv.Itoa(removed))
	if !exists {
		what = t.Values.NewFile + ", " + what
	}
	lines[0] = Line{LineLabel, t.label + ": " + what}
	if after != "" && !strings.HasSuffix(after, "\n") {
		lines = append(lines, Line{LineText, t.Values.NoFinalBreak})
	}
	return lines
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
	lines, added, removed := []Line{{}}, 0, 0
	for _, l := range strings.Split(s, "\n") {
		kind, sign := LineText, ""
		switch {
		case strings.HasPrefix(l, "@@"), strings.HasPrefix(l, "+++ "), strings.HasPrefix(l, "--- "), strings.HasPrefix(l, "diff "):
			kind = LineLabel
		case strings.HasPrefix(l, "+"):
			kind, sign = LineAdded, "+"
			added++
		case strings.HasPrefix(l, "-"):
			kind, sign = LineRemoved, "-"
			removed++
		case strings.HasPrefix(l, " "):
			kind = LineSame
		}
		lines = append(lines, Line{kind, withBar(sign + escape(l[len(sign):], inBlock))})
	}
	what := Format(t.Values.FileChanges, "added", strconv.Itoa(added), "removed", strconv.Itoa(removed))
	lines[0] = Line{LineLabel, t.label + ": " + what}
	return lines
}
