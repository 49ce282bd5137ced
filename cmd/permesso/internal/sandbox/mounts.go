package sandbox

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Mount is one host folder in a container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// MountList is the mounts of one sandbox.
type MountList []Mount

// Mounts is the only definition of what a container may see.
func Mounts(l ipc.Layout, ws string) MountList {
	return MountList{
		{Source: l.Requests(ws), Target: client.DefaultRequests},
		{Source: l.Responses(ws), Target: client.DefaultResponses, ReadOnly: true},
	}
}

// Form formats the mounts for a program as one line that a shell splits;
// compose gets lines of YAML. "" is for people.
func (list MountList) Form(name string) (string, error) {
	switch name {
	case "bwrap":
		return ShellWords(list.Bwrap()), nil
	case "docker":
		// Docker's --mount has no nosuid, and its containers do not need it.
		args, err := list.Flags("readonly")
		return ShellWords(args), err
	case "podman":
		args, err := list.Flags("readonly", "nosuid", "nodev", "noexec")
		return ShellWords(args), err
	case "compose":
		return list.compose(), nil
	}
	var lines []string
	for _, m := range list {
		access := "read-write"
		if m.ReadOnly {
			access = "read-only "
		}
		lines = append(lines, access+"  "+m.Source+"  ->  "+m.Target)
	}
	return strings.Join(lines, "\n"), nil
}

// Bwrap drops the capabilities too: an agent started by root could otherwise
// remount its responses for writing.
func (list MountList) Bwrap() []string {
	args := []string{"--cap-drop", "ALL"}
	for _, m := range list {
		how := "--bind"
		if m.ReadOnly {
			how = "--ro-bind"
		}
		args = append(args, how, m.Source, m.Target)
	}
	return args
}

// Flags returns --mount flags. Their value is CSV, because a path may contain
// --volume's separator. readonly is added to read-only mounts, others to all.
func (list MountList) Flags(readonly string, others ...string) ([]string, error) {
	var args []string
	for _, m := range list {
		fields := append([]string{"type=bind", "src=" + m.Source, "dst=" + m.Target}, others...)
		if m.ReadOnly {
			fields = append(fields, readonly)
		}
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write(fields); err != nil {
			return nil, err
		}
		w.Flush()
		args = append(args, "--mount", strings.TrimSuffix(b.String(), "\n"))
	}
	return args, nil
}

// compose quotes as Go does, which YAML reads the same. Compose expands
// variables in every value, hence the second dollar sign.
func (list MountList) compose() string {
	var b strings.Builder
	b.WriteString("volumes:")
	for _, m := range list {
		source := strconv.Quote(strings.ReplaceAll(m.Source, "$", "$$"))
		fmt.Fprintf(&b, "\n  - type: bind\n    source: %s\n    target: %s", source, m.Target)
		if m.ReadOnly {
			b.WriteString("\n    read_only: true")
		}
		// Otherwise compose would create a missing folder, owned by root.
		b.WriteString("\n    bind:\n      create_host_path: false")
	}
	return b.String()
}

// ShellWords quotes words for a shell.
func ShellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// ShellWord quotes a word if a shell needs it.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=,:+@%", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
