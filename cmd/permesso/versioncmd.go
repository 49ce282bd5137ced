package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// commit and date are set by the linker: the source of a released program.
var commit, date string

// programVersion is what permesso version prints.
type programVersion struct {
	Version string  `json:"version"`
	Commit  *string `json:"commit"` // null in a program that was built without it
	Date    *string `json:"date"`   // of the commit, RFC 3339
	Go      string  `json:"go"`
	OS      string  `json:"os"`
	Arch    string  `json:"arch"`
	Daemon  *string `json:"daemon"` // version of the running daemon, null if none answers
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the running daemon", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := programVersion{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			v.Commit, v.Date = source()
			lines := []string{"permesso " + v.Version}
			if v.Commit != nil {
				lines = append(lines, "commit   "+*v.Commit)
			}
			if v.Date != nil {
				lines = append(lines, "date     "+*v.Date)
			}
			lines = append(lines, fmt.Sprintf("built    %s, %s/%s", v.Go, v.OS, v.Arch))
			if d := control.DaemonVersion(cmd.Context(), a.Console); d != "" {
				v.Daemon = &d
				lines = append(lines, "daemon   "+d)
			} else {
				lines = append(lines, "daemon   no answer")
			}
			if v.Daemon != nil && *v.Daemon != v.Version {
				lines = append(lines, "Restart the daemon to update it.")
			}
			return a.Print(v, strings.Join(lines, "\n"))
		},
	}
}

// source is the commit that the program was built from, and its date.
func source() (id, when *string) {
	id, when = optional(commit), optional(date)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return id, when
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && id == nil:
			id = optional(s.Value)
		case s.Key == "vcs.time" && when == nil:
			when = optional(s.Value)
		}
	}
	return id, when
}

// optional is a text, nil if it is empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
