package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// input passes on the lines of a client that are JSON, and answers the others: the SDK would end with the first of them.
type input struct {
	io.Closer
	lines *bufio.Scanner
	out   *output
	rest  []byte // of a line that is passed on
}

func newInput(in io.ReadCloser, out *output) *input {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	return &input{Closer: in, lines: lines, out: out}
}

// errInput says that no more can be read.
var errInput = errors.New("the input of the client")

func (i *input) Read(p []byte) (int, error) {
	for len(i.rest) == 0 {
		if !i.lines.Scan() {
			if err := i.lines.Err(); err != nil {
				return 0, fmt.Errorf("%w: %w", errInput, err)
			}
			return 0, io.EOF
		}
		switch line := bytes.TrimSpace(i.lines.Bytes()); {
		case json.Valid(line):
			i.rest = append(slices.Clip(line), '\n')
		case len(line) > 0:
			if err := i.out.refuse(jsonrpc.CodeParseError, "the line is no JSON, or is nested too deeply"); err != nil {
				return 0, fmt.Errorf("%w: %w", errInput, err)
			}
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// next is the next message. What is JSON, but no message, is answered.
func next(ctx context.Context, c mcp.Connection, out *output) (jsonrpc.Message, error) {
	for {
		m, err := c.Read(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, errInput) {
			return m, err
		}
		if err := out.refuse(jsonrpc.CodeInvalidRequest, "not a message of JSON-RPC 2.0"); err != nil {
			return nil, err
		}
	}
}

// output writes whole lines.
type output struct {
	io.WriteCloser
	mu sync.Mutex
}

func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.WriteCloser.Write(line)
}

// refuse answers what has no id that could be read.
func (o *output) refuse(code int64, why string) error {
	_, err := fmt.Fprintf(o, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, why)
	return err
}
