package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

const isolationConfig = `listen = ""
[workspaces.default]
limits = { per_minute = 100000 }
[workspaces.noisy]
[tools.none]
dangerous_writes = false
args = { text = "text" }
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
handler = { kind = "none" }
[tools.asked]
dangerous_writes = true
args = { text = "text" }
public_source = false
secret_data = false
public_sink = true
reversibility = "irreversible"
handler = { kind = "none" }
`

// leftFiles is how many files one flood leaves in its folder.
const leftFiles = 100_000

// floods are what an agent can do in its folder of requests as fast as it can. Each returns what is done again and again
// with a number that grows.
var floods = []struct {
	name string
	in   func(dir string) func(n int) error
}{
	{"events", func(dir string) func(int) error {
		name := filepath.Join(dir, "watched")
		return func(n int) error {
			err := os.Chmod(name, os.FileMode(0o600+n%2*0o44))
			if os.IsNotExist(err) { // the gate removes what is no request
				err = os.WriteFile(name, nil, 0o644)
			}
			return err
		}
	}},
	{"names", func(dir string) func(int) error {
		return func(n int) error {
			name := filepath.Join(dir, fmt.Sprintf("no id %d \x1b[31m", n))
			return first(os.WriteFile(name, nil, 0o644), os.Remove(name))
		}
	}},
	{"renames", func(dir string) func(int) error {
		_ = os.WriteFile(filepath.Join(dir, "0"), []byte("{}"), 0o644)
		name := func(n int) string {
			if n%2 == 0 {
				return filepath.Join(dir, "0")
			}
			return filepath.Join(dir, id(n)+".json")
		}
		return func(n int) error {
			err := os.Rename(name(n), name(n+1))
			if os.IsNotExist(err) { // the gate has refused it
				err = os.WriteFile(name(n+1), []byte("{}"), 0o644)
			}
			return err
		}
	}},
	{"writes", func(dir string) func(int) error {
		return func(n int) error {
			name := filepath.Join(dir, id(n/100)+".json")
			if n%100 == 99 {
				return remove(name)
			}
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
			if err != nil {
				return err
			}
			_, err = f.WriteString(`{"text":"` + strings.Repeat("x", 1000))
			return first(err, f.Close())
		}
	}},
	{"refusals", func(dir string) func(int) error {
		text := strings.Repeat("x", 200_000)
		return func(n int) error {
			return submit(dir, n, "nosuch", text)
		}
	}},
	{"requests that vanish", func(dir string) func(int) error {
		return func(n int) error {
			return first(submit(dir, n, "asked", "x"), remove(filepath.Join(dir, id(n)+".json")))
		}
	}},
	{"cancels", func(dir string) func(int) error {
		return func(n int) error {
			return first(submit(dir, n, "asked", "x"), os.WriteFile(filepath.Join(dir, id(n)+".cancel"), nil, 0o644))
		}
	}},
	{fmt.Sprintf("%d files", leftFiles), func(dir string) func(int) error {
		for n := range leftFiles {
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("left-%d.json", n)), nil, 0o644)
		}
		return func(n int) error {
			time.Sleep(time.Millisecond)
			return os.WriteFile(filepath.Join(dir, fmt.Sprintf("left-%d.json", n)), nil, 0o644)
		}
	}},
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func remove(name string) error {
	if err := os.Remove(name); !os.IsNotExist(err) {
		return err
	}
	return nil // the gate was faster
}

// submit writes a request as an agent does.
func submit(dir string, n int, tool, text string) error {
	temp := filepath.Join(dir, ".tmp")
	body := fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":{"text":%q}}`, id(n), tool, text)
	return first(os.WriteFile(temp, []byte(body), 0o644), os.Rename(temp, filepath.Join(dir, id(n)+".json")))
}

const (
	floodRounds = 4
	floodTime   = 5 * time.Second
	probePause  = 20 * time.Millisecond
)

// BenchmarkIsolation measures what the flood of one workspace costs another: from its request to its response, while an
// agent does the same in a folder of its own, and in another folder that no gate watches.
func BenchmarkIsolation(b *testing.B) {
	for _, flood := range floods {
		b.Run("a flood of "+flood.name, func(b *testing.B) {
			r := newRig(b)
			r.daemon(isolationConfig)
			r.Await("daemon started", func() bool { _, err := r.program("status"); return err == nil })
			for b.Loop() {
				elsewhere := folder(b)
				noisy := r.Layout.Requests("noisy")
				var control, under []time.Duration
				sent := 0
				there, here := flood.in(elsewhere), flood.in(noisy)
				for range floodRounds {
					control = append(control, r.probe(&sent, there)...)
					under = append(under, r.probe(&sent, here)...)
				}
				reportMS(b, "p50", quantile(under, 0.5), "")
				reportMS(b, "p99", quantile(under, 0.99), "")
				report(b, "p50 as often as beside the gate", ratio(under, control, 0.5), "x", "")
				report(b, "p99 as often as beside the gate", ratio(under, control, 0.99), "x", "<=2")
			}
		})
	}
}

func ratio(a, b []time.Duration, q float64) float64 {
	return float64(quantile(a, q)) / float64(quantile(b, q))
}

var flooded int // a number is used once

// probe sends requests that policy allows one after another, and returns the times to their responses.
func (r *rig) probe(sent *int, flood func(int) error) (took []time.Duration) {
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			flooded++
			if err := flood(flooded); err != nil {
				<-stop
				stopped <- err
				return
			}
		}
	}()
	for end := time.Now().Add(floodTime); time.Now().Before(end); *sent++ {
		id := id(1<<20 + *sent)
		began := time.Now()
		r.WriteRequest(approval.Key{Workspace: workspace, ID: id}, fmt.Sprintf(`{"request_id":%q,"tool_name":"none","request_data":{"text":"Meeting at 5"}}`, id))
		r.Await("response", func() bool { return r.exists("responses", id) })
		took = append(took, time.Since(began))
		time.Sleep(probePause)
	}
	close(stop)
	require.NoError(r.b, <-stopped)
	return took
}
