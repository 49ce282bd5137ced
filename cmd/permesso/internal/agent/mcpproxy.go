package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/mcp/gateway"
)

// mcpProxy is the command that an agent's client starts instead of another server.
func (h *hookCommand) mcpProxy() *cobra.Command {
	var m mcpClient
	var server, url string
	var env []string
	var o gateway.Options
	c := &cobra.Command{
		Use: "proxy [--url URL] [-- COMMAND [ARGUMENT]...]", Short: "Stand before another MCP server and ask before each call of its tools",
		RunE: func(cmd *cobra.Command, command []string) error {
			if (url == "") == (len(command) == 0) {
				return console.Fail(console.ExitUsage, "permesso mcp proxy -- COMMAND, or permesso mcp proxy --url URL", "give the command of the server behind --, or its --url")
			}
			w, err := m.waiter(h)
			if err != nil {
				return err
			}
			if f, ok := w.Gate.(client.Files); ok {
				f.Unsynced = true // a call ends with its gateway
				w.Gate = f
			}
			note := func(text string) { fmt.Fprintln(h.Err, "permesso: "+console.OneLine(text)) }
			o.Note = note
			o.Server = gateway.NameOf(command, url)
			if server != "" {
				o.Server = gateway.NameAs(server)
			}
			if err := serverOf(&o, command, env, url, h.logins(), note); err != nil {
				return err
			}
			if o.Pins, err = gateway.OpenPins(filepath.Join(h.state(mcpFolder), "definitions"), o.Server); err != nil {
				return console.Wrap(console.ExitError, err, "")
			}
			judge := &gateway.Gate{Waiter: w, Session: "mcp-" + client.NewID()[:12]}
			o.Judge = judge
			g, err := gateway.New(o)
			if err != nil {
				return console.Wrap(console.ExitUsage, err, "permesso mcp proxy --help")
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			return g.Serve(ctx, h.In, judge.Watch(h.Out))
		},
	}
	c.Flags().StringVar(&server, "server", "", "`name` of the server in rules and on cards (default: of its command or host)")
	c.Flags().StringVar(&url, "url", "", "`URL` of a server that speaks streamable HTTP")
	c.Flags().StringArrayVar(&env, "env", nil, "`NAME` of a variable that the server gets, or NAME=VALUE; else it gets PATH, HOME and the like")
	c.Flags().BoolVar(&o.Sampling, "sampling", false, "let the server use the agent's model (deprecated in the protocol)")
	c.Flags().BoolVar(&o.Roots, "roots", false, "let the server list the agent's folders (deprecated in the protocol)")
	c.Flags().BoolVar(&o.ShowHidden, "show-hidden", false, "list tools with hidden characters, shown as \\u{…}, instead of refusing them")
	m.flags(h, c)
	return c
}

// serverOf fills in how the server is reached, and what is pinned of it.
func serverOf(o *gateway.Options, command, env []string, url, logins string, note func(string)) (err error) {
	if url == "" {
		p := gateway.Process{Command: command, Env: env, Stderr: func(line string) { note("server: " + line) }}
		o.Identity = p.Identity()
		o.Connect = p.Connect
		return nil
	}
	login, err := gateway.OpenLogin(logins, url)
	if err == nil {
		o.Identity, err = gateway.RemoteIdentity(url)
	}
	if err == nil {
		o.Connect, err = gateway.Remote(url, http.DefaultClient, login.Held())
	}
	if err != nil {
		return console.Wrap(console.ExitUsage, err, "permesso mcp proxy --url https://HOST/PATH")
	}
	return nil
}

// logins is the folder of what this user's logins have given, for all clients.
func (h *hookCommand) logins() string { return filepath.Join(h.state(mcpFolder), "logins") }

// mcpLogin is the command with which a person logs in to a remote server, for the gateway.
func (h *hookCommand) mcpLogin() *cobra.Command {
	var id, secretFile string
	c := &cobra.Command{
		Use: "login URL", Short: "Log in to a remote MCP server, for the gateway before it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if h.state(mcpFolder) == "" {
				return noState()
			}
			as := gateway.Client{ID: id}
			if secretFile != "" {
				b, err := os.ReadFile(secretFile)
				if err != nil {
					return console.Wrap(console.ExitUsage, err, "give the file of the client's secret")
				}
				as.Secret = strings.TrimSpace(string(b))
			}
			l, err := gateway.OpenLogin(h.logins(), pos[0])
			if err != nil {
				return console.Wrap(console.ExitUsage, err, "permesso mcp login https://HOST/PATH")
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, loginTimeout)
			defer cancel()
			wanted, err := l.LogIn(ctx, pos[0], as, func(address string) {
				fmt.Fprintln(h.Out, "Open this address in a browser on this machine, and log in there:\n"+console.OneLine(address))
			})
			switch {
			case err != nil:
				if _, unreachable := errors.AsType[*net.OpError](err); unreachable {
					err = errors.New("nothing answers there")
				}
				return console.Wrap(console.ExitError, fmt.Errorf("not logged in: %w", err), "check the URL; it is that of the server's MCP endpoint, as https://HOST/mcp")
			case !wanted:
				fmt.Fprintln(h.Out, "This server wants no login.")
			default:
				fmt.Fprintln(h.Out, "Logged in. The gateway has the tokens, and renews them.")
			}
			return nil
		},
	}
	c.Flags().StringVar(&id, "client-id", "", "`ID` of a client that the server's issuer knows (default: one is registered)")
	c.Flags().StringVar(&secretFile, "client-secret-file", "", "`file` with its secret")
	return c
}

// loginTimeout is how long a person may take.
const loginTimeout = 10 * time.Minute
