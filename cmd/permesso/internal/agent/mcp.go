package agent

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/hook"
	"github.com/permesso-dev/permesso/ipc/mcp"
)

// MCP is the server that an agent's client starts, with the commands around it.
func MCP(c *console.Console, locate Locate, known func(workspace string) error) *cobra.Command {
	h := &hookCommand{program: program{c}, locate: locate, known: known}
	cmd := h.mcpServer()
	cmd.AddCommand(h.mcpProxy(), h.mcpLogin(), h.mcpInstall(), h.mcpUninstall(), h.mcpWrap(), h.mcpUnwrap())
	return cmd
}

// mcpFolder is that of this user's clients of MCP.
const mcpFolder = "permesso-mcp"

func noState() error {
	return console.Fail(console.ExitError, "set XDG_STATE_HOME or HOME to a folder of this user", "there is no folder for what waits")
}

// mcpClient is whom a server serves.
type mcpClient struct {
	endpoint
	name string
	hold time.Duration
}

func (m *mcpClient) flags(h *hookCommand, c *cobra.Command) {
	c.Flags().StringVar(&m.name, "name", "default", "`name` of this client: another one has requests of its own")
	m.hold = mcp.DefaultHold
	c.Flags().Var((*console.Duration)(&m.hold), "hold", "how long a call waits for a person before it has to be made again")
	m.endpoint.flags(h.program, c, "")
	_ = c.Flags().MarkHidden("timeout")
	h.workspaceFlag(c)
}

// waiter asks the gate for the client.
func (m *mcpClient) waiter(h *hookCommand) (*mcp.Waiter, error) {
	g, err := h.gate(&m.endpoint)
	if err != nil {
		return nil, err
	}
	if m.hold < time.Second {
		return nil, console.Fail(console.ExitUsage, "a minute less than the time-out of the client is good", "--hold is less than a second")
	}
	who := []string{strconv.Itoa(os.Getuid()), m.name}
	switch at := g.(type) {
	case *client.REST:
		who = append(who, at.URL, at.Key)
	case client.Files:
		requests, err := filepath.Abs(at.Requests)
		if err != nil {
			return nil, err
		}
		who = append(who, requests)
		g = at.Shared()
	}
	dir := h.state(mcpFolder)
	if dir == "" {
		return nil, noState()
	}
	b, err := mcp.OpenBook(filepath.Join(dir, approval.Digest([]byte(strings.Join(who, "\x00")))[:24]))
	if err != nil {
		return nil, console.Wrap(console.ExitError, err, cmp.Or(hints.Of(err), "set XDG_STATE_HOME to a folder that this user may write to"))
	}
	return &mcp.Waiter{Gate: g, Book: b, Hold: m.hold}, nil
}

func (h *hookCommand) mcpServer() *cobra.Command {
	var m mcpClient
	var elicitation, page string
	c := &cobra.Command{
		Use: "mcp", Short: "Serve the Model Context Protocol on standard input and output", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := m.waiter(h)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			in, ok := h.In.(io.ReadCloser)
			if !ok {
				in = io.NopCloser(h.In)
			}
			s := &mcp.Server{Waiter: w, Version: h.Version, Session: "mcp-" + client.NewID()[:12], Permit: permitHere, Notify: elicitation == elicitNotify}
			if s.Page, err = pages(page, h.workspace); err != nil {
				return err
			}
			if elicitation != elicitNotify && elicitation != elicitOff {
				return console.Fail(console.ExitUsage, "--elicitation off, or notify", "--elicitation %s is not known", console.OneLine(elicitation))
			}
			if err := s.Run(ctx, in, keepOpen{h.Out}); err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&elicitation, "elicitation", elicitOff, "`what` the client may show its user about a waiting request: off, notify")
	_ = c.RegisterFlagCompletionFunc("elicitation", cobra.FixedCompletions([]string{elicitOff, elicitNotify}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&page, "page", "", "`URL` of the gate's browser UI, which the client may show with --elicitation notify")
	m.flags(h, c)
	return c
}

// What a client may show its user. It approves nothing.
const (
	elicitOff    = "off"
	elicitNotify = "notify"
)

// pages are those of requests in the browser UI at a URL.
func pages(base, workspace string) (func(id string) string, error) {
	if base == "" {
		return nil, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, console.Fail(console.ExitUsage, "--page http://127.0.0.1:PORT, as permesso ui prints it", "--page is not the URL of a page")
	}
	return func(id string) string { return u.Scheme + "://" + u.Host + "/r/" + workspace + "/" + id }, nil
}

// keepOpen is a writer that the end of a server does not close.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// permitHere is a call of Claude Code in this folder.
func permitHere(client, tool string, input approval.Raw) (approval.Request, error) {
	dir, err := os.Getwd()
	if err != nil {
		return approval.Request{}, err
	}
	return hook.PermissionPrompt(client, tool, input, dir)
}
