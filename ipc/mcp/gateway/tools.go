package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

const (
	maxTools      = 10_000
	maxPages      = 1000
	maxDefinition = 256 << 10 // of one tool, in bytes
	maxNotes      = 100       // about tools that are left out

	// A list that came this fast is fetched before every call; another one if it is older than that.
	cheapFetch = 50 * time.Millisecond
	oldFetch   = time.Minute
)

// tool is one of the server as the client may call it.
type tool struct {
	name       string // the server's
	definition approval.Raw
	schema     approval.Raw
	refused    string // why it must not be called; "": it may
}

// is reports whether t may be called, and has that definition.
func (t *tool) is(definition string) bool {
	return t != nil && t.refused == "" && approval.Digest(t.definition) == definition
}

// catalog is what the server's last lists say of its tools, by the names under which the client was shown them.
type catalog struct {
	turn chan struct{} // of one who fetches

	mu      sync.Mutex
	tools   map[string]*tool
	of      *wire.Conn
	fetched time.Time // begin of the last complete fetch
	took    time.Duration
	stale   bool
	noted   map[string]bool
}

func (c *catalog) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// schemaOf is a tool's inputSchema as it was called last.
func (c *catalog) schemaOf(name string) approval.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tools[name]; t != nil {
		return t.schema
	}
	return nil
}

// compare marks the catalog as stale if the client is shown another definition.
func (c *catalog) compare(shown map[string]*tool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for as, t := range shown {
		if known := c.tools[as]; known == nil || !bytes.Equal(known.definition, t.definition) {
			c.stale = true
		}
	}
}

