package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// maxPins bounds the file, in bytes.
const maxPins = 64 << 20

// Pins is the file of one server's definitions as they were approved first, for all clients of a user: what one of them has
// approved, "always" for instance, counts for the others. A missing file is one without definitions; one that cannot be
// read is an error: a definition that was approved must not look new.
type Pins struct {
	file string

	mu   sync.Mutex
	d    pinned
	seen fs.FileInfo // the file of d; nil: there was none
}

type pinned struct {
	Version int                          `json:"version"`
	Last    string                       `json:"last,omitempty"` // the server that was approved last
	Servers map[string]map[string]string `json:"servers"`        // by the server's identity, as JSON text: definitions by name, too
}

// maxServers is how many servers of one name are known.
const maxServers = 32

// OpenPins reads the file of a server in a folder, which is made if it is missing.
func OpenPins(folder, server string) (*Pins, error) {
	if !validServer(server) {
		return nil, fmt.Errorf("%.60q is no name for an MCP server", server)
	}
	p := &Pins{file: filepath.Join(folder, server+".json")}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	return p, p.read()
}

// read reads the file, if it is another one than before.
func (p *Pins) read() error {
	d := pinned{Version: 1, Servers: map[string]map[string]string{}}
	info, err := os.Stat(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		p.d, p.seen = d, nil
		return nil
	}
	if err == nil && p.seen != nil && os.SameFile(info, p.seen) && info.ModTime().Equal(p.seen.ModTime()) && info.Size() == p.seen.Size() {
		return nil
	}
	if err == nil && info.Size() > maxPins {
		err = fmt.Errorf("larger than %d MiB", maxPins>>20)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(p.file)
	}
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err == nil && d.Version != 1 {
		err = fmt.Errorf("version %d is not known", d.Version)
	}
	if err != nil {
		return fmt.Errorf("definitions of an MCP server in %s: %w; remove the file to approve them anew", p.file, err)
	}
	if d.Servers == nil {
		d.Servers = map[string]map[string]string{}
	}
	p.d, p.seen = d, info
	return nil
}

// changes compares with what is pinned.
func (p *Pins) changes(server, tool approval.Raw, name string) (found []Change, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.read(); err != nil {
		return nil, err
	}
	tools, known := p.d.Servers[string(server)]
	if !known && len(p.d.Servers) > 0 {
		found = append(found, Change{"server", p.d.Last, string(server)})
	}
	old, has := tools[name]
	if !has { // one that another server of this name has approved is not a new tool
		old, has = p.elsewhere(string(tool), name)
	}
	if has && old != string(tool) {
		found = append(found, Change{"tool", old, string(tool)})
	}
	if p.has(server, tool, name) {
		return found, nil
	}
	f, err := p.openLock() // what cannot be kept is not asked about
	if err != nil {
		return nil, fmt.Errorf("no definition can be kept in %s: %w", filepath.Dir(p.file), err)
	}
	return found, f.Close()
}

// has says that a definition needs no writing.
func (p *Pins) has(server, tool approval.Raw, name string) bool {
	return p.d.Last == string(server) && p.d.Servers[string(server)][name] == string(tool)
}

// openLock opens the lock file of those that write. The folder may have been removed.
func (p *Pins) openLock() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(p.file), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(p.file+".lock", os.O_RDWR|os.O_CREATE, 0o600)
}

// elsewhere is a tool's definition as another server of the name has it: the same one if any has.
func (p *Pins) elsewhere(tool, name string) (old string, has bool) {
	for _, server := range slices.Sorted(maps.Keys(p.d.Servers)) {
		if d, is := p.d.Servers[server][name]; is {
			if old, has = d, true; d == tool {
				return old, has
			}
		}
	}
	return old, has
}

// pin writes what was approved. Another process may have the same server: its tools stay.
func (p *Pins) pin(server, tool approval.Raw, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has(server, tool, name) {
		return nil
	}
	alone, err := p.openLock()
	if err != nil {
		return err
	}
	defer alone.Close()
	if err := wholefile.Lock(alone); err != nil {
		return err
	}
	if err := p.read(); err != nil {
		return err
	}
	p.seen = nil // it is written now
	d := p.d
	if d.Servers[string(server)] == nil {
		if len(d.Servers) >= maxServers {
			d.Servers = map[string]map[string]string{d.Last: d.Servers[d.Last]}
		}
		d.Servers[string(server)] = map[string]string{}
	}
	d.Last, d.Servers[string(server)][name] = string(server), string(tool)
	b, err := json.Marshal(d, json.Deterministic(true))
	if err == nil {
		err = wholefile.Replace(p.file, b, 0o600)
	}
	return err
}

// pinnedMembers of a tool are what a client's model reads of it, and what it is called with.
var pinnedMembers = []string{"annotations", "description", "inputSchema", "name", "outputSchema", "title"}

// definitionOf is a tool's definition: the members that are pinned, their bytes verbatim, in one order.
func definitionOf(tool []codec.Field) approval.Raw {
	pinned := slices.DeleteFunc(slices.Clone(tool), func(f codec.Field) bool { return !slices.Contains(pinnedMembers, f.Name) })
	slices.SortFunc(pinned, func(a, b codec.Field) int { return strings.Compare(a.Name, b.Name) })
	return codec.Object(pinned)
}
