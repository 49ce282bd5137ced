package console

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is what permesso version prints.
type Version struct {
	Version string  `json:"version"`
	Commit  *string `json:"commit"` // null in a program that was built without it
	Date    *string `json:"date"`   // of the commit, RFC 3339
	Go      string  `json:"go"`
	OS      string  `json:"os"`
	Arch    string  `json:"arch"`
	Daemon  *string `json:"daemon"` // version of the running daemon, null if none answers
}

// NewVersion describes this program. What the linker did not set is read from what the go command recorded.
func NewVersion(version, commit, date string) Version {
	v := Version{Version: version, Commit: optional(commit), Date: optional(date), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && v.Commit == nil:
			v.Commit = optional(s.Value)
		case s.Key == "vcs.time" && v.Date == nil:
			v.Date = optional(s.Value)
		}
	}
	return v
}

// Lines are the version, the source and the platform, for people.
func (v Version) Lines() []string {
	lines := []string{"permesso " + v.Version}
	if v.Commit != nil {
		lines = append(lines, "commit   "+*v.Commit)
	}
	if v.Date != nil {
		lines = append(lines, "date     "+*v.Date)
	}
	return append(lines, fmt.Sprintf("built    %s, %s/%s", v.Go, v.OS, v.Arch))
}

// optional is a text, nil if it is empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
