package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
)

// serverTask is a task of the MCP server, which no crash of the gate touches.
type serverTask struct {
	asked int  // how often the gate has asked for it
	kept  bool // the gate holds its handle to be durable
}

const taskTool = "task"

// handle is what the server calls the task of a request.
func handle(id string) string { return "handle of " + id }

// taskServer is an MCP server whose tool answers with a task. The gate knows it by its handle only. Its process is none of
// the simulation's: it goes on while the gate is dead.
type taskServer struct {
	d   *daemon
	job approval.Job
}

// runner is the real executor before the server.
func (d *daemon) runner(job approval.Job) (*exec.Runner, error) {
	verifier, err := d.w.config.signer.Verifier()
	if err != nil {
		return nil, err
	}
	verifier.Now = d.w.clock
	return &exec.Runner{Verifier: verifier, MCP: taskServer{d, job}, After: func(time.Duration) <-chan time.Time {
		now := make(chan time.Time, 1)
		now <- d.w.now
		return now
	}}, nil
}

// HTTP implements exec.MCPDialer.
func (s taskServer) HTTP(context.Context, string, *http.Client) (exec.MCPConn, error) { return s, nil }

// Pipes implements exec.MCPDialer.
func (taskServer) Pipes(context.Context, io.WriteCloser, io.ReadCloser) (exec.MCPConn, error) {
	return nil, errors.New("the server is reached by HTTP")
}

// Call implements exec.MCPConn. A gate that was killed gets an answer that ends its run, and can write nothing.
func (s taskServer) Call(_ context.Context, method string, params approval.Raw) (approval.Raw, error) {
	w, id := s.d.w, s.job.RequestID
	killed := &exec.MCPError{Code: -32602, Message: "killed"}
	if method == "tools/call" {
		if s.d.effect(s.job) != nil {
			return nil, killed
		}
		return approval.Raw(fmt.Sprintf(`{"resultType":"task","taskId":%q,"status":"working"}`, handle(id))), nil
	}
	if w.exposePoint(s.d.proc, "tasks/get") != nil {
		return nil, killed
	}
	var p struct {
		ID string `json:"taskId"`
	}
	t, known := w.tasks[id]
	if err := json.Unmarshal(params, &p); err != nil || method != "tasks/get" || !known || p.ID != handle(id) {
		return nil, &exec.MCPError{Code: -32602, Message: "there is no such task"}
	}
	t.asked++
	w.tasks[id] = t
	if t.asked == 1 {
		return approval.Raw(`{"status":"working"}`), nil
	}
	return approval.Raw(`{"status":"completed","result":{"content":[]}}`), nil
}

// Done implements exec.MCPConn.
func (taskServer) Done() <-chan struct{} { return nil }

// Close implements exec.MCPConn.
func (taskServer) Close() error { return nil }

// keep notes that the gate holds the handle of a task to be durable.
func (w *sim) keep(id string) {
	t := w.tasks[id]
	t.kept = true
	w.tasks[id] = t
}

// checkTask checks that a task whose handle is durable was followed to its end, and that no outcome was called unknown
// before the server was asked.
func (w *sim) checkTask(id string, st approval.Status, violate func(string, ...any)) {
	t, began := w.tasks[id]
	switch {
	case !began:
	case t.kept && st != approval.StatusApproved:
		violate("I6 a task that was kept is %s", st)
	case st == approval.StatusApproved && t.asked < 2:
		violate("I6 a task is called approved before its end")
	}
}
