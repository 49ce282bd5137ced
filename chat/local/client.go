package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// Client asks a Server. Its methods mean what those of the gate's own viewer
// and decider do. Each opens a connection of its own.
type Client struct {
	Path string

	language string // what the server said last
}

// ask sends one request and hands every line of the answer to each.
func (c *Client) ask(ctx context.Context, r request, each func(answer) error) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(line) >= maxRequest {
		return fmt.Errorf("ask the gate: more than %d bytes", maxRequest)
	}
	path, done, err := reachable(c.Path)
	if err != nil {
		return fmt.Errorf("ask the gate: %w", err)
	}
	defer done()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("ask the gate: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(6 * patience)); err != nil {
		return err
	}
	// A stranger is sent away unread: then writing fails and the answer is there.
	_, sent := conn.Write(append(line, '\n'))
	if err := c.hear(conn, each); err != nil {
		var ref *approval.Refusal
		if sent != nil && !errors.As(err, &ref) {
			err = errors.Join(sent, err)
		}
		return err
	}
	return nil
}

func (c *Client) hear(conn net.Conn, each func(answer) error) error {
	lines := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, err := readLine(lines, maxAnswer)
		if err != nil {
			return fmt.Errorf("hear the gate's answer: %w", err)
		}
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			return errors.New("hear the gate's answer: not one that this program understands: is the gate of the same version?")
		}
		switch {
		case a.Refusal != nil:
			return a.Refusal.given()
		case a.Error != "":
			return errors.New(a.Error)
		case a.End:
			c.language = a.Language
			return nil
		}
		if err := each(a); err != nil {
			return err
		}
	}
}

// Language is what the gate speaks with this person; it is known after any
// question.
func (c *Client) Language() string { return c.language }

// Waiting lists what waits in those of the workspaces that are one's own (nil:
// in all of one's own), oldest first.
func (c *Client) Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error) {
	var list []approval.StoredPending
	err := c.ask(ctx, request{Op: opPending, Workspaces: workspaces}, func(a answer) error {
		w, err := waiting(a)
		if err == nil {
			list = append(list, *w)
		}
		return err
	})
	return list, err
}

func waiting(a answer) (*approval.StoredPending, error) {
	p, err := approval.ParsePending(a.Pending, a.key())
	if err != nil {
		return nil, err
	}
	return &approval.StoredPending{Pending: p, SHA256: a.SHA256}, nil
}

// Find lists the keys whose id begins with prefix, among what is one's own.
func (c *Client) Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error) {
	var keys []approval.Key
	err := c.ask(ctx, request{Op: opFind, Workspaces: workspaces, Prefix: prefix}, func(a answer) error {
		keys = append(keys, a.key())
		return nil
	})
	return keys, err
}

// Story is what there is of one request: what waits, or how it ended.
type Story struct {
	Waiting  *approval.StoredPending
	Record   *approval.Record
	Decision *approval.Decision // the record's, opened
}

// Show gives what there is of one request. Nothing is no error.
func (c *Client) Show(ctx context.Context, k approval.Key) (Story, error) {
	var s Story
	err := c.ask(ctx, request{Op: opShow, Workspace: k.Workspace, ID: k.ID}, func(a answer) (err error) {
		switch {
		case len(a.Pending) > 0:
			s.Waiting, err = waiting(a)
		case len(a.Record) > 0:
			s.Record, err = approval.ParseRecord(a.Record, a.key())
		}
		if err == nil && len(a.Decision) > 0 {
			s.Decision, err = approval.ParseDecision(a.Decision, a.key())
		}
		return err
	})
	return s, err
}

// Decide has the answer written into the slot. By and Via are the server's to
// say.
func (c *Client) Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	var d *approval.Decision
	err := c.ask(ctx, request{
		Op: opDecide, Workspace: a.Key.Workspace, ID: a.Key.ID, PendingSHA256: a.PendingSHA256,
		Verdict: a.Verdict, Code: a.Code, Scope: a.Scope, Note: a.Note, Override: a.Override, Feedback: a.Feedback, Answer: a.Text,
	}, func(got answer) (err error) {
		d, err = approval.ParseDecision(got.Decision, got.key())
		return err
	})
	if err == nil && d == nil {
		err = errors.New("the gate confirmed no decision: do not count on it")
	}
	return d, err
}

// Status is what the server says of itself, as JSON.
func (c *Client) Status(ctx context.Context) ([]byte, error) {
	var b []byte
	err := c.ask(ctx, request{Op: opStatus}, func(a answer) error {
		b = a.Status
		return nil
	})
	return b, err
}

// Link is an address that opens the gate's pages for this person in a browser,
// once, and for how long.
func (c *Client) Link(ctx context.Context) (address string, life time.Duration, err error) {
	err = c.ask(ctx, request{Op: opUI}, func(a answer) error {
		address, life = a.Link, time.Duration(a.LinkLife)*time.Second
		return nil
	})
	if err == nil && address == "" {
		err = errors.New("the gate gave no link: is it of the same version?")
	}
	return address, life, err
}

// Pending is one that waits, or nil.
func (c *Client) Pending(k approval.Key) (*approval.StoredPending, error) {
	s, err := c.Show(context.Background(), k)
	return s.Waiting, err
}

// Record is the story of a settled request, or nil.
func (c *Client) Record(ctx context.Context, k approval.Key) (*approval.Record, error) {
	s, err := c.Show(ctx, k)
	return s.Record, err
}

// OpenDecision returns the decision in the record of k; the server has opened it.
func (c *Client) OpenDecision(k approval.Key, _ approval.Raw) *approval.Decision {
	s, err := c.Show(context.Background(), k)
	if err != nil {
		return nil
	}
	return s.Decision
}
