package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// mcpDialer connects to the MCP servers whose tools the gate runs.
type mcpDialer struct{ version string }

// options declare the tasks extension, and nothing that a server could ask for: no one can answer it.
func (d mcpDialer) options() wire.Options {
	client, _ := json.Marshal(map[string]string{"name": "permesso", "version": d.version}) // cannot fail
	return wire.Options{Client: client, Capabilities: approval.Raw(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)}
}

// Pipes implements exec.MCPDialer.
func (d mcpDialer) Pipes(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser) (exec.MCPConn, error) {
	return connected(wire.Connect(ctx, wire.Pipes(stdin, stdout), d.options()))
}

// HTTP implements exec.MCPDialer.
func (d mcpDialer) HTTP(ctx context.Context, url string, client *http.Client) (exec.MCPConn, error) {
	return connected(wire.Connect(ctx, wire.HTTP(url, client), d.options()))
}

func connected(c *wire.Conn, err error) (exec.MCPConn, error) {
	if err != nil {
		return nil, serverError(err)
	}
	return mcpConn{c}, nil
}

type mcpConn struct{ *wire.Conn }

// Call implements exec.MCPConn.
func (c mcpConn) Call(ctx context.Context, method string, params approval.Raw) (approval.Raw, error) {
	result, err := c.Conn.Call(ctx, method, params)
	return result, serverError(err)
}

// serverError is the server's answer as the executor knows it, else err.
func serverError(err error) error {
	if code, message, ok := wire.ErrorOf(err); ok {
		return &exec.MCPError{Code: code, Message: message}
	}
	return err
}
