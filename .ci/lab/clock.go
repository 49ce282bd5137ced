package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A time namespace shifts only the clocks that count from the start of the machine, and a preloaded library does not reach
// a Go program, which asks the kernel itself. So the program under a clock that jumps is built with another time.Now, which
// adds the seconds in the file that LAB_CLOCK names. Its timers, as those of a machine whose clock jumps, stay as they are;
// the times of files are not shifted.
const labClock = `package time

import "syscall"

func labShift() (seconds int64) {
	name, ok := syscall.Getenv("LAB_CLOCK")
	if !ok {
		return 0
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	var b [32]byte
	n, _ := syscall.Read(fd, b[:])
	syscall.Close(fd)
	sign := int64(1)
	for _, c := range b[:max(n, 0)] {
		switch {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			seconds = seconds*10 + int64(c-'0')
		}
	}
	return sign * seconds
}
`

// buildShifted builds the program with a clock that the lab moves.
func (l *lab) buildShifted(program string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src/time")
	dir := filepath.Join(l.folder, "clock")
	p := place{}
	if err := p.write(filepath.Join(dir, "lab.go"), labClock, 0o644); err != nil {
		return err
	}
	const body = "\tsec, nsec, mono := runtimeNow()\n"
	const head = "func Now() Time {\n" + body
	files := object{filepath.Join(src, "lab.go"): filepath.Join(dir, "lab.go")}
	for name, change := range map[string][2]string{
		"time.go": {head, "func Now() Time { return labNow(labShift()) }\n\nfunc labNow(shift int64) Time {\n" + body + "\tsec += shift\n"},
		// The runtime calls it where no call of the system is possible.
		"sleep.go": {"<- Now().Add(", "<- labNow(0).Add("},
	} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		if strings.Count(string(b), change[0]) != 1 {
			return fmt.Errorf("%s/%s has another time.Now than the lab knows", src, name)
		}
		files[filepath.Join(src, name)] = filepath.Join(dir, name)
		if err := p.write(filepath.Join(dir, name), strings.Replace(string(b), change[0], change[1], 1), 0o644); err != nil {
			return err
		}
	}
	if err := p.write(filepath.Join(dir, "overlay.json"), text(object{"Replace": files}), 0o644); err != nil {
		return err
	}
	return build("-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/permesso")
}

func build(args ...string) error {
	if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// shift moves the clock of the daemon, the hooks and the approver.
func (w *setting) shift(by time.Duration) error {
	return w.write(filepath.Join(w.dir, "clock"), fmt.Sprint(int64(by/time.Second)), 0o644)
}
