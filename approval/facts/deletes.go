package facts

import (
	"path"
	"slices"
	"strings"
)

// Deletion is what one program of a command deletes, or overwrites with something else.
type Deletion struct {
	Program string // "git clean"
	Files   []Word // as far as the command names them
	Strong  bool   // all files of a disk, of a home or of a folder, or a device
}

// deleters delete their operands. Each has its options that take a value.
var deleters = map[string]string{
	"rm": "", "unlink": "", "rmdir": "", "srm": "", "shred": "-n -s --iterations --size", "truncate": "-s -r --size --reference",
	"wipefs": "-o -t", "blkdiscard": "-o -l -p", "mkfs": "-t -L -b -m -N -i -U -n",
}

// Deletes lists what the command is told to delete.
func (c SimpleCommand) Deletes() (all []Deletion) {
	for _, p := range c.Programs() {
		if d, is := deletion(p.program(), after(c.Words, p)); is {
			all = append(all, d)
		}
	}
	return all
}

func deletion(program string, words []Word) (d Deletion, is bool) {
	d.Program = program
	kind, _, _ := strings.Cut(program, ".") // mkfs.ext4
	options, deletes := deleters[kind]
	switch {
	case deletes:
		d.Files = operands(words, strings.Fields(options))
		d.Strong = slices.ContainsFunc(d.Files, func(w Word) bool {
			return isDevice(w.Text) || program == "rm" && recursive(words) && isAll(w)
		})
	case program == "find":
		deletes = slices.ContainsFunc(words, func(w Word) bool { return w.Text == "-delete" })
		first := slices.IndexFunc(words, func(w Word) bool { return strings.HasPrefix(w.Text, "-") })
		d.Files = words[:max(first, 0)]
		d.Strong = slices.ContainsFunc(d.Files, func(w Word) bool { return w.Text != "." && isAll(w) })
	case program == "git":
		words = started(words, []string{"-C", "-c"}, 0)
		d.Program, deletes = "git clean", len(words) > 0 && words[0].Text == "clean"
	case program == "dd":
		d.Files = written(program, words)
		deletes = len(d.Files) > 0
		d.Strong = slices.ContainsFunc(d.Files, func(w Word) bool { return isDevice(w.Text) })
	}
	return d, deletes
}

// operands are the words that are no options, up to the end of a command of find.
func operands(words []Word, options []string) (all []Word) {
	dashes := false
	for i, w := range words {
		switch {
		case w.Text == ";" || w.Text == "+":
			return all
		case w.Text == "{}" || i > 0 && slices.Contains(options, words[i-1].Text):
		case w.Text == "--" && !dashes:
			dashes = true
		case dashes || !strings.HasPrefix(w.Text, "-"):
			all = append(all, w)
		}
	}
	return all
}

func recursive(words []Word) bool {
	return slices.ContainsFunc(words, func(w Word) bool {
		short := strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--") && strings.ContainsAny(w.Text, "rR")
		return short || w.Text == "--recursive"
	})
}

// isAll says whether a word names a disk, a home, a folder of the system, or all of the
// current folder. A variable before a slash may be empty.
func isAll(w Word) bool {
	text := strings.ReplaceAll(w.Text, `"`, "")
	first, rest, slash := strings.Cut(text, "/")
	switch all := strings.Trim(rest, "/*.") == ""; {
	case strings.HasPrefix(text, "~"), first == "$HOME", first == "${HOME}":
		return all
	case w.Open:
		return all && slash && !strings.ContainsAny(text, "(`")
	}
	return strings.Trim(text, "/*.") == "" || systemFolders[path.Clean(strings.TrimSuffix(text, "*"))]
}

var systemFolders = setOf("/ /bin /boot /dev /etc /home /lib /lib64 /opt /root /sbin /srv /usr /var /Users /System")

func isDevice(s string) bool { return strings.HasPrefix(s, "/dev/") && s != "/dev/null" }
