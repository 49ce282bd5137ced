package bench

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
)

// bin is the program whose memory and idle time are measured.
const bin = "../../../../bin/permesso"

// parent is the folder that all measurements write to: beside the program, or in
// PERMESSO_BENCH_DIR. The system's temporary folder may be in memory.
func parent() (string, error) {
	if dir := os.Getenv("PERMESSO_BENCH_DIR"); dir != "" {
		return dir, nil
	}
	return filepath.Abs(filepath.Dir(bin))
}

func TestMain(m *testing.M) {
	exec.SuperviseIfAsked()
	mcptest.ServeIfAsked()
	os.Exit(m.Run())
}

// folder is a new folder on the measured disk.
func folder(b *testing.B) string {
	b.Helper()
	if _, err := os.Stat(bin); err != nil {
		b.Fatalf("%v; make build first", err)
	}
	in, err := parent()
	require.NoError(b, err)
	dir, err := os.MkdirTemp(in, "bench-")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	spreadFolders(dir)
	return dir
}

// report adds a figure to the table. limit is a comparison and a number, or "".
func report(b *testing.B, what string, value float64, unit, limit string) {
	b.ReportMetric(value, strings.ReplaceAll(what, " ", "_")+":"+unit+limit)
}

func reportMS(b *testing.B, what string, d time.Duration, limit string) {
	report(b, what, float64(d)/float64(time.Millisecond), "ms", limit)
}

// reportU reports a duration in multiples of u.
func reportU(b *testing.B, what string, d time.Duration, limit string) {
	report(b, what, float64(d)/float64(unit(b)), "u", limit)
}

// reportRate reports how many a second, and the cost of each, which limit is for.
func reportRate(b *testing.B, n int, took time.Duration, limit string) {
	report(b, "", float64(n)/took.Seconds(), "/s", "")
	reportU(b, "each", took/time.Duration(n), limit)
}

// units holds u by the name of a row. It is measured before the row, on the disk as it is then:
// a file system may create files slowly for a minute after many were removed.
var units = map[string]time.Duration{}

// unit returns the row's u. It measures if newRig has not.
func unit(b *testing.B) time.Duration {
	b.Helper()
	if units[b.Name()] == 0 {
		u, err := measureUnit()
		require.NoError(b, err)
		units[b.Name()] = u
	}
	return units[b.Name()]
}

