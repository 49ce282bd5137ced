// Command bench measures the gate on the local disk and prints each figure with
// its target. Times are multiples of u, the cost of one durable write (write,
// fsync, rename, fsync of the folder) in the same run: the speed of machines
// differs, and that of one machine changes over time.
//
//	go run ./cmd/permesso/internal/bench [-bin bin/permesso] [-dir FOLDER] [-only NAME]
//
// The gate, its store, log and executor are the real ones, connected as in serve.
// Memory and idle processor time are those of the real daemon.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/ipc"
)

// figure is one line of the result.
type figure struct {
	name, got, target string
	ok                bool
}

type bench struct {
	dir     string
	bin     string
	u       time.Duration
	figures []figure
}

func main() {
	exec.SuperviseIfAsked()
	dir := flag.String("dir", "", "measure in this `folder` (default: a new one beside the binary)")
	bin := flag.String("bin", "bin/permesso", "the `program` whose memory and idle time are measured")
	only := flag.String("only", "", "run only measurements whose name contains `name`")
	profile := flag.String("cpuprofile", "", "write a processor profile to this `file`")
	flag.Parse()
	if err := profiled(*profile, func() error { return run(*dir, *bin, *only) }); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func profiled(file string, f func() error) error {
	if file == "" {
		return f()
	}
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := pprof.StartCPUProfile(to); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

func run(dir, bin, only string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Dir(bin)
	}
	if dir, err = os.MkdirTemp(dir, "bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	spreadFolders(dir)
	b := &bench{dir: dir, bin: bin}
	if err := b.unit(); err != nil {
		return err
	}
	fmt.Printf("u = %v, one durable write (median of %d); %d processors\n", b.u.Round(time.Microsecond), unitWrites, runtime.NumCPU())
	for _, m := range []struct {
		name    string
		measure func() error
	}{
		{"decision", b.decision},
		{"secrets scan", b.scan},
		{"secrets recall", b.recall},
		{"latency none", b.latencyNone},
		{"latency command", b.latencyCommand},
		{"latency allow", b.latencyAllow},
		{"burst", b.burst},
		{"audit share", b.auditShare},
		{"audit verify", b.auditVerify},
		{"sweep fresh", b.sweepFresh},
		{"sweep expired", b.sweepExpired},
		{"history", b.history},
		{"rest cycles", b.restCycles},
		{"rest create", b.restCreate},
		{"rest wake", b.restWake},
		{"rest memory", b.restMemory},
		{"tap", b.tap},
		{"ui", b.ui},
		{"start", b.start},
		{"memory", b.memory},
		{"idle", b.idle},
	} {
		if !strings.Contains(m.name, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", m.name)
		if err := m.measure(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	b.print()
	return nil
}

const unitWrites = 200

// unit measures u with the store's own file system, one write at a time.
func (b *bench) unit() error {
	dir := filepath.Join(b.dir, "unit")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	fsys, content := ipc.OS(), make([]byte, 1500)
	var took []time.Duration
	for i := range unitWrites {
		began := time.Now()
		temp := filepath.Join(dir, fmt.Sprintf(".tmp-%d", i))
		f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if _, err := f.Write(content); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := fsys.RenameNoReplace(temp, filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return err
		}
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.u = quantile(took, 0.5)
	return nil
}

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func (b *bench) add(name, got, target string, ok bool) {
	b.figures = append(b.figures, figure{name, got, target, ok})
}

// inUnits formats a duration with its multiple of u.
func (b *bench) inUnits(d time.Duration) string {
	return fmt.Sprintf("%v = %.2f u", d.Round(time.Microsecond), b.inU(d))
}

func (b *bench) inU(d time.Duration) float64 { return float64(d) / float64(b.u) }

func (b *bench) print() {
	fmt.Printf("\n%-52s %-28s %-12s\n", "measured", "figure", "target")
	for _, f := range b.figures {
		verdict := ""
		if f.target != "" && !f.ok {
			verdict = "  missed"
		}
		fmt.Printf("%-52s %-28s %-12s%s\n", f.name, f.got, f.target, verdict)
	}
}
