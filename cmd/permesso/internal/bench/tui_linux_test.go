package bench

import (
	"bytes"
	"os"
	osexec "os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// screen is a terminal with permesso tui. It answers the queries that a terminal answers at once.
type screen struct {
	b    *testing.B
	keys *os.File
	pid  int

	mu      sync.Mutex
	changed *sync.Cond
	text    []byte
}

func (r *rig) openTUI() *screen {
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(r.b, err)
	require.NoError(r.b, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	require.NoError(r.b, unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(r.b, err)
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(r.b, err)
	s := &screen{b: r.b, keys: keys}
	s.changed = sync.NewCond(&s.mu)
	go s.read()
	c := osexec.Command(bin, "tui", "--home", r.Layout.Home, "--config", r.configFile())
	c.Stdin, c.Stdout, c.Stderr, c.Env = tty, tty, tty, append(os.Environ(), "TERM=xterm-256color")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(r.b, c.Start())
	s.pid = c.Process.Pid
	require.NoError(r.b, tty.Close())
	r.b.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		_ = keys.Close()
	})
	return s
}

func (s *screen) read() {
	b := make([]byte, 1<<16)
	for {
		n, err := s.keys.Read(b)
		if err != nil {
			return
		}
		for range bytes.Count(b[:n], []byte("\x1b[c")) {
			_, _ = s.keys.WriteString("\x1b[?62;22c")
		}
		s.mu.Lock()
		s.text = append(s.text, b[:n]...)
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

// await waits until a text was written since the last call.
func (s *screen) await(text string) {
	end := time.AfterFunc(20*time.Second, func() {
		s.b.Errorf("no %q on the screen: %q", text, s.text)
		s.changed.Broadcast()
	})
	defer end.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !bytes.Contains(s.text, []byte(text)) && !s.b.Failed() {
		s.changed.Wait()
	}
	s.text = nil
}

func (s *screen) press(keys string) {
	_, err := s.keys.WriteString(keys)
	require.NoError(s.b, err)
}

// settled is longer than the time that a card must have been on the screen.
const settled = 800 * time.Millisecond

// BenchmarkTUI measures the terminal UI, with the real program on a pseudo terminal.
func BenchmarkTUI(b *testing.B) {
	b.Run("TUI with 500 pending", func(b *testing.B) {
		r := newRig(b)
		r.writePendings(uiWaiting, time.Hour, "none")
		r.daemon(uiConfig)
		r.Await("daemon started", func() bool { _, err := r.program("status"); return err == nil })
		for b.Loop() {
			began := time.Now()
			s := r.openTUI()
			s.await("(500) permesso")
			reportMS(b, "start to the first screen", time.Since(began), "<=150")
			time.Sleep(3 * time.Second) // the daemon has just started
			var visible, durable []time.Duration
			for n := range 40 {
				began := time.Now()
				r.request(uiWaiting+n, "none")
				s.await("(501) permesso")
				visible = append(visible, time.Since(began))
				s.press("\x1b[F\r") // the last one
				s.await("until")
				time.Sleep(settled)
				began = time.Now()
				s.press("d")
				r.Await("response", func() bool { return r.exists("responses", id(uiWaiting+n)) })
				durable = append(durable, time.Since(began))
				s.await("(500) permesso")
				s.press("q")
			}
			reportMS(b, "new request on the screen, p50", quantile(visible, 0.5), "<=100")
			reportMS(b, "new request on the screen, p99", quantile(visible, 0.99), "<=100")
			reportMS(b, "key to response, p50", quantile(durable, 0.5), "")
			reportU(b, "key to response, p50", quantile(durable, 0.5), "")
			report(b, "idle", load(b, s.pid, 30*time.Second), "%", "<=0.5")
			report(b, "a program that only wakes up as often", tickingIdle(b), "%", "")
		}
	})
}

// tickingIdle is the load of a program that does nothing sixteen times a second, as the screen's renderer does.
func tickingIdle(b *testing.B) float64 {
	const seconds, times = 20, 16
	before := cpu(b, os.Getpid())
	tick := time.NewTicker(time.Second / times)
	defer tick.Stop()
	for range seconds * times {
		<-tick.C
	}
	return 100 * (cpu(b, os.Getpid()) - before).Seconds() / seconds
}
