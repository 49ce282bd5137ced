package wire

import (
	"errors"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Pipes is the transport to a server that reads from stdin and writes to stdout, which the end of the connection closes.
func Pipes(stdin io.WriteCloser, stdout io.ReadCloser) mcp.Transport {
	return &mcp.IOTransport{Reader: stdout, Writer: stdin, MaxLineLength: maxBody}
}

// HTTP is the transport to a server at a URL. A lost response is an error, and is not asked for again.
func HTTP(url string, client *http.Client) mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true}
}

// ErrorOf is the answer of a server that refuses a request. ok is false for any other error.
func ErrorOf(err error) (code int64, message string, ok bool) {
	var own *jsonrpc.Error
	if !errors.As(err, &own) || own.Code == rejected {
		return 0, "", false
	}
	return own.Code, own.Message, true
}
