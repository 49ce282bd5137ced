package gate

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Host is what the gate may know of this host's files. Agents choose the paths, so no
// method opens a device or a pipe, or waits for a file system.
type Host interface {
	// Ready returns what a handler lacks at the moment: a program, a folder or a file
	// that is missing or not usable; nil if it can run.
	Ready(h approval.Handler) error
	// Size is the size of a regular file in bytes.
	Size(path string) (int64, error)
	// Text is the text of a regular file. It fails if that is more than limit bytes or is
	// not valid UTF-8, or if people must not be sent the file. The error wraps
	// fs.ErrNotExist if there is no such file.
	Text(path string, limit int) (string, error)
}

// maxBefore limits the text of a file that an approval would replace, in bytes.
const maxBefore = 64 << 10

// pathType is the type of an argument that names a file.
const pathType = "path"

// cannotRun says what a tool lacks on this host; zero if it can run, or if nothing is known.
func cannotRun(host Host, t approval.Tool) approval.Reason {
	if host == nil || !t.Runs() {
		return approval.Reason{}
	}
	if err := host.Ready(t.Handler); err != nil {
		return approval.Because("cannot_run", "problem", err.Error())
	}
	return approval.Reason{}
}

// addHostFacts fills in what the configuration and the host's files say about a request.
// What cannot be read stays unknown.
func (g *Gate) addHostFacts(p *approval.Pending, ws approval.Workspace, t approval.Tool) {
	p.OwnDomains = ws.OwnDomains
	p.ObjectSize = g.objectSize(t, p.RequestData)
	p.Before = g.fileBefore(t.Handler, p.Runs.Args, p.RequestData)
}

// objectSize is the size of the argument that the tool's Size names: the bytes of a path's
// file, else of the value.
func (g *Gate) objectSize(t approval.Tool, data approval.Raw) *int64 {
	f, ok := argument(data, t.Size)
	if !ok {
		return nil
	}
	text, isText := f.Text()
	n := int64(len(text))
	switch {
	case t.Args[t.Size].Type == pathType:
		path, known := pathOnHost(t.Handler, t.Size, text)
		if !known || g.Host == nil {
			return nil
		}
		var err error
		if n, err = g.Host.Size(path); err != nil {
			return nil
		}
	case !isText:
		n = int64(len(f.Value))
	}
	return &n
}

// fileBefore is the file that the first argument with Writes would replace.
func (g *Gate) fileBefore(h approval.Handler, args map[string]approval.Argument, data approval.Raw) *approval.FileBefore {
	if g.Host == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		to := args[name].Writes
		if _, given := argument(data, name); to == "" || !given {
			continue
		}
		f, _ := argument(data, to)
		text, _ := f.Text()
		path, known := pathOnHost(h, to, text)
		if !known {
			return nil
		}
		before, err := g.Host.Text(path, maxBefore)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &approval.FileBefore{Arg: name}
		case err != nil, g.HoldsSecret == nil, g.HoldsSecret(before):
			return nil
		}
		return &approval.FileBefore{Arg: name, Exists: true, Text: before}
	}
	return nil
}

// argument finds a member of request_data.
func argument(data approval.Raw, name string) (f codec.Field, ok bool) {
	fields, err := codec.Fields(data)
	if err != nil {
		return f, false
	}
	i := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == name })
	if i < 0 {
		return f, false
	}
	return fields[i], true
}

// pathOnHost is the file that a path means to a command, in its working folder, or to an
// agent that runs on this host. known is false where that is not certain: another handler, no
// fixed folder, or a command that gets the path as a part of something longer.
func pathOnHost(h approval.Handler, name, path string) (file string, known bool) {
	if h.Kind == approval.HandlerAgent {
		return path, filepath.IsAbs(path)
	}
	if h.Kind != approval.HandlerCommand || path == "" || !isWhole(h.Argv, name) {
		return "", false
	}
	if filepath.IsAbs(path) {
		return path, true
	}
	return h.Dir + "/" + path, h.Dir != "" // not cleaned: a link in it resolves as for the command
}

// isWhole reports whether the elements of a command line that have an argument are nothing
// else, except for a name and "=".
func isWhole(argv []string, name string) bool {
	for _, element := range argv {
		before, after, found := strings.Cut(element, "{"+name+"}")
		if found && (after != "" || before != "" && !strings.HasSuffix(before, "=")) {
			return false
		}
	}
	return true
}