// toolNamed is the definition of a tool, at most that old if the list comes fast.
func (g *Gateway) toolNamed(ctx context.Context, conn *wire.Conn, name string, age time.Duration) (*tool, error) {
	c := &g.tools
	asked := time.Now().Add(-age)
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	fresh := c.of == conn && !c.stale && (c.fetched.After(asked) || c.took > cheapFetch && time.Since(c.fetched) < oldFetch)
	c.mu.Unlock()
	if !fresh {
		if err := g.fetchTools(ctx, conn); err != nil {
			return nil, fmt.Errorf("the server's list of tools: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[name], nil
}

func (g *Gateway) fetchTools(ctx context.Context, conn *wire.Conn) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.o.StartTimeout, fmt.Errorf("no answer within %v", g.o.StartTimeout))
	defer cancel()
	c := &g.tools
	defer func() {
		if err != nil {
			c.changed()
		}
	}()
	began := time.Now()
	c.mu.Lock()
	c.stale = false // what changes from now on is said again
	c.mu.Unlock()
	all := map[string]*tool{}
	var params approval.Raw
	size := 0
	for range maxPages {
		result, err := conn.Call(ctx, "tools/list", params)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		var page struct {
			Tools []approval.Raw `json:"tools"`
			Next  string         `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return err
		}
		if size += len(result); size > maxLine || len(all)+len(page.Tools) > maxTools {
			return fmt.Errorf("longer than %d tools or %d MiB", maxTools, maxLine>>20)
		}
		g.readTools(all, page.Tools)
		if page.Next == "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.tools, c.of, c.fetched, c.took = all, conn, began, time.Since(began)
			return nil
		}
		if params, err = wire.With(nil, "cursor", quote(page.Next)); err != nil {
			return err
		}
	}
	return fmt.Errorf("longer than %d pages", maxPages)
}

// readTools adds tools to those known, and returns their bytes for the client; nil: left out.
func (g *Gateway) readTools(all map[string]*tool, list []approval.Raw) []approval.Raw {
	shown := make([]approval.Raw, len(list))
	names := make([]string, len(list))
	for i, raw := range list {
		t, as, text, err := g.readTool(raw)
		if err != nil {
			g.noteTool(as, err.Error())
		}
		if t == nil {
			continue
		}
		if all[as] != nil {
			t.refused = "the server has two tools of this name"
			g.noteTool(as, t.refused)
		}
		all[as] = t
		if t.refused == "" {
			shown[i], names[i] = text, as
		}
	}
	for i, as := range names {
		if as != "" && all[as].refused != "" {
			shown[i] = nil // the first of two
		}
	}
	return shown
}

// readTool reads a tool of a list: as is its name for the client, text its bytes for it. err says why it is left out.
func (g *Gateway) readTool(raw approval.Raw) (t *tool, as string, text approval.Raw, err error) {
	fields, err := codec.Fields(raw)
	if err != nil {
		return nil, "", nil, err
	}
	t = &tool{}
	for _, f := range fields {
		switch f.Name {
		case "name":
			t.name, _ = f.Text()
		case "inputSchema":
			t.schema = f.Value
		}
	}
	as = show(t.name)
	if t.name == "" {
		return nil, "", nil, errors.New("it has no name")
	}
	refuse := func(why string) (*tool, string, approval.Raw, error) {
		t.refused = why
		return t, as, nil, errors.New(why)
	}
	if t.definition = definitionOf(fields); len(t.definition) > maxDefinition {
		return refuse(fmt.Sprintf("its definition is larger than %d KiB", maxDefinition>>10))
	}
	shownText, hidden, err := visibleJSON(t.definition)
	switch {
	case err != nil:
		return refuse(err.Error())
	case !hidden && as == t.name:
		return t, as, raw, nil
	case !g.o.ShowHidden:
		return refuse("its name, description or schema has hidden characters")
	}
	again, err := codec.Fields(shownText)
	if err != nil {
		return refuse(err.Error())
	}
	text = raw
	for _, f := range again {
		if text, err = wire.With(text, f.Name, f.Value); err != nil {
			return refuse(err.Error())
		}
	}
	text, err = wire.With(text, "name", quote(as))
	if err != nil {
		return refuse(err.Error())
	}
	return t, as, text, nil
}

// noteTool says once that a tool is left out.
func (g *Gateway) noteTool(as, why string) {
	c := &g.tools
	c.mu.Lock()
	key := as + "\x00" + why
	said := c.noted[key] || len(c.noted) >= maxNotes
	if !said {
		c.noted[key] = true
	}
	c.mu.Unlock()
	if !said {
		g.note("tool %.200q of MCP server %s is left out: %s", as, g.o.Server, show(why))
	}
}

// listed is a result of tools/list for the client: its bytes, unless a tool is left out or shown otherwise.
func (g *Gateway) listed(result approval.Raw) (approval.Raw, error) {
	raw, has, err := wire.Member(result, "tools")
	if err != nil || !has {
		return result, err
	}
	list, err := codec.Items(raw)
	if err != nil {
		return nil, err
	}
	if len(list) > maxTools {
		return nil, fmt.Errorf("the server lists more than %d tools", maxTools)
	}
	all := map[string]*tool{}
	shown := g.readTools(all, list)
	g.tools.compare(all)
	if slices.EqualFunc(shown, list, func(a, b approval.Raw) bool { return bytes.Equal(a, b) }) {
		return result, nil
	}
	shown = slices.DeleteFunc(shown, func(s approval.Raw) bool { return s == nil })
	return wire.With(result, "tools", codec.Array(shown))
}

// maxServer is the longest name of a server, in bytes.
const maxServer = 32

func validServer(name string) bool {
	return name != "" && len(name) <= maxServer && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// otherTool stands for tools whose names are none of the gate's.
const otherTool = "other"

// inGate is the gate's name of a tool, and the arguments as they are judged. A server has no dot in its name, so two servers
// never share a name.
func (g *Gateway) inGate(name string, arguments approval.Raw) (string, approval.Raw, error) {
	full := "mcp." + g.o.Server + "." + name
	if name != otherTool && approval.ValidToolName(full) {
		return full, arguments, nil
	}
	if _, has, err := wire.Member(arguments, "tool"); err != nil {
		return "", nil, err
	} else if has {
		if arguments, err = wire.With(nil, "arguments", arguments); err != nil {
			return "", nil, err
		}
	}
	arguments, err := wire.With(arguments, "tool", quote(name))
	return "mcp." + g.o.Server + "." + otherTool, arguments, err
}