// measureUnit measures u with the store's own file system, one write at a time.
func measureUnit() (time.Duration, error) {
	in, err := parent()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(in, "bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	took := make([]time.Duration, 200)
	for i := range took {
		began := time.Now()
		if err := writeDurably(ipc.OS(), dir, strconv.Itoa(i)); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	return quantile(took, 0.5), nil
}

func writeDurably(fsys ipc.FS, dir, name string) error {
	temp := filepath.Join(dir, ".tmp-"+name)
	f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(make([]byte, 1500)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fsys.RenameNoReplace(temp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// BenchmarkUnit is in the first file, so that its figures are above all others.
func BenchmarkUnit(b *testing.B) {
	b.Run("u, one durable write, median of 200", func(b *testing.B) {
		for b.Loop() {
			reportMS(b, "", unit(b), "")
		}
	})
	b.Run("processors", func(b *testing.B) {
		for b.Loop() {
			report(b, "", float64(runtime.NumCPU()), "", "")
		}
	})
}

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// BenchmarkStart measures a command that does nothing but start and end.
func BenchmarkStart(b *testing.B) {
	b.Run("permesso --version, the whole process, median", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			took = append(took, timeProgram(b, "--version"))
		}
		reportMS(b, "", quantile(took, 0.5), "<=8")
	})
}

// BenchmarkLine measures the line of a prompt: a shell waits for it each time. The start of the program is its unit, as
// nothing is durable.
func BenchmarkLine(b *testing.B) {
	b.Run("status --line without a daemon, 500 pending, median", func(b *testing.B) {
		r := newRig(b)
		r.writePendings(uiWaiting, time.Hour, "none")
		for b.Loop() {
			var line, start []time.Duration
			for range 50 {
				start = append(start, timeProgram(b, "--version"))
				line = append(line, timeProgram(b, "status", "--line", "--home", r.Layout.Home))
			}
			reportMS(b, "", quantile(line, 0.5), "<=15")
			report(b, "as often as the start of the program", float64(quantile(line, 0.5))/float64(quantile(start, 0.5)), "x", "<=2")
		}
	})
}

// timeProgram measures a command of the real program as a process.
func timeProgram(b *testing.B, args ...string) time.Duration {
	began := time.Now()
	out, err := osexec.Command(bin, args...).CombinedOutput()
	require.NoError(b, err, "%s", out)
	return time.Since(began)
}

// daemon starts the real program on the rig's home, until the end of the benchmark.
func (r *rig) daemon(config string) (pid int) {
	r.b.Helper()
	file := r.configFile()
	require.NoError(r.b, os.WriteFile(file, []byte(config), 0o600))
	c := osexec.Command(bin, "serve", "--home", r.Layout.Home, "--config", file)
	require.NoError(r.b, c.Start())
	r.b.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	return c.Process.Pid
}

func (r *rig) configFile() string { return filepath.Join(r.Layout.Home, "permesso.toml") }

// program runs a command of the real program on the rig's home.
func (r *rig) program(args ...string) (string, error) {
	out, err := osexec.Command(bin, append(args, "--home", r.Layout.Home, "--config", r.configFile())...).Output()
	return strings.TrimSpace(string(out)), err
}

func BenchmarkMemory(b *testing.B) {
	b.Run("memory (RSS) with 10,000 pending", func(b *testing.B) {
		r := newRig(b)
		r.writePendings(sweepRequests, time.Hour, "none")
		pid := r.daemon("[workspaces.default]\nlimits = { pending = 10000 }\n")
		for b.Loop() {
			time.Sleep(25 * time.Second) // the sweep, rescans, and two beats of the watchdog
			report(b, "", residentMB(b, pid), "MB", "<=45")
		}
	})
}

// residentMB is the resident memory of a process.
func residentMB(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	require.NoError(b, err)
	return kb / 1024
}

func BenchmarkIdle(b *testing.B) {
	b.Run("processor of an idle daemon, 1,000 workspaces", func(b *testing.B) {
		var config strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&config, "[workspaces.w%d]\n", i)
		}
		r := newRig(b)
		pid := r.daemon(config.String())
		for b.Loop() {
			time.Sleep(time.Minute) // until each of the new folders was rescanned once more
			report(b, "", load(b, pid, time.Minute), "%", "<=0.2")
			report(b, "a program that only looks at as many folders", bareIdle(b, filepath.Dir(r.Layout.Workspace("w0"))), "%", "")
		}
	})
}

// bareIdle is the load of a program that only looks at as many folders as an idle daemon with
// 1,000 workspaces, 100 a second. On a shared machine that sleeps, waking up costs many
// times what it costs on a busy one.
func bareIdle(b *testing.B, dir string) float64 {
	folders, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(b, err)
	require.NotEmpty(b, folders)
	const seconds = 20
	before := cpu(b, os.Getpid())
	for i := range seconds {
		time.Sleep(time.Second)
		for j := range 100 {
			_, err := os.Lstat(folders[(100*i+j)%len(folders)])
			require.NoError(b, err)
		}
	}
	return 100 * (cpu(b, os.Getpid()) - before).Seconds() / seconds
}

// BenchmarkBacklog measures request files over every limit: they wait in the folder until
// they may be refused.
func BenchmarkBacklog(b *testing.B) {
	b.Run("processor with 10,000 request files over the limit", func(b *testing.B) {
		const files = 10_000
		r := newRig(b)
		for n := range files {
			r.request(n, "nosuch")
		}
		pid := r.daemon("[workspaces.default]\n")
		for b.Loop() {
			time.Sleep(15 * time.Second) // the start reads each once
			report(b, "", load(b, pid, time.Minute), "%", "<5")
			left, err := os.ReadDir(r.Layout.Requests(workspace))
			require.NoError(b, err)
			require.Greater(b, len(left), files/2)
		}
	})
}

// load is the processor time that a process uses in a period, in percent of one processor.
func load(b *testing.B, pid int, period time.Duration) float64 {
	before := cpu(b, pid)
	time.Sleep(period)
	return 100 * (cpu(b, pid) - before).Seconds() / period.Seconds()
}

// cpu returns the processor time of a process, from /proc/PID/stat: fields 14 and
// 15, in hundredths of a second.
func cpu(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
